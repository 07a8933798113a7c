"""The commands, one module each; a module is imported when its command is registered."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds every command to the application."""
    from nsysdoctor.commands import (
        calibrate,
        capture,
        diff,
        export,
        gate,
        history,
        report,
        rules,
        tables,
    )

    app.command("report")(report.report)
    app.command("gate")(gate.gate)
    app.add_typer(gate.baseline_app, name="baseline")
    app.command("diff")(diff.diff)
    app.add_typer(rules.app, name="rules")
    app.command("export")(export.export)
    app.command("tables")(tables.tables)
    app.add_typer(history.app, name="history")
    app.command("capture", context_settings={"allow_interspersed_args": False})(capture.capture)
    app.command("calibrate")(calibrate.calibrate)
