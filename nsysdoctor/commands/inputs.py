"""Inputs of the commands that compare runs: traces or reports, limits, output files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nsysdoctor.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from nsysdoctor.config import Config
    from nsysdoctor.diagnosis.diagnose import Options
    from nsysdoctor.report.model import Report


def read_text(path: Path) -> str:
    """Returns the content of a text file; raises UsageError when it is missing or no text."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(f"there is no file {path}", "check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text", "check the path") from error


def settings(path: Path | None, trust: bool = False) -> Config:
    """Returns the configuration: the file given, else the nearest one, else the defaults.

    Folders of rules are relative to the file. Raises UsageError where a file that was only found
    names some, unless it is trusted: what they hold runs as code.
    """
    from dataclasses import replace

    from nsysdoctor.commands.outputs import say
    from nsysdoctor.config import Config, find_config, load_config

    found = path or find_config(Path.cwd())
    config = load_config(found) if found else Config()
    if found is None or not config.rule_dirs:
        return config
    if path is None and not trust:
        raise UsageError(
            f"{found} names folders of rules, which run as code: {', '.join(config.rule_dirs)}",
            f"read them, then use: --config {found}",
        )
    folders = [found.parent / folder for folder in config.rule_dirs]
    for file in [found, *(f for folder in folders for f in (folder, *folder.glob("*")))]:
        _check_owner(file)
    for folder in folders:
        say(f"running the rules in {folder}, which {found} names")
    return replace(config, rule_dirs=[str(folder) for folder in folders])


def _check_owner(file: Path) -> None:
    """Raises UsageError for a file of another user than the one who runs this, and than root."""
    own = {0, os.getuid()} if hasattr(os, "getuid") else set()
    if own and file.exists() and file.stat().st_uid not in own:
        raise UsageError(
            f"{file} belongs to another user, and would run as code",
            "copy what you trust, or name the folder: report --rules DIR",
        )


def load_reports(paths: Sequence[Path], config: Config, window: str | None = None) -> list[Report]:
    """Returns one report per path: a report.json is read, any other file is diagnosed; a folder
    stands for the traces in it."""
    from nsysdoctor.commands.traces import is_own, traces_of
    from nsysdoctor.ingest.profiler.stream import is_profiler_json

    options: list[Options] = []
    found = []
    for path in traces_of(paths):
        if is_own(path) or (path.suffix.lower() == ".json" and not is_profiler_json(path)):
            found.append(_read_report(path))
            continue
        options = options or [_options(config, window)]
        found.append(_diagnose(path, options[0]))
    return found


def _read_report(path: Path) -> Report:
    from nsysdoctor.report.model import read_report

    try:
        return read_report(read_text(path))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error


def _diagnose(path: Path, options: Options) -> Report:
    from nsysdoctor.diagnosis.diagnose import diagnose
    from nsysdoctor.jobs.answers import Lost, attempt

    found = attempt(path, lambda: diagnose(path, options))
    if isinstance(found, Lost):
        raise found.error
    return found


def _options(config: Config, window: str | None) -> Options:
    """How traces are analysed; raises UsageError when the configuration names unknown rules."""
    from nsysdoctor.config import check_config
    from nsysdoctor.diagnosis.diagnose import Options
    from nsysdoctor.rulebook.params import check_params
    from nsysdoctor.rulebook.rule import load_rules, select_rules
    from nsysdoctor.trace.window import parse_window

    rules = load_rules([Path(folder) for folder in config.rule_dirs])
    check_config(config, [rule.name for rule in rules])
    check_params(rules, config.params)
    chosen = select_rules(rules, config.select, config.ignore)
    request = parse_window(config.window or "auto" if window is None else window)
    return Options(request, chosen, config.params)  # type: ignore[arg-type]


def write_files(
    paths: Sequence[Path],
    inputs: Sequence[Path],
    writers: dict[str, Callable[[], str]],
    force: bool,
    quiet: bool,
) -> None:
    """Writes every output file in the format of its extension."""
    from nsysdoctor.commands.outputs import check_target, say, write_whole

    for path in paths:
        if path.suffix.lower() not in writers:
            hint = f"use one of {' '.join(writers)}"
            raise UsageError(f"the extension of {path} names no format", hint)
        check_target(path, list(inputs), force)
    for path in paths:
        write_whole(path, writers[path.suffix.lower()](), force)
        if not quiet:
            say(f"wrote {path}")


def put(text: str) -> None:
    """Prints text as UTF-8 whatever the console's encoding, for programs to read."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    if not text.endswith("\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.flush()


def on_page(print_to: Callable[[Console], None]) -> str:
    """Returns what a rendering prints on an 80-column console without colours, below our name."""
    import io

    from rich.console import Console

    from nsysdoctor import __version__

    file = io.StringIO(f"nsysdoctor {__version__}\n")
    file.seek(0, io.SEEK_END)
    print_to(Console(file=file, width=80))
    return file.getvalue()
