"""The configuration file: nsysdoctor.toml, or [tool.nsysdoctor] in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from nsysdoctor.errors import UsageError
from nsysdoctor.gate.limits import Limits, check_limits, check_rules, known_name

FILE_NAME = "nsysdoctor.toml"


@dataclass(frozen=True)
class Config:
    """Everything a configuration file may hold.

    `rule_dirs` are folders of own rules, relative to the file; `select` and `ignore` name rules to
    run or not; `params` maps a rule to values of its parameters; `window` is all, steady or
    START:END; `gate` is what the gate allows.
    """

    rule_dirs: list[str] = field(default_factory=list)
    select: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    window: str | None = None
    params: dict[str, dict[str, bool | int | float | str]] = field(default_factory=dict)
    gate: Limits = field(default_factory=Limits)


def find_config(folder: Path) -> Path | None:
    """Returns the nearest configuration file of a folder or its parents, None if there is none.

    A pyproject.toml counts only when it holds [tool.nsysdoctor].
    """
    for place in (folder, *folder.parents):
        own, shared = place / FILE_NAME, place / "pyproject.toml"
        if own.is_file():
            return own
        if shared.is_file() and _tool_table(_read(shared)) is not None:
            return shared
    return None


def load_config(path: Path) -> Config:
    """Returns what a configuration file says; raises UsageError for whatever cannot be meant."""
    data = _read(path)
    if path.name == "pyproject.toml":
        data = _tool_table(data) or {}
    return parse_config(data, path.name)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}", "check the path of --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}", "see https://toml.io") from error


def _tool_table(data: dict[str, Any]) -> dict[str, Any] | None:
    table = data.get("tool", {})
    return table.get("nsysdoctor") if isinstance(table, dict) else None


def parse_config(data: dict[str, Any], name: str = FILE_NAME) -> Config:
    """Returns the configuration in the parsed TOML of a file called `name`."""
    _check_names(data, Config, "")
    try:
        config = TypeAdapter(Config).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        hint = f"found {first.get('input')!r}"
        raise UsageError(f"{name}: {place}: {first['msg']}", hint) from error
    check_limits(config.gate)
    return config


def check_config(config: Config, rules: Iterable[str]) -> None:
    """Raises UsageError when the configuration names a rule that does not exist."""
    names = sorted(rules)
    for place in ("select", "ignore", "params"):
        for rule in getattr(config, place):
            known_name(rule, names, f"rule in {place}")
    check_rules(config.gate, names)


def _check_names(data: object, kind: Any, place: str) -> None:
    """Walks data and type side by side: a name the type does not have is most likely a typo."""
    if is_dataclass(kind) and isinstance(data, dict):
        hints = get_type_hints(kind)
        names = [one.name for one in fields(kind)]
        for key, value in data.items():
            known_name(str(key), names, f"setting in [{place}]" if place else "setting")
            _check_names(value, hints[key], f"{place}.{key}" if place else key)
    for inner in _inner_types(kind):
        for key, value in _children(data):
            _check_names(value, inner, f"{place}.{key}" if key else place)


def _inner_types(kind: Any) -> Sequence[Any]:
    """The type of the values of a list or dict."""
    if get_origin(kind) in (Union, UnionType):
        return ()
    return get_args(kind)[-1:] if get_origin(kind) in (list, dict) else ()


def _children(data: object) -> list[tuple[str, object]]:
    if isinstance(data, dict):
        return [(str(key), value) for key, value in data.items()]
    return [("", value) for value in data] if isinstance(data, list) else []
