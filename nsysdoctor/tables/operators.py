"""Which annotated operator and module each operation was launched in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.annotation import BACKWARD, FUNCTION, MODULE, Annotation, read_text
from nsysdoctor.bound import BOUNDS
from nsysdoctor.intervals import Ints
from nsysdoctor.nesting import open_at
from nsysdoctor.order import Codes
from nsysdoctor.recipe import table

# Operators that only prepare what the operator around them is about.
_PREPARING = frozenset({"aten::index_select"})


class Annotated(NamedTuple):
    """What ranges stand for: `said` lists the distinct things, `said_of` and `seq_of` give for
    each row of `range_names` the place in it and the sequence number, -1 without; `text` is that
    of `ranges`."""

    said: list[Annotation]
    said_of: Codes
    seq_of: Ints
    text: Codes

    def texts(self, wanted: Callable[[Annotation], bool]) -> np.ndarray:
        """Returns which rows of `range_names` stand for something wanted."""
        known = np.array([*(wanted(one) for one in self.said), False], dtype=bool)
        return known[self.said_of]

    def said_in(self, marks: pd.DataFrame) -> pd.DataFrame:
        """Returns for rows of `ranges` the places in `said`, -1 for none."""
        return pd.DataFrame({name: self._place(marks[name].to_numpy()) for name in marks})

    def _place(self, row: Codes) -> Codes:
        if not len(self.text):
            return np.full(len(row), -1, dtype=np.int32)
        return np.where(row >= 0, self.said_of[self.text[np.maximum(row, 0)]], -1)


@table
def annotated(ranges: pd.DataFrame, range_names: pd.DataFrame) -> Annotated:
    """Returns which ranges name an operator, a node of autograd, a module or a function."""
    said: dict[Annotation, int] = {}
    codes = np.full(len(range_names), -1, dtype=np.int32)
    numbers = np.full(len(range_names), -1, dtype=np.int64)
    for row, text in enumerate(range_names["text"]):
        one, numbers[row] = read_text(str(text))
        if one.kind and one.name not in _PREPARING:
            codes[row] = said.setdefault(one, len(said))
    return Annotated(list(said), codes, numbers, ranges["text"].to_numpy())


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
    """The innermost module that each of some ranges began in, -1 for none."""
    found = np.full(len(these), -1, dtype=np.int32)
    asked, place = np.unique(these[these >= 0], return_inverse=True)
    thread, time = (ranges[c].to_numpy()[asked] for c in ("thread", "start_ns"))
    found[these >= 0] = _at(ranges, modules, thread, time)[place]
    return found


def _spread(found: Codes, launches: pd.DataFrame, count: int) -> Codes:
    column = np.full(count, -1, dtype=np.int32)
    column[launches["op"].to_numpy()] = found
    return column


def _at(ranges: pd.DataFrame, texts: np.ndarray, thread: Codes, time: Ints) -> Codes:
    """The innermost of the pushed ranges with some texts at each time, by row, -1 outside all.

    Times are sorted by thread and time, as ranges are.
    """
    found = np.full(len(time), -1, dtype=np.int32)
    if not texts.any():
        return found
    whose, pushed = ranges["thread"].to_numpy(), ranges["pushed"].to_numpy()
    text, start, end = (ranges[c].to_numpy() for c in ("text", "start_ns", "end_ns"))
    bounds = [0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), len(thread)]
    for low, high in itertools.pairwise(bounds if len(thread) else []):
        first, stop = np.searchsorted(whose, [thread[low], thread[low] + 1])
        mine = slice(first, stop)
        place = open_at(texts[text[mine]] & pushed[mine], start[mine], end[mine], time[low:high])
        found[low:high] = np.where(place >= 0, place + np.int32(first), -1)
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
    """The forward operator of each node: the last one begun before it with its number.

    Operators that make no node of their own show the number that the next one will take, so of
    several with one number the last made the node. Those that run inside a node do not count.
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
    told = numbered.rows(known).rename(columns={"row": "forward"})
    paired = pd.merge_asof(
        numbered.rows(used), told, on="start_ns", by=["process", "seq"]
    ).sort_values("row")
    found[node >= 0] = paired["forward"].fillna(-1).to_numpy(dtype=np.int32)[place]
    return found


_NOTHING = Annotation("", "")


@table
def operators(
    kernels: pd.DataFrame, launch_marks: pd.DataFrame, annotated: Annotated
) -> pd.DataFrame:
    """Returns what the kernels of each operator did, most time first.

    Columns: device, module, operator, phase (forward, backward), shapes, count (kernels),
    duration_ns, flops, bytes (floats, NaN where unknown for any of its kernels), intensity (flops
    per byte), rate_flops_per_s, rate_bytes_per_s, bound (that of most of its time). Kernels
    outside every annotated range are left out.
    """
    marks = launch_marks.iloc[kernels["op"].to_numpy()].reset_index(drop=True)
    marks = marks.assign(place=np.arange(len(marks)))
    inside = marks[(marks[["operator", "node", "module"]] >= 0).any(axis=1)]
    mine = kernels.iloc[inside["place"].to_numpy()].reset_index(drop=True)
    found = pd.DataFrame({"device": mine["device"]})
    said = _said(annotated, inside)
    found["module"] = [module.module or module.name for _, _, module in said]
    found["operator"] = [operator.name or node.name for operator, node, _ in said]
    found["phase"] = np.where(inside["node"].to_numpy() >= 0, "backward", "forward")
    found["shapes"] = [" ".join("x".join(map(str, s)) for s in o.sizes if s) for o, _, _ in said]
    return _summed(found, mine)


def _said(
    annotated: Annotated, marks: pd.DataFrame
) -> list[tuple[Annotation, Annotation, Annotation]]:
    """What the operator, the node and the module of each row say."""
    kinds = [*annotated.said, _NOTHING]
    works = [one.as_operator() or one for one in kinds]
    code = annotated.said_in(marks[["operator", "node", "module"]])
    return [
        (works[operator], kinds[node], kinds[module])
        for operator, node, module in code.itertuples(index=False)
    ]


def _summed(keys: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    by = [*keys.columns]
    frame = pd.concat([keys, kernels[["duration_ns", "flops", "bytes"]]], axis=1)
    grouped = frame.groupby(by, sort=True)
    total = grouped["duration_ns"].sum()
    found = pd.DataFrame({"count": grouped.size(), "duration_ns": total})
    for column in ("flops", "bytes"):
        found[column] = grouped[column].sum(min_count=1).where(grouped[column].count() > 0)
        known = grouped[column].count() == grouped.size()
        found[column] = found[column].where(known)
    seconds = found["duration_ns"].where(found["duration_ns"] > 0) / 1e9
    found["intensity"] = found["flops"] / found["bytes"].where(found["bytes"] > 0)
    found["rate_flops_per_s"] = found["flops"] / seconds
    found["rate_bytes_per_s"] = found["bytes"] / seconds
    found["bound"] = _most_time(frame, kernels, by).reindex(found.index)
    found = found.reset_index()
    return found.sort_values(
        ["duration_ns", *by], ascending=[False] + [True] * len(by), kind="stable",
        ignore_index=True,
    )  # fmt: skip


def _most_time(frame: pd.DataFrame, kernels: pd.DataFrame, by: list[str]) -> pd.Series[str]:
    """The bound that most of each group's time has; of equals the first of BOUNDS."""
    code = np.array([BOUNDS.index(one) for one in kernels["bound"].astype(str)], dtype=np.int64)
    spent = frame.assign(bound=code).groupby([*by, "bound"], sort=True)["duration_ns"].sum()
    ranked = spent.reset_index().sort_values(
        [*by, "duration_ns", "bound"], ascending=[True] * len(by) + [False, True]
    )
    first = ranked.drop_duplicates(by).set_index(by)["bound"]
    return first.map(lambda one: BOUNDS[one])
