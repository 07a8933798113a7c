"""The command line: what users type, and how errors reach them."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from nsysdoctor import __version__
from nsysdoctor.errors import NsysDoctorError, UsageError

app = typer.Typer(
    name="nsysdoctor",
    help="Finds what wastes GPU time in an Nsight Systems trace, says why, and prices the cure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nsysdoctor {__version__}")
        raise typer.Exit()


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(help="Show a traceback for errors.")] = False,
) -> None:
    """Finds what wastes GPU time in an Nsight Systems trace, says why, and prices the cure."""
    if debug:
        os.environ["NSYSDOCTOR_DEBUG"] = "1"


def complain(error: NsysDoctorError) -> None:
    """Prints what is wrong and what to do, two lines on stderr."""
    for line in (f"nsysdoctor: {error.message}", f"  hint: {error.hint}"):
        print(" ".join(line.split("\n")), file=sys.stderr)


def _show_what_can_be_shown() -> None:
    """Lets consoles without Unicode show a mark for what they lack instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Runs the command line; errors meant for users end with exit status 2, no traceback."""
    from nsysdoctor.commands import register

    if not app.registered_commands:
        register(app)
    _show_what_can_be_shown()
    try:
        sys.exit(_run())
    except NsysDoctorError as error:
        if os.environ.get("NSYSDOCTOR_DEBUG"):
            raise
        complain(error)
        sys.exit(2)
    except OSError as error:
        if os.environ.get("NSYSDOCTOR_DEBUG"):
            raise
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error)
        complain(NsysDoctorError(f"{where}{reason}", "check the path, its rights and the disk"))
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        print("nsysdoctor: stopped", file=sys.stderr)
        sys.exit(130)


def _run() -> int:
    """Runs the command that was typed and returns its exit status.

    Raises UsageError, with the command's help as the hint, for options that cannot be meant.
    """
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]  # click's, wherever it lives
    try:
        return int(app(standalone_mode=False) or 0)
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return 2
        raise _as_ours(error) from error


def _as_ours(error: Any) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "nsysdoctor"
    return UsageError(error.format_message(), f"see: {command} --help")
