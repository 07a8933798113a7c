"""Reads from a kernel's name what it does: category, dtype, fused, library, arithmetic units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import pandas as pd
import yaml

from nsysdoctor.errors import RuleError
from nsysdoctor.roofline.kernel_names import readable, short_name

CHAINABLE = frozenset({"elementwise", "norm", "softmax", "dropout", "reduction", "copy_cast"})
"""Families that a compiler can fuse with their neighbours."""

MEMORY_BOUND = CHAINABLE | {"layout", "memory", "optimizer", "embedding", "pooling", "loss"}
"""Families that do few operations per byte on any GPU."""

COMPUTE_HEAVY = frozenset({"gemm", "conv", "attention"})
"""Families that break a chain of memory-bound kernels."""

MATHS = ("simt", "tensor", "unknown")

Place = Callable[[str], int]
"""Where a pattern first occurs in a text, -1 if nowhere."""

Scope = tuple[tuple[Place, str], ...]
# dtype and phase stand early in a name; some names hold kilobytes of template arguments
_HEAD_CHARACTERS = 600
COLUMNS = ("category", "dtype", "fused", "library", "math", "phase", "matched")


@dataclass(frozen=True)
class KernelRule:
    """One row of the taxonomy: a pattern, and what it says about the kernels that match."""

    category: str
    short: Place | None = None
    full: Place | None = None
    library: str = ""
    fused: bool = False
    math: str = "unknown"
    dtype: str = "template"
    phase: str = ""
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taxonomy:
    """Ordered rules, the lists they refer to and the meaning of each category."""

    rules: tuple[KernelRule, ...]
    scopes: Mapping[str, Scope]
    categories: Mapping[str, str] = field(default_factory=dict)


def classify(
    full: Sequence[str], short: Sequence[str], taxonomy: Taxonomy | None = None
) -> pd.DataFrame:
    """Returns one row per name: category, dtype, fused, library, math, phase, matched.

    `full` holds whole demangled (or mangled) names, `short` the bare function names of the same
    kernels; pass distinct names. `dtype` is "" where the name does not show it, `math` is simt,
    tensor or unknown, `phase` is forward, backward, optimizer or "". `matched` is false for kernels
    that match no pattern; their category is "other".
    """
    table = taxonomy or load_taxonomy()
    candidates: dict[str, tuple[KernelRule, ...]] = {}
    rows = [
        _describe(whole, bare, table, candidates) for whole, bare in zip(full, short, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"fused": "bool", "matched": "bool"})


def rule_of(full: str, short: str, taxonomy: Taxonomy) -> KernelRule | None:
    """The first rule that fits a name, or None."""
    whole = readable(full)
    fitting = _fitting(_bare(full, short, whole), taxonomy.rules)
    return next((rule for rule in fitting if _fits(rule.full, whole)), None)


def _describe(
    full: str, short: str, taxonomy: Taxonomy, candidates: dict[str, tuple[KernelRule, ...]]
) -> tuple[str, str, bool, str, str, str, bool]:
    whole = readable(full)
    bare = _bare(full, short, whole)
    if bare not in candidates:
        candidates[bare] = _fitting(bare, taxonomy.rules)
    rule = next((rule for rule in candidates[bare] if _fits(rule.full, whole)), None)
    head, scopes = whole[:_HEAD_CHARACTERS], taxonomy.scopes
    if rule is None:
        return ("other", _template(scopes, head), False, "", "unknown", "", False)
    return (
        rule.category,
        _dtype(rule, bare, head, scopes),
        rule.fused,
        rule.library or _first(scopes["libraries"], head),
        _math(rule, bare, head, scopes),
        rule.phase or _first(scopes["phases"], head),
        rule.category != "other",
    )


def _bare(full: str, short: str, whole: str) -> str:
    """The short name; extern "C" and undemangled kernels carry the same text in both columns."""
    return short_name(whole) if short in ("", full) else short


def _fitting(bare: str, rules: Iterable[KernelRule]) -> tuple[KernelRule, ...]:
    return tuple(rule for rule in rules if _fits(rule.short, bare))


def _fits(place: Place | None, text: str) -> bool:
    return place is None or place(text) >= 0


def _first(scope: Scope, text: str) -> str:
    return next((value for place, value in scope if place(text) >= 0), "")


def _dtype(rule: KernelRule, bare: str, whole: str, scopes: Mapping[str, Scope]) -> str:
    """The rule's own list is tried first; where the name has none of its words, the template
    arguments decide."""
    if rule.dtype == "template":
        return _template(scopes, whole)
    if rule.dtype not in scopes:
        return rule.dtype
    return _first(scopes[rule.dtype], _tile(bare, whole)) or _template(scopes, whole)


def _math(rule: KernelRule, bare: str, whole: str, scopes: Mapping[str, Scope]) -> str:
    if rule.math in MATHS:
        return rule.math
    return _first(scopes[rule.math], _tile(bare, whole)) or "unknown"


def _tile(bare: str, whole: str) -> str:
    """The part of a name that describes the matrix kernel.

    CUTLASS entry points have generic names; the kernel is their template argument.
    """
    wrapped = re.search(r"^Kernel2?$|^device_kernel$", bare)
    return whole.partition("(")[0] if wrapped else bare


def _template(scopes: Mapping[str, Scope], text: str) -> str:
    """The floating type that the name mentions first, else an integer type, else ""."""
    hits = [(at, value) for place, value in scopes["floating"] if (at := place(text)) >= 0]
    return min(hits, default=(0, ""))[1] or _first(scopes["integer"], text)


def load_taxonomy(path: Path | None = None) -> Taxonomy:
    """The shipped taxonomy, with the rules of the YAML file at `path` tried before its own.

    The file has the shipped one's form; its scopes and categories are added to the shipped ones.
    """
    shipped = _shipped()
    if path is None:
        return shipped
    own = _parse(path.read_text(encoding="utf-8"), path.name, shipped)
    return Taxonomy(
        rules=own.rules + shipped.rules,
        scopes={**shipped.scopes, **own.scopes},
        categories={**shipped.categories, **own.categories},
    )


@cache
def _shipped() -> Taxonomy:
    text = files("nsysdoctor.roofline").joinpath("taxonomy.yaml").read_text(encoding="utf-8")
    return _parse(text, "taxonomy.yaml", Taxonomy((), {}))


def _parse(text: str, origin: str, base: Taxonomy) -> Taxonomy:
    raw = _mapping(text, origin)
    categories = {**base.categories, **raw.get("categories", {})}
    scopes = {name: _scope(rows, origin) for name, rows in raw.get("scopes", {}).items()}
    known = {**base.scopes, **scopes}
    rules = tuple(_rule(row, origin, categories, known) for row in raw["rules"])
    return Taxonomy(rules, scopes, categories)


def _mapping(text: str, origin: str) -> Mapping[str, Any]:
    """The file's content, once it is known to hold a list of rules."""
    try:
        raw = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise RuleError(f"{origin} is not YAML: {error}", "check its indentation") from error
    rules = raw.get("rules") if isinstance(raw, dict) else None
    if not isinstance(rules, list) or not all(isinstance(row, dict) for row in rules):
        raise RuleError(f"{origin} has no list of rules", "write them under `rules:`")
    return cast("Mapping[str, Any]", raw)


def _scope(rows: Sequence[Sequence[str]], origin: str) -> Scope:
    return tuple((_place(pattern, origin), value) for pattern, value in rows)


def _rule(
    row: Mapping[str, Any], origin: str, categories: Mapping[str, str], scopes: Mapping[str, Scope]
) -> KernelRule:
    _check(row, origin, categories, scopes)
    fields: dict[str, Any] = dict(row)
    fields.update({key: _place(row[key], origin) for key in ("short", "full") if key in row})
    fields["examples"] = tuple(row.get("examples", ()))
    return KernelRule(**fields)


def _check(
    row: Mapping[str, Any], origin: str, categories: Mapping[str, str], scopes: Mapping[str, Scope]
) -> None:
    name = row.get("short") or row.get("full") or "?"
    unknown = sorted(set(row) - set(KernelRule.__dataclass_fields__))
    if unknown:
        raise RuleError(
            f"{origin}: kernel rule {name!r} has unknown fields {', '.join(unknown)}",
            f"use {', '.join(KernelRule.__dataclass_fields__)}",
        )
    if not ({"short", "full"} & set(row)):
        raise RuleError(f"{origin}: a kernel rule has no pattern", "give it `short` or `full`")
    if row.get("category") not in categories:
        raise RuleError(
            f"{origin}: kernel rule {name!r} has category {row.get('category')!r}",
            f"use one of {', '.join(categories)}, or list it under `categories`",
        )
    if row.get("math", "unknown") not in {*MATHS, *scopes}:
        raise RuleError(
            f"{origin}: kernel rule {name!r} has math {row['math']!r}",
            f"use one of {', '.join(MATHS)} or a name under `scopes`",
        )


def _place(pattern: str, origin: str) -> Place:
    """A search for a pattern; words joined by "|" are found without the regex engine."""
    if re.fullmatch(r"[\w|:]+", pattern):
        words = tuple(pattern.split("|"))
        return lambda text: min((at for w in words if (at := text.find(w)) >= 0), default=-1)
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise RuleError(
            f"{origin}: {pattern!r} is no regular expression: {error}", "correct the pattern"
        ) from error
    return lambda text: hit.start() if (hit := search(text)) else -1
