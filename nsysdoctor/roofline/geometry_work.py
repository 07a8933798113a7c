"""Bytes that kernels move, estimated from their names and launch geometry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.roofline.launch_geometry import MULTI_TENSOR_CHUNK, Layout, Span, layout_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SUSTAINED_RATIO = 0.96
"""No DRAM sustains more of its peak: of several readings of a launch, one above is wrong."""
_CACHED_RATIO = 2.0
_TELLING_BLOCKS = 64
_UNCAPPED_BLOCKS_PER_SM = 4
_NEW_PER_THREAD, _OLD_PER_THREAD = 8, 4


def launch_traffic(
    launches: pd.DataFrame,
    full_names: Sequence[str],
    peak_bytes_per_s: float | None = None,
    sm_count: int | None = None,
) -> pd.DataFrame:
    """Returns the bytes that launches move to and from memory, estimated from their geometry.

    `launches` has a row per distinct name (code into `full_names`), blocks and threads, with
    median_ns and total_ns of its kernels. Columns of the result, on the same index: bytes,
    bytes_low, bytes_high (floats, NaN where no estimate exists). The bytes of a single kernel are
    at most `limit_bytes` of its own time.

    The estimate is a range because inputs may be broadcast, cast or fill only half of a block. Of
    several possible readings the largest counts that stays below peak bandwidth at the launch's
    median duration; if none does, there is no estimate. Bytes that a cache delivered are not
    included.
    """
    layouts = {int(code): layout_of(full_names[code]) for code in np.unique(launches["name"])}
    estimate = _estimates(launches, layouts, peak_bytes_per_s, sm_count)
    return pd.DataFrame(estimate, launches.index, ["bytes", "bytes_low", "bytes_high"])


def limit_bytes(duration_ns: npt.ArrayLike, peak_bytes_per_s: float | Floats | None) -> Floats:
    """Returns the bytes that memory can deliver in a time; infinite where its speed is unknown
    (None or NaN)."""
    peak = np.nan if peak_bytes_per_s is None else peak_bytes_per_s
    limit = np.asarray(duration_ns, dtype=np.float64) * peak / 1e9
    return np.asarray(np.where(np.isnan(limit), np.inf, limit), dtype=np.float64)


def _estimates(
    launches: pd.DataFrame,
    layouts: dict[int, Layout | None],
    peak_bytes_per_s: float | None,
    sm_count: int | None,
) -> Floats:
    """Likely, low and high bytes per launch, NaN where unknown; shape (launches, 3)."""
    per_thread = _release_per_thread(launches, layouts, peak_bytes_per_s)
    result = np.full((len(launches), 3), np.nan)
    limits = limit_bytes(launches["median_ns"], peak_bytes_per_s)
    for name, rows in launches.groupby("name", sort=True).indices.items():
        layout = layouts[int(str(name))]
        if layout is None:
            continue
        blocks, threads = (launches[c].to_numpy()[rows] for c in ("blocks", "threads"))
        slots = [_slots(layout, blocks, threads, width) for width in per_thread]
        known = (blocks > 0) & (threads > 0) & ~_capped(layout, blocks, sm_count)
        result[rows[known]] = _readings(layout, slots, limits[rows])[known]
    return result


def _slots(layout: Layout, blocks: Ints, threads: Ints, release: int) -> tuple[Ints, Ints]:
    """The smallest and the largest number of elements that a launch may cover."""
    if layout.span is Span.CHUNKS:
        return blocks, blocks * MULTI_TENSOR_CHUNK
    block = threads * (layout.per_thread or release)
    if layout.span is Span.HALF:
        return np.maximum(blocks * block // 2, 1), blocks * block
    return (blocks - 1) * block + 1, blocks * block


def _capped(layout: Layout, blocks: Ints, sm_count: int | None) -> npt.NDArray[np.bool_]:
    """Whether a grid may have been limited to the number of blocks that fit on the device at
    once."""
    limit = _UNCAPPED_BLOCKS_PER_SM * (sm_count or 0)
    return (blocks >= limit) & (layout.span is Span.UNCAPPED)


def _readings(layout: Layout, slots: Sequence[tuple[Ints, Ints]], limits: Floats) -> Floats:
    """Likely, low and high bytes of launches that can move `limits` bytes at most.

    Where even the smallest reading exceeds the limit, a cache delivered a part, and the figure is
    cut to the limit. If the reading is far above the limit, it must be wrong, and there is no
    figure.
    """
    widths = layout.bytes_per_element
    readings = np.array(
        [most * width for _, most in slots for width in widths[layout.likely :]], dtype=np.float64
    )
    fits = readings <= limits * (1 if len(readings) == 1 else SUSTAINED_RATIO)
    largest = readings[fits.argmax(axis=0), np.arange(len(limits))]
    cached = (readings.min(axis=0) <= limits * _CACHED_RATIO) & (layout.span is Span.FULL)
    likely = np.where(fits.any(axis=0), largest, np.where(cached, readings.min(axis=0), np.nan))
    likely = np.minimum(likely, limits)
    low = np.min([least * widths[-1] for least, _ in slots], axis=0)
    high = np.minimum(np.max([most * widths[0] for _, most in slots], axis=0), limits)
    return np.stack([likely, np.minimum(low, likely), np.maximum(high, likely)], axis=1)


def _release_per_thread(
    launches: pd.DataFrame, layouts: dict[int, Layout | None], peak_bytes_per_s: float | None
) -> tuple[int, ...]:
    """Elements per thread of vectorised kernels: one figure, or both possible ones, the likelier
    first.

    Releases of PyTorch differ, and one build runs in a trace. Vector loads of 8 exist only in the
    newer scheme, loads of 4 for 8-byte results only in the older one. Otherwise the scheme wins
    that explains more kernel time: by sizes that also occur in kernels of certain size, and by
    possible rates.
    """
    known = [layout for layout in layouts.values() if layout is not None and layout.vector]
    if any(layout.vector == 4 and layout.out_bytes == 8 for layout in known):
        return (_OLD_PER_THREAD,)
    if any(layout.vector == 8 for layout in known):
        return (_NEW_PER_THREAD,)
    old, new = (
        _support(launches, layouts, width, peak_bytes_per_s)
        for width in (_OLD_PER_THREAD, _NEW_PER_THREAD)
    )
    if old != new:
        return (_OLD_PER_THREAD,) if old > new else (_NEW_PER_THREAD,)
    newer = any(layout.vector == 2 and layout.out_bytes == 8 for layout in known)
    return (_NEW_PER_THREAD, _OLD_PER_THREAD) if newer else (_OLD_PER_THREAD, _NEW_PER_THREAD)


def _support(
    launches: pd.DataFrame,
    layouts: dict[int, Layout | None],
    width: int,
    peak_bytes_per_s: float | None,
) -> float:
    """The kernel time that a scheme explains, less the time of kernels that it makes impossible,
    ns."""
    exact = {
        name: layout for name, layout in layouts.items() if layout and layout.span is Span.FULL
    }
    seen = launches[launches["name"].isin(exact) & (launches["blocks"] >= _TELLING_BLOCKS)]
    rows = [exact[name] for name in seen["name"]]
    per_thread = np.array([row.per_thread or width for row in rows], dtype=np.int64)
    block = seen["threads"].to_numpy() * per_thread
    most = seen["blocks"].to_numpy() * block
    least = most - block + 1
    open_size = np.array([row.per_thread == 0 for row in rows], dtype=bool)
    moved = most * np.array([row.bytes_per_element[0] for row in rows], dtype=np.float64)
    limits = limit_bytes(seen["median_ns"], peak_bytes_per_s)
    total_ns = seen["total_ns"].to_numpy(dtype=np.float64)
    same = _meets(least[open_size], most[open_size], least[~open_size], most[~open_size])
    impossible = total_ns[open_size & (moved > limits)].sum()
    return float(total_ns[open_size][same].sum() - 2 * impossible)


def _meets(low: Ints, high: Ints, lows: Ints, highs: Ints) -> npt.NDArray[np.bool_]:
    """Which of the intervals [low, high] overlap any of [lows, highs]."""
    order = np.argsort(lows, kind="stable")
    reach = np.concatenate([[-1], np.maximum.accumulate(highs[order])])
    result: npt.NDArray[np.bool_] = reach[np.searchsorted(lows[order], high, side="right")] >= low
    return result
