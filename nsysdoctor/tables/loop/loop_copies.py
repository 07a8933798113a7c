"""Which copies belong to the loop, and how long they would take from pinned memory here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nsysdoctor.errors import MissingTableError
from nsysdoctor.ingest.cut import LARGE_BYTES, Capture
from nsysdoctor.roofline.profile import DeviceProfile
from nsysdoctor.tables.account.copies import PINNED
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.tables.activity.ops import COPY_NAMES
from nsysdoctor.tables.steps.steps import work_in_window
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request

_SETUP_NS = 2_000
"""What even the smallest copy takes on a copy engine."""

# Achievable rates of a x16 link by compute capability: PCIe 3 before 8.0, 4 for 8.x, 5 from 9.0.
# Host links that are no PCIe (GH200, GB10) are faster; measured copies say so.
_LINK_BYTES_PER_S = ((9, 52e9), (8, 25e9), (0, 12e9))


@table
def loop_copies(
    copies: pd.DataFrame, window: pd.DataFrame, submissions: pd.DataFrame | None = None
) -> np.ndarray:
    """Returns for each copy whether it belongs to the steps that savings refer to, see
    `work_in_window`.

    A copy without a recorded call counts by the device's clock. Without steps, the copies of a
    process before its first kernel and after its last one are start-up and shutdown. They happen
    once, and page-locking memory for them would cost more than it saves.
    """
    start, called = copies["start_ns"].to_numpy(), copies["called_ns"].to_numpy()
    row = window.iloc[0]
    beside = (start >= row["start_ns"]) & (start < row["end_ns"])
    inside = np.where(copies["api"] >= 0, work_in_window(start, called, window), beside)
    if submissions is None or row["basis"] != "all":
        return inside
    kernel = submissions["kind"].to_numpy() == KERNEL
    kernels = submissions["called_ns"][kernel].groupby(submissions["process"].to_numpy()[kernel])
    first = copies["process"].map(kernels.min()).fillna(np.iinfo(np.int64).min).to_numpy()
    last = copies["process"].map(kernels.max()).fillna(np.iinfo(np.int64).max).to_numpy()
    return np.asarray(inside & (called >= first) & (called <= last), dtype=bool)


def require_kinds(copies: pd.DataFrame) -> None:
    """Raises MissingTableError when the export does not distinguish pageable from pinned memory."""
    if len(copies) and (copies["src_kind"] < 0).all():
        raise MissingTableError(
            "the export does not record the memory kinds of copies", "export with a newer nsys"
        )


def same_keys(frame: pd.DataFrame, keys: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Returns for each row of `frame` the row of `keys` with the same values in `names`, -1 for
    none."""
    known = keys[names].reset_index(drop=True).reset_index(names="row")
    return np.asarray(frame[names].merge(known, "left", names)["row"].fillna(-1), dtype=np.int64)


@table
def pinned_rates(
    copies: pd.DataFrame,
    devices: pd.DataFrame,
    capture: Capture | None,
    places: pd.DataFrame,
    request: Request | None = None,
) -> pd.DataFrame:
    """Returns the rate of large pinned copies of the whole capture per device and direction.

    Columns: device, direction (HtoD, DtoH), bytes_per_s, slow_bytes_per_s, fast_bytes_per_s,
    measured (bool: from at least three pinned copies of a megabyte or more in this trace, or from
    the request's profile of this model; else from the link that GPUs of this generation have).
    """
    profile = request.profile if request is not None else None
    copies = copies if capture is None else _copies_of(capture, places)
    rows = [
        _rate(copies, device, direction, profile)
        for device in devices.to_dict("records")
        for direction in ("HtoD", "DtoH")
    ]
    names = ("device", "direction", "bytes_per_s", "slow_bytes_per_s", "fast_bytes_per_s",
             "measured")  # fmt: skip
    return pd.DataFrame(rows, columns=list(names))


def _copies_of(capture: Capture, places: pd.DataFrame) -> pd.DataFrame:
    """The large pinned copies of a whole capture, with the columns that rates need."""
    found = capture.copies
    if not found["global_pid"].any() and len(places):
        found = found.assign(global_pid=places["global_pid"].iloc[0])
    length = (found["end_ns"] - found["start_ns"]).clip(lower=1)
    found = found.assign(
        direction=found["copy_kind"].map(COPY_NAMES),
        rate_bytes_per_s=found["bytes"] * 1e9 / length,
        src_kind=PINNED,
        dst_kind=PINNED,
        pageable=False,
    )
    return found.merge(places, "left", ["global_pid", "ordinal"])


def _rate(
    copies: pd.DataFrame,
    about: dict[str, Any],
    direction: str,
    profile: DeviceProfile | None,
) -> tuple[int, str, float, float, float, bool]:
    device, major = int(about["device"]), int(about["compute_major"])
    large = copies[(copies["device"] == device) & (copies["direction"] == direction)]
    large = large[(large["bytes"] >= LARGE_BYTES) & ~large["pageable"]]
    pinned = large[(large["src_kind"] == PINNED) | (large["dst_kind"] == PINNED)]
    if len(pinned) >= 3:
        slow, middle, fast = np.percentile(pinned["rate_bytes_per_s"], (25, 50, 75))
        return device, direction, float(middle), float(slow), float(fast), True
    if profile is not None and profile.is_of(str(about["name"])):
        measured = profile.pinned_rate(direction)
        if measured is not None:
            return device, direction, measured.median, measured.low, measured.high, True
    link = link_bytes_per_s(major)
    return device, direction, link, link / 2, link * 1.2, False


def link_bytes_per_s(compute_major: int) -> float:
    """Returns the rate of a x16 link of the generation that GPUs of a compute capability have."""
    return next(rate for least, rate in _LINK_BYTES_PER_S if max(compute_major, 0) >= least)


def pinned_ns(copies: pd.DataFrame, rates: pd.DataFrame, column: str = "bytes_per_s") -> np.ndarray:
    """Returns how long each copy would take at the pinned rate of its device and direction, at most
    as long as it took, ns."""
    took = (copies["end_ns"] - copies["start_ns"]).to_numpy()
    return np.asarray(np.minimum(took, moved_ns(copies, rates, column)), dtype=np.int64)


def moved_ns(copies: pd.DataFrame, rates: pd.DataFrame, column: str = "bytes_per_s") -> np.ndarray:
    """Returns how long moving the bytes takes at the pinned rate of their device and direction,
    ns."""
    row = same_keys(copies, rates, ["device", "direction"])
    rate = np.where(row >= 0, rates[column].to_numpy()[row], np.inf)
    return np.asarray(_SETUP_NS + copies["bytes"].to_numpy() * 1e9 / rate, dtype=np.int64)
