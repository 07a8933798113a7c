"""The report as Markdown: short enough for a pull request or a chat."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from nsysdoctor.render import account, savings, words
from nsysdoctor.report.model import DeviceBudget, Finding, Report
from nsysdoctor.units import count_text, ns_text, ratio_text


def literal(text: str, width: int = 300) -> str:
    """Returns text that every Markdown dialect shows literally, in one line of limited length.

    Characters that Markdown, GitHub (mentions, maths) or HTML could interpret get a backslash or
    become an entity; control and direction characters become a question mark.
    """
    line = "".join(
        "?" if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char
        for char in words.shorten(text, width)
    )
    return "".join(_escaped(char) for char in line)


def _escaped(char: str) -> str:
    if char in "<>&@|":
        return f"&#{ord(char)};"
    return f"\\{char}" if char in "\\`*_[]#~$" else char


def _fence(code: str) -> str:
    """A fence longer than any run of backticks inside."""
    longest = run = 0
    for char in code:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return "`" * max(3, longest + 1)


def _budgets(report: Report) -> Iterator[str]:
    yield "| device | utilization | compute | communication | copy | idle | idle from |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for device in report.devices:
        cells = [literal(words.device_label(report, device.trace, device.device), 60)]
        cells.append(ratio_text(device.utilization_ratio))
        cells += [_part(value, device) for value in words.buckets_ns(device)]
        cells.append(literal(_causes(report, device)))
        yield f"| {' | '.join(cells)} |"


def _part(value_ns: int, device: DeviceBudget) -> str:
    return ratio_text(value_ns / device.span_ns) if device.span_ns else "–"


def _causes(report: Report, device: DeviceBudget) -> str:
    causes = words.causes_of(report, device)[:3]
    return ", ".join(
        f"{words.cause_label(cause.cause)} {ns_text(cause.idle_ns)}" for cause in causes
    )


def _finding(report: Report, rank: int, finding: Finding) -> Iterator[str]:
    title = literal(finding.title, 120)
    yield f"{rank}. **{title}** ({finding.level}, {savings.saving_text(finding)})  "
    place = literal(words.place_text(report, finding), 120)
    needs = savings.needs_text(report, finding)
    yield f"   {place}: {literal(finding.message)}{f' {literal(needs)}' if needs else ''}"
    cure = words.cure_text(finding)
    if cure:
        yield f"   *Cure:* {literal(cure)}"


def _start_up(report: Report) -> Iterator[str]:
    """What is slow before the work and after it, apart from the savings in the loop."""
    around = words.of_start_up(report.findings)
    yield from ("", "Start-up and teardown:") if around else ()
    for finding in around:
        yield f"- {literal(finding.message)}"
        yield f"  *Cure:* {literal(words.cure_text(finding))}"


def _example(finding: Finding) -> Iterator[str]:
    good = finding.example.get("good", "").strip()
    if good:
        fence = _fence(good)
        yield from ("", "<details><summary>What the first cure looks like</summary>", "")
        yield from (fence, good[:2000], fence, "", "</details>")


def _limits(report: Report) -> Iterator[str]:
    rows = [
        ("Not judged", words.skipped_text(report)),
        ("Broken rules", words.failed_text(report)),
        ("Left out", words.dropped_text(report)),
    ]
    rows += [("Not to be trusted", text) for text in words.faults_text(report)]
    rows += [("Note", note) for note in words.notes_text(report)]
    yield from (f"- {head}: {literal(text, 400)}" for head, text in rows if text)


def render_markdown(report: Report, *, top: int = 5) -> str:
    """Returns a short Markdown text: headline, budget table, `top` findings, what was not judged.

    Names are data: whatever they hold is shown, never read as Markdown or HTML.
    """
    findings = words.to_act_on(report.findings)
    names = ", ".join(words.trace_label(report, index) for index in range(len(report.traces)))
    lines = [f"### nsysdoctor: {literal(names, 120)}", ""]
    said = [literal(text, 600) for text in account.verdict(report)]
    lines += [" ".join([f"**{words.utilization_text(report)}.**", *said]), ""]
    lines += [*_budgets(report), ""]
    for rank, finding in enumerate(findings[:top], 1):
        lines += _finding(report, rank, finding)
    if len(findings) > top:
        lines += ["", f"…and {count_text(len(findings) - top)} more."]
    lines += _start_up(report)
    best = words.first_cure(report)
    lines += _example(best) if best is not None else ()
    lines += ["", *_limits(report), "", f"{literal(words.window_text(report))}."]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"
