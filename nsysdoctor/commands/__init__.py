"""The commands, one module each; a module is imported when its command is registered."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds every command to the application."""
    from nsysdoctor.commands import report, rules

    app.command("report")(report.report)
    app.add_typer(rules.app, name="rules")
