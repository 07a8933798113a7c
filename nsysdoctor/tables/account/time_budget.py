"""How each device spent its span: every nanosecond in exactly one bucket."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Spans, partition, runs, sums
from nsysdoctor.errors import EmptyTraceError, UsageError
from nsysdoctor.ingest.cut import Capture
from nsysdoctor.tables.activity.gpu_rows import GRAPH, KERNEL
from nsysdoctor.tables.activity.ops import COMMUNICATION
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request
from nsysdoctor.units import clock_text

BUCKETS = ("compute", "exposed_communication", "exposed_copy", "idle")
"""The values of `bucket`; where several apply at once the earlier one counts."""


@table
def horizon(
    ops: pd.DataFrame,
    devices: pd.DataFrame,
    request: Request,
    steps: pd.DataFrame,
    capture: Capture | None,
) -> pd.DataFrame:
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
    asked = _asked(request, steps)
    if asked is None:
        found = ops.groupby("device", as_index=False, sort=True).agg(
            start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
        )
    else:
        _require_overlap(asked, *ran_between(ops, capture))
        found = devices[["device"]].assign(start_ns=asked[0], end_ns=asked[1])
    return found if request.device is None else _only(found, request.device)


def _only(found: pd.DataFrame, device: int) -> pd.DataFrame:
    mine = found[found["device"] == device].reset_index(drop=True)
    if not len(mine):
        ran = ", ".join(str(device) for device in found["device"])
        raise UsageError(f"device {device} ran nothing", f"devices that did: {ran}")
    return mine


def ran_between(ops: pd.DataFrame, capture: Capture | None) -> tuple[int, int]:
    """Returns from when to when the devices ran, whatever of it was read."""
    if capture is not None:
        return capture.first_ns, capture.last_ns
    return int(ops["start_ns"].min()), int(ops["end_ns"].max())


def _require_overlap(asked: tuple[int, int], first_ns: int, last_ns: int) -> None:
    """Where nothing was captured a device is not idle; nothing is known of it."""
    if asked[0] < last_ns and first_ns < asked[1]:
        return
    raise UsageError(
        f"nothing was captured in the window {clock_text(asked[0])}:{clock_text(asked[1])}",
        f"the GPU ran in {clock_text(first_ns)}:{clock_text(last_ns)}; name a part of that",
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
    kind, device = ops["kind"].to_numpy(), ops["device"].to_numpy()
    collective = (op_category == COMMUNICATION).to_numpy()
    compute = ((kind == KERNEL) & ~collective) | (kind == GRAPH)
    layer = np.where(compute, 0, np.where(collective, 1, 2)).astype(np.int8)
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    found = []
    for row in horizon.itertuples(index=False):
        here = np.where(device == row.device, layer, -1)
        layers = [np.flatnonzero(here == code) for code in range(len(BUCKETS) - 1)]
        shares = partition(
            [Spans(start[mine], end[mine]) for mine in layers], int(row.start_ns), int(row.end_ns)
        )
        found.append(_joined(int(row.device), shares))
    return pd.DataFrame(
        {name: np.concatenate([part[name] for part in found]) for name in found[0]}, copy=False
    )


def _joined(device: int, shares: list[Spans]) -> dict[str, np.ndarray]:
    """The shares of the buckets of one device, by start."""
    start = np.concatenate([share.start for share in shares])
    order = np.argsort(start, kind="stable")
    count = [len(share.start) for share in shares]
    # Numbers of devices may be anything.
    width = np.int16 if 0 <= device < 1 << 15 else np.int64
    return {
        "device": np.full(len(order), device, dtype=width),
        "start_ns": start[order],
        "end_ns": np.concatenate([share.end for share in shares])[order],
        "bucket": np.repeat(np.arange(len(shares), dtype=np.int8), count)[order],
    }


@table
def time_budget(
    ops: pd.DataFrame, device_pieces: pd.DataFrame, horizon: pd.DataFrame
) -> pd.DataFrame:
    """Returns one row per device.

    Columns: device, start_ns, span_ns, compute_ns, exposed_communication_ns, exposed_copy_ns,
    idle_ns (they sum to the span), kernel_work_ns (plain sum of kernel durations, may exceed the
    span), processes (how many ran work there).
    """
    found = horizon[["device", "start_ns"]].copy()
    found["span_ns"] = horizon["end_ns"] - horizon["start_ns"]
    length = (device_pieces["end_ns"] - device_pieces["start_ns"]).to_numpy()
    bucket = device_pieces["bucket"].to_numpy()
    spent = {
        device: sums(bucket[rows], length[rows], len(BUCKETS))
        for device, rows in runs(device_pieces["device"].to_numpy())
    }
    for code, name in enumerate(BUCKETS):
        found[f"{name}_ns"] = [int(spent[d][code]) if d in spent else 0 for d in found["device"]]
    worked = [_worked(ops, row.device, row.start_ns, row.end_ns) for row in
              horizon.itertuples(index=False)]  # fmt: skip
    found["kernel_work_ns"] = [work for work, _ in worked]
    found["processes"] = [processes for _, processes in worked]
    return found


def _worked(ops: pd.DataFrame, device: int, low: int, high: int) -> tuple[int, int]:
    """How long the kernels of a device take within two times, and how many processes ran work
    there then."""
    mine = np.flatnonzero(ops["device"].to_numpy() == device)
    start, end = ops["start_ns"].to_numpy()[mine], ops["end_ns"].to_numpy()[mine]
    mine = mine[(end >= low) & (start <= high)]
    processes = len(np.unique(ops["process"].to_numpy()[mine]))
    kernels = mine[ops["kind"].to_numpy()[mine] == KERNEL]
    start, end = ops["start_ns"].to_numpy()[kernels], ops["end_ns"].to_numpy()[kernels]
    work = np.minimum(end, high) - np.maximum(start, low)
    return int(np.maximum(work, 0).sum()), processes
