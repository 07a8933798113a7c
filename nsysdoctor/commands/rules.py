"""`nsysdoctor rules`: list them, explain one, check and test a folder of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nsysdoctor.errors import RuleError

app = typer.Typer(help="List, explain, check and test rules.", no_args_is_help=True)

Folders = Annotated[list[Path] | None, typer.Option("--rules", help="A folder of further rules.")]


@app.command("list")
def list_rules(rules: Folders = None) -> None:
    """Print every rule with its title, by category."""
    from nsysdoctor.rulebook.rule import load_rules

    found = load_rules(rules or [])
    width = max(len(rule.name) for rule in found)
    for category in sorted({rule.words.category for rule in found}):
        typer.echo(category)
        for rule in found:
            if rule.words.category == category:
                typer.echo(f"  {rule.name:<{width}}  {rule.words.title}")


@app.command()
def explain(name: Annotated[str, typer.Argument(metavar="RULE")], rules: Folders = None) -> None:
    """Print why a rule matters, its cures and its numbers."""
    from nsysdoctor.rulebook.pages import rule_page
    from nsysdoctor.rulebook.rule import load_rules, select_rules

    (rule,) = select_rules(load_rules(rules or []), [name])
    sys.stdout.write(rule_page(rule))


@app.command()
def check(folder: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Load the rules of a folder and say what contradicts itself."""
    from nsysdoctor.rulebook.rule import load_rule

    paths = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not paths:
        raise RuleError(f"{folder} holds no rules", "a rule is NAME.yaml beside NAME.py")
    failed = 0
    for path in paths:
        try:
            load_rule(path)
        except RuleError as error:
            failed += 1
            typer.echo(f"{path.name}: {error.message} ({error.hint})", err=True)
    typer.echo(f"{len(paths) - failed} rules are sound, {failed} are not")
    raise typer.Exit(2 if failed else 0)


@app.command("test")
def test_rules(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    cases: Annotated[
        Path | None, typer.Option(help="Where the cases are; DIR/tests by default.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Write the traces of the cases into this folder.")
    ] = None,
) -> None:
    """Run the cases of a folder's rules: DIR/tests/NAME.yaml holds those of NAME."""
    from nsysdoctor.cases.rule_cases import folder_results

    results = []
    for result in folder_results(folder, cases or folder / "tests", keep):
        results.append(result)
        mark = "FAILS" if result.faults else "holds"
        typer.echo(f"{mark}  {result.rule}: {result.case}")
        for fault in result.faults:
            typer.echo(f"       {fault}")
    failed = sum(bool(result.faults) for result in results)
    typer.echo(f"{len(results) - failed} cases hold, {failed} fail")
    raise typer.Exit(1 if failed else 0)
