"""Steps that the program's own ranges mark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, runs
from nsysdoctor.arrays.order import narrowed
from nsysdoctor.arrays.period import MIN_COVER_RATIO
from nsysdoctor.arrays.tandem import MIN_REPEATS
from nsysdoctor.tables.host.ranges import depth_of
from nsysdoctor.tables.steps.marks import Marks, Submitted, Work

_STEP = re.compile(
    r"(?i)(^|[^a-z])(step|iter|iteration|batch|epoch|frame|train|token|decode|generate|tick|loop)"
)
_PART = re.compile(
    r"(?i)(^|[^a-z])(layer|block|module|forward|backward|attn|attention|mlp|head|optimizer|"
    r"optim|loss|aten::|autograd|nccl|cublas|cudnn|memcpy|zero_grad|data|load|fetch)"
)
_LIBRARY = frozenset(
    {"NCCL", "cuBLAS", "cuDNN", "TSL", "TensorRT", "MPI", "CCCL", "cuSPARSE", "cuFFT", "cuSOLVER",
     "Python"}
)
_DIGITS = re.compile(r"\d+")
_NAMED_COVER_RATIO = 0.1
_BUSY_RATIO, _ALIKE_RATIO, _MOST_ALIKE = 0.8, 0.5, 0.5
"""Most steps launch something, and within half of the usual number of operations."""


def marked_by_ranges(
    ranges: pd.DataFrame | None,
    range_names: pd.DataFrame | None,
    threads: pd.DataFrame | None,
    work: Work,
    after_ns: int,
) -> Marks | None:
    """Returns the best group of ranges whose texts differ only in numbers, by name, cover and
    depth, of those that still go on after a time; None without any."""
    if ranges is None or range_names is None or threads is None:
        return None
    folded = [_DIGITS.sub("#", text) for text in range_names["text"].astype(str)]
    labels, code = np.unique(np.array(folded, dtype=object).astype(str), return_inverse=True)
    named = [int(bool(_STEP.search(t))) - int(bool(_PART.search(t))) for t in labels.tolist()]
    best: tuple[tuple[int, int, float], Marks] | None = None
    for rows in _groups(ranges, narrowed(code), np.array(named, dtype=np.int64) >= 0):
        if int((ranges["start_ns"].to_numpy()[rows] >= after_ns).sum()) < MIN_REPEATS:
            continue
        label = int(code[ranges["text"].to_numpy()[rows[0]]])
        process = int(threads["process"].iloc[int(ranges["thread"].to_numpy()[rows[0]])])
        scored = _scored(ranges, rows, str(labels[label]), named[label], process, work)
        if scored is not None and (best is None or scored[0] > best[0]):
            best = scored
    return best[1] if best else None


def _groups(ranges: pd.DataFrame, code: np.ndarray, told: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each label and thread with enough ranges, labels in order."""
    domains = ranges["domain"].cat
    library = np.isin(domains.categories.to_numpy(dtype=object).astype(str), [*_LIBRARY])
    label = code[ranges["text"].to_numpy()]
    usable = told[label] & ~library[domains.codes.to_numpy()] & ~ranges["open"].to_numpy()
    rows = np.flatnonzero(usable)
    label = label[rows]
    order = np.argsort(label, kind="stable")
    rows, label = rows[order], label[order]
    thread = ranges["thread"].to_numpy()[rows]
    for _, labelled in runs(label):
        for _, own in runs(thread[labelled]):
            if own.stop - own.start >= MIN_REPEATS:
                yield rows[labelled][own]


def _scored(
    ranges: pd.DataFrame, rows: np.ndarray, label: str, named: int, process: int, work: Work
) -> tuple[tuple[int, int, float], Marks] | None:
    """How well one group of ranges marks steps: named so, outermost, cover of the work."""
    start, end = (ranges[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
    if (start[1:] < end[:-1]).any():
        return None
    mine = work.of(process)
    first, last = np.searchsorted(mine.called, start), np.searchsorted(mine.called, end)
    if not _alike(last - first):
        return None
    cover = _work_in(mine, first, last)
    inside = float((end - start).sum()) / max(int(end[-1] - start[0]), 1)
    # Without a telling name, a group must hold most of the work and leave few holes.
    if cover < (_NAMED_COVER_RATIO if named > 0 else MIN_COVER_RATIO):
        return None
    if named == 0 and inside < MIN_COVER_RATIO:
        return None
    depth, thread = int(depth_of(ranges, rows).min()), int(ranges["thread"].to_numpy()[rows[0]])
    marks = Marks(start, end, "nvtx", label, thread, process, f"NVTX ranges {label}")
    return (named, -depth, round(cover, 3)), marks


def _work_in(mine: Submitted, first: Ints, last: Ints) -> float:
    total = np.concatenate(([0.0], np.cumsum(mine.work)))
    return float((total[last] - total[first]).sum()) / max(float(total[-1]), 1.0)


def _alike(count: Ints) -> bool:
    """Whether most ranges launch something, and about as much as the others: what the program
    calls a step agrees with what it runs."""
    busy = count[count > 0]
    if len(busy) < max(MIN_REPEATS, _BUSY_RATIO * len(count)):
        return False
    usual = float(np.median(busy))
    return bool((np.abs(busy - usual) <= _ALIKE_RATIO * usual).mean() >= _MOST_ALIKE)
