"""The command line as a script, for tests that run it in a shell."""

from __future__ import annotations

import typer

from nsysdoctor import cli, commands
from nsysdoctor.commands import diff, gate, history


def add_missing(app: typer.Typer) -> None:
    """Adds the commands that compare runs, unless the application has them."""
    known = {command.name for command in app.registered_commands}
    if "gate" not in known:
        app.command("gate")(gate.gate)
        app.command("diff")(diff.diff)
        app.add_typer(gate.baseline_app, name="baseline")
        app.add_typer(history.app, name="history")


def main() -> None:
    """Runs the command line."""
    whole = commands.register

    def register(app: typer.Typer) -> None:
        whole(app)
        add_missing(app)

    commands.register = register
    cli.main()


if __name__ == "__main__":
    main()
