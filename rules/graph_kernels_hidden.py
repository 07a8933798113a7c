"""CUDA graph replays that were recorded as a whole, without their kernels."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import spans, union
from nsysdoctor.tables.activity.gpu_rows import GRAPH
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request


@table
def graph_kernels_hidden(ops: pd.DataFrame, request: Request) -> pd.DataFrame:
    """Returns a row per device with replays recorded as a whole: subject, device, count, graph_ns,
    hidden_ratio (of the time the device runs anything), level."""
    rows: list[dict[str, object]] = []
    shown = request.in_given_window(ops)
    ops = ops if shown is None else ops[shown]
    is_graph = ops["kind"].to_numpy() == GRAPH
    for device in np.unique(ops["device"].to_numpy()[is_graph]).tolist():
        here = ops["device"].to_numpy() == device
        mine, graphs = ops[here], ops[here & is_graph]
        graph_ns = union(spans(graphs["start_ns"], graphs["end_ns"])).total_ns
        busy_ns = union(spans(mine["start_ns"], mine["end_ns"])).total_ns
        share = graph_ns / max(busy_ns, 1)
        rows.append(
            {
                "subject": f"GPU {device}",
                "device": device,
                "count": len(graphs),
                "graph_ns": graph_ns,
                "hidden_ratio": share,
                # A limit of the capture; nothing is wrong with the program.
                "level": "info",
            }
        )
    return pd.DataFrame(rows)


def evidence(
    graph_kernels_hidden: pd.DataFrame, ops: pd.DataFrame, request: Request
) -> pd.DataFrame:
    """Returns the replays: row, start_ns, end_ns, what."""
    row = {device: row for row, device in enumerate(graph_kernels_hidden["device"])}
    shown, graph = request.in_given_window(ops), ops["kind"].to_numpy() == GRAPH
    mine = ops[graph if shown is None else graph & shown]
    return pd.DataFrame(
        {
            "row": mine["device"].map(row).to_numpy(dtype=np.int64),
            "start_ns": mine["start_ns"],
            "end_ns": mine["end_ns"],
            "what": "a graph replay",
        }
    )
