"""`nsysdoctor capture`: record a program with nsys, export the trace, report on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsysdoctor.errors import UsageError

if TYPE_CHECKING:
    from nsysdoctor.commands.nsys_command import Extras, Nsys


def capture(
    command: Annotated[
        list[str], typer.Argument(help="What to run, after --.", metavar="COMMAND...")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The trace, without a suffix.")
    ] = Path("nsysdoctor-run"),
    show: Annotated[
        bool, typer.Option("--print", help="Show the command, run nothing.")
    ] = False,
    range_only: Annotated[
        bool, typer.Option("--range", help="Record only what nsysdoctor.torch.capture marks.")
    ] = False,
    shapes: Annotated[
        bool, typer.Option(help="Record PyTorch's operators with their shapes.")
    ] = False,
    graph_nodes: Annotated[
        bool, typer.Option(help="Record the kernels inside CUDA graphs; slows graphs down.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Overwrite an earlier trace.")] = False,
) -> None:
    """Record a program with nsys, export the trace and report on it."""
    import shlex

    from nsysdoctor.commands.nsys_command import Extras, profile_line

    extras = Extras(range_only, shapes, graph_nodes)
    nsys = _chosen(show)
    line = profile_line(nsys, extras, output, command)
    if show:
        print(shlex.join(line))
        return
    trace = _recorded(nsys, line, output, extras, force)
    _report(trace)


def _chosen(show: bool) -> Nsys:
    """The installed nsys. To only print the command, a current version is assumed where none is
    installed."""
    from nsysdoctor.commands.nsys_command import CURRENT, installed_nsys

    try:
        return installed_nsys()
    except UsageError as error:
        if not show:
            raise
        print(f"nsysdoctor: {error.message}; this is the line for a current one", file=sys.stderr)
        print(f"  hint: {error.hint.removesuffix(', or see --print')}", file=sys.stderr)
        return CURRENT


def _recorded(nsys: Nsys, line: list[str], output: Path, extras: Extras, force: bool) -> Path:
    """The export of the recording; the program's own exit status is ignored."""
    import shlex
    import subprocess

    from nsysdoctor.commands.nsys_command import export_line, recorded_report

    trace = output.with_name(output.name + ".sqlite")
    _check_free(output, trace, force)
    print(f"running: {shlex.join(line)}", file=sys.stderr)
    status = subprocess.run(line, check=False).returncode
    report = recorded_report(output)
    if report is None:
        hint = "see what nsys said above"
        if extras.range_only:
            hint += "; with --range the program must reach the steps that capture() names"
        raise UsageError(f"nsys ended with status {status} and left no report", hint)
    if status:
        print(f"the program ended with status {status}", file=sys.stderr)
    done = subprocess.run(export_line(nsys, report, trace), check=False, stdout=sys.stderr)
    if done.returncode or not trace.exists():
        again = shlex.join(export_line(nsys, report, trace))
        raise UsageError(f"nsys could not export {report}", f"run it by hand: {again}")
    return trace


def _check_free(output: Path, trace: Path, force: bool) -> None:
    """Raises UsageError, before anything runs, when the trace could not be written."""
    from nsysdoctor.commands.nsys_command import recorded_report

    if not output.parent.is_dir():
        raise UsageError(f"the folder of {output} does not exist", "make it first")
    earlier = trace if trace.exists() else recorded_report(output)
    if earlier is not None and not force:
        raise UsageError(f"{earlier} exists", "use --force to overwrite it, or -o for another name")
    for path in (trace, recorded_report(output)):
        if path is not None:
            path.unlink(missing_ok=True)


def _report(trace: Path) -> None:
    import shlex

    from rich.console import Console

    from nsysdoctor.diagnosis.diagnose import diagnose
    from nsysdoctor.render.terminal import render_terminal

    render_terminal(diagnose(trace), Console())
    print(f"\ntimeline: nsysdoctor report {shlex.quote(str(trace))} -o report.html",
          file=sys.stderr)  # fmt: skip
