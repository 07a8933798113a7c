"""The work of each kernel, computed from the recorded shapes of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsysdoctor.arrays.codes import distinct
from nsysdoctor.roofline.flops import Work
from nsysdoctor.roofline.launch_geometry import ITEMSIZES, operand_sizes
from nsysdoctor.roofline.operator_text import Annotation
from nsysdoctor.roofline.shape_work import (
    COMPARISONS,
    TYPE_BYTES,
    Operand,
    family_of,
    operator_work,
)
from nsysdoctor.tables.kernels.kernel_columns import Kernels

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# the tensor argument of an operator, counted from 0, that always has the same type
_FIXED_BYTES = {
    ("embedding", 1): 8, ("where", 0): 1, ("masked_fill", 1): 1, ("masked_fill_", 1): 1,
    ("native_dropout_backward", 1): 1,
}  # fmt: skip


def shape_work(
    annotation: Annotation, full: str, dtype: str, settings: Mapping[str, object] | None = None
) -> Work | None:
    """Returns the work of a kernel that does all of an operator; None where shapes or types are
    unknown.

    `full` is the kernel's name and `dtype` its type. Where no types were recorded, the name of a
    pointwise kernel lists them, and a matrix kernel has only one. `settings` are those of the
    module in which the operator runs.
    """
    name = annotation.name.removeprefix("aten::")
    shapes = [shape for shape in annotation.sizes if shape]
    if not shapes or family_of(name) is None:
        return None
    sizes = _itemsizes(name, annotation, len(shapes), full, dtype)
    if sizes is None:
        return None
    operands = [Operand(shape, size) for shape, size in zip(shapes, sizes[1:], strict=True)]
    return operator_work(name, operands, sizes[0], {**(settings or {}), **annotation.settings})


def _itemsizes(
    name: str, annotation: Annotation, count: int, full: str, dtype: str
) -> list[int] | None:
    """Bytes per element of the result, then of each tensor argument; None if not all are known."""
    named = _named_sizes(full)
    read = _recorded(annotation)
    if read is None:
        read = _from_name(name, named, count)
    if read is None:
        one = _uniform(named, dtype)
        read = [_FIXED_BYTES.get((name, place), one) for place in range(count)] if one else None
    if read is None or len(read) != count:
        return None
    if named:
        return [named[0], *read]
    free = [size for place, size in enumerate(read) if (name, place) not in _FIXED_BYTES]
    result = 1 if name in COMPARISONS else max(free, default=0)
    return [result, *read] if result else None


def _from_name(name: str, named: tuple[int, ...] | None, count: int) -> list[int] | None:
    """The arguments' item sizes where a kernel's name lists them; for a copy, the first is the
    result."""
    if named is None:
        return None
    listed = named if name == "copy_" else named[1:]
    return list(listed) if len(listed) == count else None


@lru_cache(maxsize=4096)
def _named_sizes(full: str) -> tuple[int, ...] | None:
    return operand_sizes(full)


def _uniform(named: tuple[int, ...] | None, dtype: str) -> int:
    """The only item size that a kernel uses, 0 if it uses several or none is known."""
    if named:
        return named[0] if len(set(named)) == 1 else 0
    return TYPE_BYTES.get(dtype, 0)


def _recorded(annotation: Annotation) -> list[int] | None:
    """The item sizes of the tensor arguments as recorded, None if any is missing."""
    pairs = zip(annotation.sizes, annotation.dtypes, strict=False)
    sizes = [TYPE_BYTES.get(word, ITEMSIZES.get(word, 0)) for shape, word in pairs if shape]
    return sizes if sizes and all(sizes) else None


class KernelWork(NamedTuple):
    """Operations and bytes of every kernel, NaN where unknown."""

    flops: Floats
    bytes: Floats


def measured_work(
    kernels: Kernels,
    full_names: Sequence[str],
    instance: Ints,
    marked: pd.DataFrame,
    annotations: Sequence[Annotation],
) -> KernelWork | None:
    """Returns operations and bytes of each kernel by its operator's shapes; None where no shapes
    were recorded.

    `instance` is the operator's range in which each kernel was launched (-1 none); `marked` has
    operator and module, places in `annotations` (-1 none). The kernels of the operator's own kind
    share its work in proportion to their time. Other kernels beside them (a fill, the sum of a
    split product) get none.
    """
    sized = np.array([bool((one.as_operator() or one).sizes) for one in annotations] + [False])
    rows = np.flatnonzero((instance >= 0) & sized[marked["operator"].to_numpy()])
    if not len(rows):
        return None
    mine = kernels.at(rows)
    job, works = _works(mine, marked.iloc[rows], full_names, annotations)
    share = _shares(works, job, instance[rows], mine["duration_ns"])
    found = KernelWork(np.full(len(kernels), np.nan), np.full(len(kernels), np.nan))
    found.flops[rows] = works["flops"].to_numpy()[job] * share
    found.bytes[rows] = works["bytes"].to_numpy()[job] * share
    return found


def _works(
    kernels: Kernels,
    marked: pd.DataFrame,
    full_names: Sequence[str],
    annotations: Sequence[Annotation],
) -> tuple[Ints, pd.DataFrame]:
    """Computes the work once for all kernels with the same operator, module and configuration.
    Returns the row of each kernel, and per row flops, bytes (NaN unknown), fits, known (units),
    shared."""
    key = ["name", "dtype", "category", "math"]
    kinds = kernels.configurations[key]
    kind = kernels.spread(kinds.groupby(key, sort=False, observed=True).ngroup())
    operator, module = (marked[name].to_numpy(dtype=np.int64) for name in ("operator", "module"))
    place = (operator * (len(annotations) + 1) + module + 1) * len(kinds) + kind
    job, first = distinct(place)
    one = kinds.iloc[kernels.at(first)["configuration"]]
    combinations = zip(operator[first], module[first], *(one[name] for name in key), strict=True)
    rows = [_work(row, full_names, annotations) for row in combinations]
    return job, pd.DataFrame(rows, columns=["flops", "bytes", "fits", "known", "shared"])


def _work(
    combination: tuple[int, int, int, str, str, str],
    full_names: Sequence[str],
    annotations: Sequence[Annotation],
) -> tuple[float, float, bool, bool, bool]:
    operator, module, name, dtype, category, math = combination
    said = annotations[operator].as_operator() or annotations[operator]
    settings = annotations[module].settings if module >= 0 else None
    work = shape_work(said, full_names[name], dtype, settings)
    family = family_of(said.name)
    fits = family is not None and category in family.categories
    return (
        np.nan if work is None else float(work.flops),
        np.nan if work is None else float(work.bytes),
        fits,
        fits and math != "unknown",
        family is not None and not family.per_kernel,
    )


def _shares(works: pd.DataFrame, job: Ints, instance: Ints, duration_ns: Ints) -> Floats:
    """The share of its operator's work that each kernel does, NaN for kernels that do none of
    it."""
    fits, known, shared = (works[name].to_numpy()[job] for name in ("fits", "known", "shared"))
    group, _ = pd.factorize(instance)
    any_known = np.bincount(group, known) > 0
    doing = np.where(any_known[group], known, fits) | (np.bincount(group) == 1)[group]
    spent = np.where(doing, np.maximum(duration_ns, 1), 0)
    total = np.bincount(group, spent)[group]
    share = np.where(shared, spent / np.maximum(total, 1), 1.0)
    return np.where(doing, share, np.nan)
