"""The command line: what users type, and how errors reach them."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from nsysdoctor import __version__
from nsysdoctor.commands.outputs import complain, say
from nsysdoctor.errors import NsysDoctorError, UsageError, unexpected

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


def _show_what_can_be_shown() -> None:
    """Lets consoles without Unicode show a mark for what they lack instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def main() -> None:
    """Runs the command line. Ends with the command's exit status; with 2 and two lines on stderr
    for whatever else goes wrong, so that 1 only ever says that a gate failed."""
    _show_what_can_be_shown()
    try:
        _listen_to_ends()
        status = _run()
    except (KeyboardInterrupt, typer.Abort):
        say("nsysdoctor: stopped")
        status = 130
    except Ended as ended:
        say("nsysdoctor: stopped")
        status = 128 + ended.signal
    except BaseException as error:
        _tell(error)
        status = 2
    sys.exit(status)


def _tell(error: BaseException) -> None:
    """Prints an error for users, with a traceback where one was asked for."""
    if os.environ.get("NSYSDOCTOR_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    complain(_for_users(error))


def _for_users(error: BaseException) -> NsysDoctorError:
    if isinstance(error, NsysDoctorError):
        return error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error)
        return NsysDoctorError(f"{where}{reason}", "check the path, its rights and the disk")
    return unexpected(error, "nsysdoctor cannot go on")


class Ended(BaseException):
    """The system asks the program to end; what is being written or recorded is cleaned up."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


def _listen_to_ends() -> None:
    """Lets SIGTERM and SIGHUP end commands as an interrupt does: files are taken back."""
    import signal
    import threading

    def end(number: int, _frame: object) -> None:
        raise Ended(number)

    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _run() -> int:
    """Runs the command that was typed and returns its exit status.

    Raises UsageError, with the command's help as the hint, for options that cannot be meant.
    """
    from nsysdoctor.commands import register

    if not app.registered_commands:
        register(app)
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
