"""How each device spent its span: every nanosecond in exactly one bucket."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.errors import EmptyTraceError, UsageError
from nsysdoctor.intervals import Spans, partition, spans
from nsysdoctor.recipe import table
from nsysdoctor.tables.activity import GRAPH, KERNEL
from nsysdoctor.tables.ops import COMMUNICATION
from nsysdoctor.units import ns_text
from nsysdoctor.window import Request

BUCKETS = ("compute", "exposed_communication", "exposed_copy", "idle")
"""The values of `bucket`; where several apply at once the earlier one counts."""


@table
def horizon(ops: pd.DataFrame, request: Request, steps: pd.DataFrame) -> pd.DataFrame:
    """Returns the span that each device's budget covers: device, start_ns, end_ns.

    From the device's first to its last operation, unless a window was asked for: then the
    window itself. Raises EmptyTraceError when no device ran anything, UsageError when the one
    asked for did not, or when the window lies wholly before or after all that ran.
    """
    if not len(ops):
        raise EmptyTraceError(
            "the trace holds no GPU activity (no kernel, copy or graph rows)",
            "record with: nsys profile --trace=cuda,nvtx,osrt ...",
        )
    found = ops.groupby("device", as_index=False, sort=True).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )
    if request.device is not None:
        ran = ", ".join(str(device) for device in found["device"])
        found = found[found["device"] == request.device].reset_index(drop=True)
        if not len(found):
            raise UsageError(f"device {request.device} ran nothing", f"devices that did: {ran}")
    asked = _asked(request, steps)
    if asked is not None:
        _require_overlap(asked, int(found["start_ns"].min()), int(found["end_ns"].max()))
        found["start_ns"], found["end_ns"] = asked
    return found


def _require_overlap(asked: tuple[int, int], first_ns: int, last_ns: int) -> None:
    """Where nothing was captured a device is not idle; nothing is known of it."""
    if asked[0] < last_ns and first_ns < asked[1]:
        return
    raise UsageError(
        f"nothing was captured in the window {ns_text(asked[0])} to {ns_text(asked[1])}",
        f"the GPU ran from {ns_text(first_ns)} to {ns_text(last_ns)}; name a part of that",
    )


def _asked(request: Request, steps: pd.DataFrame) -> tuple[int, int] | None:
    if isinstance(request.window, tuple):
        return request.window
    steady = steps[steps["phase"] == "steady"]
    if request.window == "steady" and len(steady):
        return int(steady["start_ns"].min()), int(steady["end_ns"].max())
    return None


@table
def device_pieces(
    ops: pd.DataFrame, op_category: pd.Series[str], horizon: pd.DataFrame
) -> pd.DataFrame:
    """Returns what each device did, without overlap and without holes.

    Columns: device, start_ns, end_ns, bucket (code into `BUCKETS`), sorted by device and start.
    A kernel that is no collective and a graph replay count as compute; a collective counts where
    no compute runs, a copy or set where neither does.
    """
    kind = ops["kind"].to_numpy()
    collective = (op_category == COMMUNICATION).to_numpy()
    compute = ((kind == KERNEL) & ~collective) | (kind == GRAPH)
    masks = (compute, collective, ~compute & ~collective)
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    device = ops["device"].to_numpy()
    frames = []
    for row in horizon.itertuples(index=False):
        here = device == row.device
        layers = [spans(start[here & mask], end[here & mask]) for mask in masks]
        shares = partition(layers, int(row.start_ns), int(row.end_ns))
        frames.append(_stacked(int(row.device), shares))
    return pd.concat(frames, ignore_index=True)


def _stacked(device: int, shares: list[Spans]) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "device": device,
            "start_ns": np.concatenate([s.start for s in shares]),
            "end_ns": np.concatenate([s.end for s in shares]),
            "bucket": np.repeat(
                np.arange(len(shares), dtype=np.int8), [len(s.start) for s in shares]
            ),
        }
    )
    return frame.sort_values("start_ns", kind="stable", ignore_index=True)


@table
def time_budget(
    ops: pd.DataFrame, device_pieces: pd.DataFrame, horizon: pd.DataFrame
) -> pd.DataFrame:
    """Returns one row per device.

    Columns: device, start_ns, span_ns, compute_ns, exposed_communication_ns, exposed_copy_ns,
    idle_ns (they sum to the span), kernel_work_ns (plain sum of kernel durations, may exceed the
    span), processes (how many ran work there).
    """
    length = device_pieces["end_ns"] - device_pieces["start_ns"]
    sums = length.groupby([device_pieces["device"], device_pieces["bucket"]]).sum()
    found = horizon[["device", "start_ns"]].copy()
    found["span_ns"] = horizon["end_ns"] - horizon["start_ns"]
    for code, bucket in enumerate(BUCKETS):
        found[f"{bucket}_ns"] = [int(sums.get((d, code), 0)) for d in found["device"]]
    found["kernel_work_ns"] = _kernel_work(ops, horizon)
    users = ops.groupby("device")["process"].nunique()
    found["processes"] = [int(users.get(d, 0)) for d in found["device"]]
    return found


def _kernel_work(ops: pd.DataFrame, horizon: pd.DataFrame) -> list[int]:
    kernels = ops[ops["kind"] == KERNEL]
    work = []
    for row in horizon.itertuples(index=False):
        mine = kernels[kernels["device"] == row.device]
        inside = np.minimum(mine["end_ns"], row.end_ns) - np.maximum(mine["start_ns"], row.start_ns)
        work.append(int(inside.clip(lower=0).sum()))
    return work
