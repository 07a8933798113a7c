"""Rules: a YAML file of words and limits, and a Python file of the same stem that measures."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nsysdoctor.errors import RuleError
from nsysdoctor.ingest.schema import SOURCES
from nsysdoctor.trace.recipe import Recipe, recipe, recipes

ECOSYSTEMS = (
    "pytorch", "jax", "cupy", "numba", "rapids", "julia", "cuda", "stdpar", "fortran", "openmp",
    "openacc", "any",
)  # fmt: skip
_NEAREST = {
    "rapids": ("cupy",), "numba": ("cupy",), "openmp": ("openacc",), "fortran": ("cuda",),
}  # fmt: skip
"""Where an ecosystem looks for a text before it takes the one of CUDA C++."""
_SOURCE_NAMES = frozenset(source.name for source in SOURCES)


class Param(BaseModel):
    """A number that a user may set for a rule, with its default and what it means."""

    model_config = ConfigDict(extra="forbid")
    default: int | float
    help: str


class Words(BaseModel):
    """What a rule's YAML file holds."""

    model_config = ConfigDict(extra="forbid")
    title: str
    category: str
    scope: Literal["trace", "job"] = "trace"
    needs: list[str] = Field(default_factory=list)
    message: str
    why: str
    fix: dict[str, str]
    variants: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Cures for one mechanism among several: a row's `variant` names the one that fits it."""
    example: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    params: dict[str, Param] = Field(default_factory=dict)
    references: list[str] = Field(default_factory=list)

    def cure_for(
        self, ecosystem: str, variant: str = "", own: Mapping[str, str] | None = None
    ) -> tuple[str, str]:
        """Returns the cure's text for a program of an ecosystem, and which ecosystem it is of.

        What a finding brings of its `own` counts before the variant's and the rule's.
        """
        for texts in (own or {}, self.variants.get(variant, {}), self.fix):
            for name in (ecosystem, *_NEAREST.get(ecosystem, ()), "any", "cuda", *sorted(texts)):
                if name in texts:
                    return texts[name].strip(), name
        return "", "any"

    def example_for(self, ecosystem: str) -> dict[str, str]:
        """Returns the example (bad, good) in the language of a cure, empty where there is none.

        One that names no ecosystem is in the language of the first cure.
        """
        own = self.example.get(ecosystem)
        if isinstance(own, dict):
            return own
        flat = {k: v for k, v in self.example.items() if isinstance(v, str)}
        return flat if ecosystem == next(iter(self.fix), "any") else {}


@dataclass(frozen=True)
class Rule:
    """A rule ready to run.

    `measure` makes a frame of one row per subject; `cure` the edits that undo it, priced by
    replay; `evidence` the places that show it; `addresses` the time that the cure is about, for
    a cure without edits. `tables` are the rule's own, by name.
    """

    name: str
    words: Words
    measure: Recipe
    cure: Recipe | None = None
    evidence: Recipe | None = None
    addresses: Recipe | None = None
    tables: dict[str, Recipe] = field(default_factory=dict)
    built_in: bool = True
    """Rules of users get copies of tables: what they write there stays theirs."""

    @property
    def uses(self) -> frozenset[str]:
        """Returns the tables of the trace that the rule reads."""
        parts = (
            self.measure, self.cure, self.evidence, self.addresses, *self.tables.values()
        )  # fmt: skip
        asked = {name for part in parts if part is not None for name in part.needs}
        own = {self.name, *self.tables}
        return frozenset(asked - own)

    @property
    def params(self) -> dict[str, int | float]:
        """Returns the defaults of the rule's own numbers."""
        return {name: param.default for name, param in self.words.params.items()}


def built_in_folder() -> Path:
    """Returns the folder of the rules that ship with nsysdoctor, installed or editable."""
    here = Path(__file__).resolve().parent.parent
    installed = here / "rules"
    return installed if installed.is_dir() else here.parent / "rules"


def load_rules(folders: Iterable[Path] = ()) -> list[Rule]:
    """Returns the built-in rules and those of the folders, by name; a later one replaces an
    earlier one of its name. Raises RuleError for a rule that contradicts itself."""
    found: dict[str, Rule] = {}
    for folder in (built_in_folder(), *folders):
        if not folder.is_dir():
            raise RuleError(f"{folder} is no folder", "name a folder of rules")
        for path in sorted(folder.glob("*.yaml")):
            found[path.stem] = load_rule(path)
    return [found[name] for name in sorted(found)]


def load_rule(path: Path) -> Rule:
    """Returns the rule whose words stand at `path` and whose Python stands beside it."""
    words = _words(path)
    code = path.with_suffix(".py")
    if not code.is_file():
        raise RuleError(f"{path} has no {code.name} beside it", "write the function that measures")
    module = _module(code)
    made = recipes([module])
    measure = made.pop(path.stem, None)
    if measure is None:
        raise RuleError(
            f"{code} defines no table {path.stem}",
            f"mark its function: @table def {path.stem}(...)",
        )
    cure, evidence, addresses = (_part(module, n) for n in ("cure", "evidence", "addresses"))
    built_in = path.resolve().parent == built_in_folder().resolve()
    rule = Rule(path.stem, words, measure, cure, evidence, addresses, made, built_in)
    _check(rule, path)
    return rule


def select_rules(
    rules: Sequence[Rule], select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> list[Rule]:
    """Returns the rules that are selected (all without a selection) and not ignored.

    Raises RuleError with the nearest known name for one that does not exist.
    """
    known = {rule.name for rule in rules}
    for name in (*select, *ignore):
        if name not in known:
            raise RuleError(f"there is no rule {name}", _nearest(name, known))
    return [r for r in rules if (not select or r.name in select) and r.name not in ignore]


def _nearest(name: str, known: set[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else "see: nsysdoctor rules list"


def _words(path: Path) -> Words:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
        return Words.model_validate(data)
    except yaml.YAMLError as error:
        raise RuleError(f"{path} is no YAML: {error}", "correct the file") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RuleError(f"{path}: {place}: {first['msg']}", "correct the file") from error


def _module(code: Path) -> ModuleType:
    name = f"nsysdoctor_rules_{abs(hash(str(code.resolve()))):x}_{code.stem}"
    spec = importlib.util.spec_from_file_location(name, code)
    if spec is None or spec.loader is None:
        raise RuleError(f"{code} is no Python file", "correct the file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RuleError(f"{code}: {type(error).__name__}: {error}", "correct the file") from error
    return module


def _part(module: ModuleType, name: str) -> Recipe | None:
    function = getattr(module, name, None)
    return None if function is None else recipe(function)


def _check(rule: Rule, path: Path) -> None:
    parts = [rule.measure, *rule.tables.values(), rule.cure, rule.evidence,
             rule.addresses]
    asked = {name for part in parts if part is not None for name in part.params}
    given = set(rule.words.params)
    if asked != given:
        odd = ", ".join(sorted(asked ^ given))
        raise RuleError(
            f"{path}: params of the YAML and keyword-only parameters differ: {odd}",
            "give both the same names",
        )
    unknown = sorted(set(rule.words.needs) - _SOURCE_NAMES)
    if unknown:
        raise RuleError(
            f"{path}: needs names no table of an export: {', '.join(unknown)}",
            f"tables are: {', '.join(sorted(_SOURCE_NAMES))}",
        )
    texts = [rule.words.fix, *rule.words.variants.values()]
    odd_fix = sorted({name for each in texts for name in each} - set(ECOSYSTEMS))
    if odd_fix or not rule.words.fix:
        raise RuleError(
            f"{path}: fix needs texts for ecosystems among {', '.join(ECOSYSTEMS)}",
            f"rename {', '.join(odd_fix)}" if odd_fix else "add one",
        )
