"""Which annotated operator and module each operation was launched in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import distinct_rows
from nsysdoctor.arrays.intervals import Ints, rows_of, runs
from nsysdoctor.arrays.order import Codes
from nsysdoctor.arrays.sweep import open_at
from nsysdoctor.roofline.bound import BOUNDS
from nsysdoctor.roofline.operator_text import BACKWARD, FUNCTION, MODULE, Annotation, read_text
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

# Operators that only prepare data for the operator around them.
_PREPARING = frozenset({"aten::index_select"})


class Annotated(NamedTuple):
    """What ranges stand for.

    `annotations` lists the distinct operators, modules and functions that ranges name. Per row of
    `range_names`, `annotation_of` is the place in that list and `seq_of` the sequence number, -1
    where there is none. `text` has the row of `range_names` of each row of `ranges`.
    """

    annotations: list[Annotation]
    annotation_of: Codes
    seq_of: Ints
    text: Codes

    def texts(self, wanted: Callable[[Annotation], bool]) -> np.ndarray:
        """Returns which rows of `range_names` stand for an annotation that meets a condition."""
        known = np.array([*(wanted(one) for one in self.annotations), False], dtype=bool)
        return known[self.annotation_of]

    def annotations_in(self, marks: pd.DataFrame) -> pd.DataFrame:
        """Returns the places in `annotations` for rows of `ranges`, -1 for none."""
        return pd.DataFrame({name: self._place(marks[name].to_numpy()) for name in marks})

    def _place(self, row: Codes) -> Codes:
        if not len(self.text):
            return np.full(len(row), -1, dtype=np.int32)
        return np.where(row >= 0, self.annotation_of[self.text[np.maximum(row, 0)]], -1)


@table
def annotated(ranges: pd.DataFrame, range_names: pd.DataFrame) -> Annotated:
    """Returns which ranges name an operator, a node of autograd, a module or a function."""
    places: dict[Annotation, int] = {}
    codes = np.full(len(range_names), -1, dtype=np.int32)
    numbers = np.full(len(range_names), -1, dtype=np.int64)
    for row, text in enumerate(range_names["text"]):
        one, numbers[row] = read_text(str(text))
        if one.kind and one.name not in _PREPARING:
            codes[row] = places.setdefault(one, len(places))
    return Annotated(list(places), codes, numbers, ranges["text"].to_numpy())


@table
def launch_marks(
    ops: pd.DataFrame,
    launches: pd.DataFrame,
    api: pd.DataFrame,
    ranges: pd.DataFrame,
    annotated: Annotated,
    threads: pd.DataFrame,
) -> pd.DataFrame:
    """Returns what every operation was launched in, in the order of `ops`.

    Columns: operator (row of `ranges`, the innermost operator on the launching thread, or a module
    of known kind with none inside), node (the innermost node of autograd), module (the innermost
    module; a backward node counts for the module that its forward operator ran in), forward (that
    operator); -1 for none. Forward and backward meet by the sequence number, whatever threads
    they ran on.
    """
    thread, time = api["thread"].to_numpy(), api["start_ns"].to_numpy()
    operators = annotated.texts(lambda one: one.as_operator() is not None)
    nodes = annotated.texts(lambda one: one.kind == BACKWARD)
    modules = annotated.texts(lambda one: one.kind in (MODULE, FUNCTION))
    call = launches["api"].to_numpy()
    operator, node, own = (
        _at(ranges, texts, thread, time)[call] for texts in (operators, nodes, modules)
    )
    process = threads["process"].to_numpy()
    forward = _forward(_Numbered(ranges, annotated, process), operators, nodes, node)
    marks = {
        "operator": operator,
        "node": node,
        "module": np.where(own >= 0, own, _around(ranges, modules, forward)),
        "forward": forward,
    }
    return pd.DataFrame({name: _spread(found, launches, len(ops)) for name, found in marks.items()})


def _around(ranges: pd.DataFrame, modules: np.ndarray, these: Codes) -> Codes:
    """The innermost module in which each of some ranges began, -1 for none."""
    found = np.full(len(these), -1, dtype=np.int32)
    unique, place = np.unique(these[these >= 0], return_inverse=True)
    thread, time = (ranges[c].to_numpy()[unique] for c in ("thread", "start_ns"))
    found[these >= 0] = _at(ranges, modules, thread, time)[place]
    return found


def _spread(found: Codes, launches: pd.DataFrame, count: int) -> Codes:
    column = np.full(count, -1, dtype=np.int32)
    column[launches["op"].to_numpy()] = found
    return column


def _at(ranges: pd.DataFrame, texts: np.ndarray, thread: Codes, time: Ints) -> Codes:
    """The row of the innermost pushed range with some texts at each time, -1 outside all.

    Times are sorted by thread and time, as ranges are.
    """
    found = np.full(len(time), -1, dtype=np.int32)
    if not texts.any():
        return found
    range_thread, pushed = ranges["thread"].to_numpy(), ranges["pushed"].to_numpy()
    text, start, end = (ranges[c].to_numpy() for c in ("text", "start_ns", "end_ns"))
    for code, rows in runs(thread):
        own = rows_of(code, range_thread)
        place = open_at(texts[text[own]] & pushed[own], start[own], end[own], time[rows])
        found[rows] = np.where(place >= 0, place + np.int32(own.start), -1)
    return found


class _Numbered(NamedTuple):
    """Ranges with their sequence numbers, and the process of each thread."""

    ranges: pd.DataFrame
    annotated: Annotated
    process: Codes

    def rows(self, these: Ints) -> pd.DataFrame:
        """Returns process, seq and start_ns of some rows of `ranges`, by start."""
        thread, text, start = (self.ranges[c].to_numpy()[these] for c in _OF_NUMBERED)
        found = pd.DataFrame({"row": these, "process": self.process[thread], "start_ns": start})
        found["seq"] = self.annotated.seq_of[text]
        return found.sort_values(["start_ns", "row"], kind="stable", ignore_index=True)


_OF_NUMBERED = ("thread", "text", "start_ns")


def _forward(
    numbered: _Numbered, operators: np.ndarray, nodes: np.ndarray, node: Codes
) -> Codes:
    """The forward operator of each node: the last one with its number that began before the node.

    Operators that make no node of their own carry the number of the next node. Of several operators
    with one number, the last one therefore made the node. Operators inside a node do not count.
    """
    found = np.full(len(node), -1, dtype=np.int32)
    used, place = np.unique(node[node >= 0], return_inverse=True)
    if not len(used):
        return found
    ranges = numbered.ranges
    counted = (operators & (numbered.annotated.seq_of >= 0))[ranges["text"].to_numpy()]
    known = np.flatnonzero(counted & ranges["pushed"].to_numpy())
    thread, time = (ranges[c].to_numpy()[known] for c in ("thread", "start_ns"))
    known = known[_at(ranges, nodes, thread, time) < 0]
    if not len(known):
        return found
    candidates = numbered.rows(known).rename(columns={"row": "forward"})
    paired = pd.merge_asof(
        numbered.rows(used), candidates, on="start_ns", by=["process", "seq"]
    ).sort_values("row")
    found[node >= 0] = paired["forward"].fillna(-1).to_numpy(dtype=np.int32)[place]
    return found


_NOTHING = Annotation("", "")


@table
def operators(
    kernels: Kernels, launch_marks: pd.DataFrame, annotated: Annotated
) -> pd.DataFrame:
    """Returns what the kernels of each operator did, most time first.

    Columns: device, module, operator, phase (forward, backward), shapes, count (kernels),
    duration_ns, flops, bytes (floats, NaN where unknown for any of its kernels), intensity (flops
    per byte), rate_flops_per_s, rate_bytes_per_s, bound (that of most of its time). Kernels
    outside every annotated range are left out.
    """
    marks = launch_marks[["operator", "node", "module"]].iloc[kernels["op"]]
    inside = (marks >= 0).any(axis=1).to_numpy()
    marked, mine = annotated.annotations_in(marks[inside]), kernels.at(inside)
    # The same annotations recur from step to step: each is put into words once.
    code, first = distinct_rows([mine["device"], *(marked[name].to_numpy() for name in marked)])
    words = _words(annotated, marked.iloc[first]).assign(device=mine["device"][first])
    by = ["device", "module", "operator", "phase", "shapes"]
    number = words.groupby(by, sort=True).ngroup().to_numpy()
    frame = mine.frame("duration_ns", "flops", "bytes", "bound").assign(key=number[code])
    found = words[by].drop_duplicates().sort_values(by, ignore_index=True).join(_summed(frame))
    return found.sort_values(
        ["duration_ns", *by], ascending=[False] + [True] * len(by), kind="stable",
        ignore_index=True,
    )  # fmt: skip


def _words(annotated: Annotated, marked: pd.DataFrame) -> pd.DataFrame:
    """Module, operator, phase and shapes, in words, for places in `annotated.annotations`."""
    kinds = [*annotated.annotations, _NOTHING]
    works = [one.as_operator() or one for one in kinds]
    rows = []
    for operator, node, module in marked[["operator", "node", "module"]].itertuples(index=False):
        work, place = works[operator], kinds[module]
        phase = "backward" if node >= 0 else "forward"
        shapes = " ".join("x".join(map(str, sizes)) for sizes in work.sizes if sizes)
        rows.append((place.module or place.name, work.name or kinds[node].name, phase, shapes))
    return pd.DataFrame(rows, columns=["module", "operator", "phase", "shapes"])


def _summed(frame: pd.DataFrame) -> pd.DataFrame:
    """The sums over the kernels of each key, and the columns that follow from the sums."""
    grouped = frame.groupby("key", sort=True)
    found = pd.DataFrame({"count": grouped.size(), "duration_ns": grouped["duration_ns"].sum()})
    for column in ("flops", "bytes"):
        known = grouped[column].count()
        found[column] = grouped[column].sum().where((known > 0) & (known == found["count"]))
    seconds = found["duration_ns"].where(found["duration_ns"] > 0) / 1e9
    found["intensity"] = found["flops"] / found["bytes"].where(found["bytes"] > 0)
    found["rate_flops_per_s"] = found["flops"] / seconds
    found["rate_bytes_per_s"] = found["bytes"] / seconds
    return found.assign(bound=_most_time(frame))


def _most_time(frame: pd.DataFrame) -> pd.Series[str]:
    """The bound that most of each key's time has; of equal ones the first in BOUNDS."""
    spent = frame.groupby(["key", "bound"], sort=True)["duration_ns"].sum().reset_index()
    ranked = spent.sort_values(["key", "duration_ns", "bound"], ascending=[True, False, True])
    first = ranked.drop_duplicates("key").set_index("key")["bound"]
    return first.map(lambda one: BOUNDS[one])
