"""How long each device idles, and mainly why."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.recipe import table
from nsysdoctor.tables.states import CAUSES

_IDLE = np.array([f"idle: {cause.replace('_', ' ')}" for cause in CAUSES], dtype=object)


@table
def gpu_idle(
    time_budget: pd.DataFrame, gap_causes: pd.DataFrame, *, min_ratio: float
) -> pd.DataFrame:
    """Returns a row per device that idles for at least `min_ratio` of its span: subject, device,
    count (gaps), idle_ns, span_ns, idle_ratio, main_cause, unknown_ratio, level (info)."""
    length = gap_causes["end_ns"] - gap_causes["start_ns"]
    rows = []
    for budget in time_budget.to_dict("records"):
        device, idle, span = budget["device"], budget["idle_ns"], budget["span_ns"]
        mine = gap_causes["device"] == device
        by_cause = length[mine].groupby(gap_causes.loc[mine, "cause"]).sum()
        if not span or idle < min_ratio * span:
            continue
        main = int(by_cause.sort_index().idxmax())
        rows.append(
            {
                "subject": f"GPU {device}",
                "device": device,
                "count": int(gap_causes.loc[mine, "gap"].nunique()),
                "idle_ns": idle,
                "span_ns": span,
                "idle_ratio": idle / span,
                "main_cause": CAUSES[main].replace("_", " "),
                "unknown_ratio": float(by_cause.get(CAUSES.index("unknown"), 0)) / idle,
                "level": "info",
            }
        )
    return pd.DataFrame(rows)


def evidence(gpu_idle: pd.DataFrame, gap_causes: pd.DataFrame, gaps: pd.DataFrame) -> pd.DataFrame:
    """Returns the gaps of each listed device, named by their largest cause."""
    length = (gap_causes["end_ns"] - gap_causes["start_ns"]).rename("ns")
    pieces = gap_causes.assign(ns=length).sort_values(["gap", "ns", "cause"])
    main = pieces.groupby("gap", sort=True)["cause"].last()
    rows = {device: row for row, device in enumerate(gpu_idle["device"])}
    found = gaps.assign(
        row=[rows.get(d, -1) for d in gaps["device"]],
        what=_IDLE[main.reindex(gaps.index).to_numpy()],
    )
    return found.loc[found["row"] >= 0, ["row", "start_ns", "end_ns", "what"]]
