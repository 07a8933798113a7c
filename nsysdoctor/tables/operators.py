"""Which annotated operator and module each operation was launched in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.annotation import BACKWARD, FUNCTION, MODULE, Annotation, read_text
from nsysdoctor.bound import BOUNDS
from nsysdoctor.intervals import Ints, innermost_at, spans
from nsysdoctor.recipe import table

# Operators that only prepare what the operator around them is about.
_PREPARING = frozenset({"aten::index_select"})


class Annotated(NamedTuple):
    """The ranges that say what they stand for, and the distinct things they say.

    `rows` has range (row of `ranges`), thread, process, start_ns, end_ns, said (place in `said`),
    seq (-1 without).
    """

    rows: pd.DataFrame
    said: list[Annotation]

    def of_kind(self, *kinds: str) -> pd.DataFrame:
        """Returns the rows of some kinds; the index is that of `rows`."""
        return self._where([one.kind in kinds for one in self.said])

    def operators(self) -> pd.DataFrame:
        """Returns the rows that stand for an operator, modules of known kind too."""
        return self._where([one.as_operator() is not None for one in self.said])

    def said_in(self, marks: pd.DataFrame) -> pd.DataFrame:
        """Returns for places in `rows` the places in `said`, -1 for none."""
        code = np.append(self.rows["said"].to_numpy(), -1)
        return pd.DataFrame({name: code[marks[name].to_numpy()] for name in marks})

    def _where(self, wanted: list[bool]) -> pd.DataFrame:
        mine = np.array(wanted, dtype=bool)
        return self.rows[mine[self.rows["said"].to_numpy()]] if len(self.rows) else self.rows


@table
def annotated(ranges: pd.DataFrame, range_names: pd.DataFrame) -> Annotated:
    """Returns the push/pop ranges whose texts name an operator, a node of autograd, a module or a
    function."""
    said: dict[Annotation, int] = {}
    codes = np.full(len(range_names), -1, dtype=np.int64)
    numbers = np.full(len(range_names), -1, dtype=np.int64)
    for row, text in enumerate(range_names["text"]):
        one, numbers[row] = read_text(str(text))
        if one.kind and one.name not in _PREPARING:
            codes[row] = said.setdefault(one, len(said))
    text = ranges["text"].to_numpy()
    mine = np.flatnonzero(ranges["pushed"].to_numpy() & (codes[text] >= 0))
    rows = ranges.iloc[mine][["thread", "process", "start_ns", "end_ns"]].reset_index(drop=True)
    rows = rows.assign(range=mine, said=codes[text[mine]], seq=numbers[text[mine]])
    return Annotated(rows, list(said))


@table
def launch_marks(
    ops: pd.DataFrame, launches: pd.DataFrame, api: pd.DataFrame, annotated: Annotated
) -> pd.DataFrame:
    """Returns what every operation was launched in, in the order of `ops`.

    Columns: operator (row of `annotated.rows`, the innermost operator on the launching thread, or
    a module of known kind with none inside),
    node (the innermost node of autograd), module (the innermost module; a backward node counts
    for the module that its forward operator ran in), forward (that operator); -1 for none.
    Forward and backward meet by the sequence number, whatever threads they ran on.
    """
    called = api.iloc[launches["api"].to_numpy()]
    thread, time = called["thread"].to_numpy(), called["start_ns"].to_numpy()
    operators, modules = annotated.operators(), annotated.of_kind(MODULE, FUNCTION)
    nodes = annotated.of_kind(BACKWARD)
    node = _at(nodes, thread, time)
    forward = _forward(annotated.rows, operators, nodes, node)
    own = _at(modules, thread, time)
    marks = {
        "operator": _at(operators, thread, time),
        "node": node,
        "module": np.where(own >= 0, own, _around(modules, annotated.rows, forward)),
        "forward": forward,
    }
    return pd.DataFrame({name: _spread(found, launches, len(ops)) for name, found in marks.items()})


def _around(modules: pd.DataFrame, rows: pd.DataFrame, these: Ints) -> Ints:
    """The innermost module that each of some ranges began in, -1 for none."""
    found = np.full(len(these), -1, dtype=np.int64)
    has = these >= 0
    begun = rows.loc[these[has]]
    found[has] = _at(modules, begun["thread"].to_numpy(), begun["start_ns"].to_numpy())
    return found


def _spread(found: Ints, launches: pd.DataFrame, count: int) -> Ints:
    column = np.full(count, -1, dtype=np.int64)
    column[launches["op"].to_numpy()] = found
    return column


def _at(rows: pd.DataFrame, thread: Ints, time: Ints) -> Ints:
    """The innermost of some ranges on a thread at each time, by its index, -1 outside all."""
    found = np.full(len(time), -1, dtype=np.int64)
    for code, mine in rows.groupby("thread", sort=True):
        asked = np.flatnonzero(thread == code)
        place = innermost_at(spans(mine["start_ns"], mine["end_ns"]), time[asked])
        found[asked] = np.where(place >= 0, mine.index.to_numpy()[place], -1)
    return found


def _forward(
    rows: pd.DataFrame, operators: pd.DataFrame, nodes: pd.DataFrame, node: Ints
) -> Ints:
    """The forward operator of each node: the last one begun before it with its number.

    Operators that make no node of their own show the number that the next one will take, so of
    several with one number the last made the node. Those that run inside a node do not count.
    """
    found = np.full(len(node), -1, dtype=np.int64)
    used = np.unique(node[node >= 0])
    numbered = operators[operators["seq"].to_numpy() >= 0]
    inside = _at(nodes, numbered["thread"].to_numpy(), numbered["start_ns"].to_numpy())
    numbered = numbered[inside < 0]
    if not len(used) or not len(numbered):
        return found
    asked = rows.loc[used, ["process", "seq", "start_ns"]].assign(node=used)
    known = numbered[["process", "seq", "start_ns"]].assign(forward=numbered.index)
    paired = pd.merge_asof(
        asked.sort_values(["start_ns", "node"]),
        known.sort_values(["start_ns", "forward"]),
        on="start_ns",
        by=["process", "seq"],
    )
    of_node = dict(zip(paired["node"], paired["forward"].fillna(-1).astype("int64"), strict=True))
    has = node >= 0
    found[has] = [of_node[one] for one in node[has].tolist()]
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
