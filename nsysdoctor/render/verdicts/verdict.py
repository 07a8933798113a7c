"""A verdict on a terminal and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nsysdoctor.gate.verdict import FindingLine, Line, Mismatch, Verdict
from nsysdoctor.render.markdown import literal
from nsysdoctor.render.terminal import UNITS, WIDTH, Page
from nsysdoctor.render.verdicts import words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {
    "failed": "bold red",
    "unjudged": "bold yellow",
    "warned": "yellow",
    "unclear": "bold yellow",
    "waived": "cyan",
    "improved": "green",
    "passed": "green",
    "pass": "bold green",
    "fail": "bold red",
    "cannot_judge": "bold yellow",
}
MARKDOWN_LINES = 8
MARKDOWN_CHARACTERS = 60_000
"""A comment on GitHub holds 65,536."""
INDENT = "       "


def render_verdict(verdict: Verdict, console: Console, *, verbose: bool = False) -> None:
    """Prints the verdict: regressions first, passes as a count unless `verbose`."""
    width = min(console.width, WIDTH)
    console.print(Page(list(_terminal(verdict, width, verbose))), soft_wrap=False)


def _terminal(verdict: Verdict, width: int, verbose: bool) -> Iterator[Text]:
    yield paragraph(words.headline(verdict), width, style=STYLES[verdict.answer])
    yield paragraph(words.basis_text(verdict), width, style="bright_black")
    for mismatch in verdict.mismatches:
        yield from _mismatch(mismatch, width)
    printed: set[str] = set()
    for line in verdict.lines if verbose else words.shown_lines(verdict):
        yield from _line(line, width, printed, verbose)
    for finding in verdict.findings if verbose else words.news(verdict):
        yield _finding(finding, width)
    for text in verdict.obsolete:
        yield paragraph(text, width, "limit  ", INDENT)
    for text in verdict.notes:
        yield paragraph(text, width, "note   ", INDENT, "bright_black")
    yield paragraph(words.summary(verdict), width, style="bright_black")


def paragraph(
    text: str, width: int, head: str = "", indent: str = "", style: str = "", head_style: str = ""
) -> Text:
    """Returns wrapped text: `head` before the first line, `indent` before the others."""
    from textwrap import wrap

    from rich.text import Text

    flat = UNITS.sub("\u00a0", " ".join(text.split()))
    lines = wrap(flat, width, initial_indent=head, subsequent_indent=indent) or [head]
    shown = Text("\n".join(lines), style=style, overflow="fold")
    shown.stylize(head_style, 0, len(head))
    return shown


def _mismatch(mismatch: Mismatch, width: int) -> Iterator[Text]:
    style = STYLES["unjudged"]
    yield paragraph(words.mismatch_text(mismatch), width, "????   ", INDENT, head_style=style)
    yield paragraph(f"next: {mismatch.next}", width, INDENT, INDENT, "bright_black")


def _line(line: Line, width: int, printed: set[str], verbose: bool) -> Iterator[Text]:
    """A line and its details; a reason that was already printed is not repeated."""
    head = f"{words.STATES[line.state]:<7}"
    yield paragraph(words.sentence(line), width, head, INDENT, head_style=STYLES[line.state])
    for text in _details(line, verbose):
        if text and text not in printed:
            printed.add(text)
            yield paragraph(text, width, INDENT, INDENT, "bright_black")


def _details(line: Line, verbose: bool) -> list[str]:
    following = f"next: {line.next}" if line.next else ""
    if verbose or line.level == "error":
        values = words.values_text(line) if line.state not in ("passed", "improved") else ""
        return [values, line.why, following]
    return [line.why]


def _finding(line: FindingLine, width: int) -> Text:
    style = STYLES["failed" if line.failed else "passed" if line.state == "fixed" else "unclear"]
    head = f"{'FAIL' if line.failed else line.state:<7}"
    state = f"{line.state} finding" if line.failed else "finding"
    return paragraph(f"{state} {words.finding_text(line)}", width, head, INDENT, head_style=style)


def verdict_markdown(verdict: Verdict) -> str:
    """Returns a short Markdown text for a pull request, with the rest folded away.

    Names are data: they are shown literally, never interpreted as Markdown or HTML.
    """
    lines = [f"### nsysdoctor gate: {literal(words.headline(verdict))}", ""]
    lines += [f"{literal(words.basis_text(verdict))}. {literal(words.summary(verdict))}.", ""]
    lines += [
        f"- **{literal(words.mismatch_text(m))}**<br>{literal(m.next)}" for m in verdict.mismatches
    ]
    shown = words.shown_lines(verdict)
    lines += _table(shown[:MARKDOWN_LINES])
    lines += _reasons(shown[:MARKDOWN_LINES])
    lines += _findings(words.news(verdict)[:MARKDOWN_LINES])
    lines += [f"- {literal(text)}" for text in (*verdict.obsolete, *verdict.notes)]
    rest = [line for line in verdict.lines if line not in shown[:MARKDOWN_LINES]]
    folded = _folded(f"All other metrics ({len(rest)})", _table(rest))
    if sum(len(line) + 1 for line in (*lines, *folded)) > MARKDOWN_CHARACTERS:
        folded = ["", f"{len(rest)} other metrics stand in the verdict."]
    return "\n".join([*lines, *folded]).rstrip()[:MARKDOWN_CHARACTERS] + "\n"


def _table(shown: Sequence[Line]) -> list[str]:
    if not shown:
        return []
    rows = ["| | metric | where | found | expected |", "|---|---|---|--:|--:|"]
    for line in shown:
        cells = (
            words.STATES[line.state], line.title, words.place_text(line), words.found_text(line),
            words.expected_text(line),
        )  # fmt: skip
        rows.append(f"| {' | '.join(literal(cell) for cell in cells)} |")
    return [*rows, ""]


def _reasons(shown: Sequence[Line]) -> list[str]:
    """Values, reason and next command of what decides the verdict."""
    rows = []
    for line in shown:
        following = f"next: {line.next}" if line.next else ""
        parts = [text for text in (words.values_text(line), line.why, following) if text]
        if parts and line.level == "error" and line.state != "improved":
            rows.append(f"- {literal(words.subject(line))}: {literal('; '.join(parts), 600)}")
    return [*rows, ""] if rows else []


def _findings(shown: Sequence[FindingLine]) -> list[str]:
    rows = [
        f"- {'**fail** ' if f.failed else ''}{f.state} finding {literal(words.finding_text(f))}"
        for f in shown
    ]
    return [*rows, ""] if rows else []


def _folded(title: str, rows: list[str]) -> list[str]:
    if not rows:
        return []
    return ["", f"<details><summary>{title}</summary>", "", *rows, "</details>"]
