"""The report on a terminal: 80 columns, colours where they help, any encoding."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsysdoctor.render import account, savings, words
from nsysdoctor.render.moments import evidence_text
from nsysdoctor.report.model import DeviceBudget, Finding, KernelRow, Report
from nsysdoctor.units import count_text, ns_text, quantity_text, rate_text, ratio_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

WIDTH = 100  # wider lines are hard to read
INDENT = 4
CODE_LINES = 4
FULL_BUDGETS = 4  # more devices than this get a line each
MARKS = {"compute": "█", "communication": "▓", "copy": "▒", "idle": "·"}
STYLES = {"compute": "green", "communication": "magenta", "copy": "blue", "idle": "bright_black"}
LEVEL_STYLES = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "bright_black"}
UNITS = re.compile(r"(?<=\d) (?=(?:[nµm]?s|%|[kMGT]?B(?:/s)?)(?:[\s,;.:)]|$))")
ASCII = str.maketrans("█▓▒·µ→←…–—×≥≤“”‘’", "#=+.u><.--x><\"\"''")


def encodable(text: str, encoding: str) -> str:
    """Returns text of equal length that a console of this encoding can print and does not
    interpret.

    Control and direction characters would move the cursor or reorder the line; they become `?`, as
    do characters that the encoding lacks and ASCII cannot approximate.
    """
    safe = "".join(
        char if char == "\n" or unicodedata.category(char)[0] not in "CZ" or char == " " else "?"
        for char in text.replace("\u00a0", " ")
    )
    try:
        safe.encode(encoding)
    except UnicodeEncodeError:
        return safe.translate(ASCII).encode(encoding, "replace").decode(encoding)
    return safe


@dataclass(frozen=True)
class Page:
    """Lines of a report, made safe for the console that prints them."""

    parts: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the segments of every part in the console's own encoding."""
        from rich.segment import Segment

        narrow = options.update(width=min(options.max_width, WIDTH))
        for part in self.parts:
            for segment in console.render(part, narrow):
                safe = encodable(segment.text, options.encoding)
                yield segment if segment.control else Segment(safe, segment.style)


def _line(*parts: str | tuple[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts, overflow="fold")


def _wrapped(text: str, width: int, indent: int = INDENT, style: str = "") -> Text:
    """Indented paragraph that keeps a number and its unit together, since rich does neither."""
    from textwrap import wrap

    from rich.text import Text

    pad = " " * indent
    glued = UNITS.sub("\u00a0", " ".join(text.split()))
    lines = wrap(glued, width, initial_indent=pad, subsequent_indent=pad)
    return Text("\n".join(lines), style=style, overflow="fold")


def _headline(report: Report, width: int) -> Iterator[Text]:
    names = [words.trace_label(report, index) for index in range(len(report.traces))]
    yield _line(("nsysdoctor ", "bold"), words.shorten(", ".join(names), width - 12))
    yield _line()
    yield _wrapped(words.utilization_text(report) + ".", width, 0, "bold")
    for text in words.faults_text(report):
        yield _wrapped(f"Not to be trusted: {text}.", width, 0, "yellow")
    well = account.is_busy(report) and not words.to_act_on(report.findings)
    first, *more = account.verdict(report) or [""]
    yield _wrapped(first, width, 0, "green" if well else "bold")
    yield from (_wrapped(text, width, 0) for text in more)
    yield _wrapped(words.window_text(report) + ".", width, 0, "bright_black")


def _bar(device: DeviceBudget, cells: int) -> list[tuple[str, str]]:
    widths = words.shares(words.buckets_ns(device), cells)
    return [
        (MARKS[name] * width, STYLES[name])
        for name, width in zip(words.BUCKETS, widths, strict=True)
    ]


def _legend(device: DeviceBudget) -> Text:
    parts: list[str | tuple[str, str]] = [" " * INDENT]
    for name, value in zip(words.BUCKETS, words.buckets_ns(device), strict=True):
        ratio = ratio_text(value / device.span_ns) if device.span_ns else "none"
        parts += [(MARKS[name], STYLES[name]), f" {name} {ratio}  "]
    line = _line(*parts)
    line.rstrip()
    return line


def _budget(report: Report, device: DeviceBudget, width: int) -> Iterator[Text]:
    label = words.device_label(report, device.trace, device.device)
    yield _line()
    name = words.shorten(device.name, max(8, width - len(label) - 30))
    yield _line((label, "bold"), f"  {name}" if name else "", f"  over {ns_text(device.span_ns)}")
    yield _line(" " * INDENT, *_bar(device, width - INDENT))
    yield _legend(device)
    causes = words.causes_of(report, device)
    if causes:
        parts = [f"{words.cause_label(cause.cause)} {ns_text(cause.idle_ns)}" for cause in causes]
        yield _wrapped(f"idle {ns_text(device.idle_ns)}: {', '.join(parts)}", width)


def _compact(report: Report, device: DeviceBudget, width: int) -> Text:
    label = words.shorten(words.device_label(report, device.trace, device.device), 24)
    used = f" {ratio_text(device.utilization_ratio):>7} used"
    return _line(f"{label:<26}", *_bar(device, width - 26 - len(used)), used)


def _budgets(report: Report, width: int) -> Iterator[Text]:
    """A paragraph per device, or a line per device where there are many."""
    if len(report.devices) <= FULL_BUDGETS:
        for device in report.devices:
            yield from _budget(report, device, width)
        return
    yield _line()
    yield from (_compact(report, device, width) for device in report.devices)
    total: dict[str, int] = {}
    for cause in report.idle_causes:
        total[cause.cause] = total.get(cause.cause, 0) + cause.idle_ns
    ranked = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{words.cause_label(cause)} {ns_text(idle)}" for cause, idle in ranked if idle]
    if parts:
        yield _wrapped(f"idle on all devices: {', '.join(parts)}", width, 0)


def _cure(finding: Finding, width: int) -> Iterator[Text]:
    lead, code = words.cure_lead(finding)
    if lead or code:
        yield _wrapped(f"Cure: {words.shorten(lead, 3 * width)}", width)
    for line in code[:CODE_LINES]:
        text = line.rstrip().expandtabs(4)
        yield _line(" " * (INDENT + 2), (words.clipped(text, width - INDENT - 2), "cyan"))


def _title(place: int, finding: Finding, width: int) -> Iterator[Text]:
    """Rank, level, title and saving in one line, or the saving below where it is narrow."""
    saving, style = savings.saving_text(finding), LEVEL_STYLES[finding.level]
    head, level = f"{place:>2}. ", f"{finding.level.upper():<7}"
    room = width - len(head + level + saving) - 2
    fits = room >= 20
    title = words.shorten(finding.title, room if fits else width - len(head + level))
    parts: list[str | tuple[str, str]] = [head, (level, style), (title, "bold")]
    if not fits:
        yield _line(*parts)
        yield _wrapped(f"saves {saving}", width, style=style)
        return
    yield _line(*parts, " " * (room + 2 - len(title)), (saving, style))


def _finding(report: Report, place: int, finding: Finding, width: int) -> Iterator[Text]:
    yield _line()
    yield from _title(place, finding, width)
    subject = words.shorten(words.place_text(report, finding), width - INDENT)
    yield _wrapped(subject, width, style="bright_black")
    yield _wrapped(words.shorten(finding.message, 4 * width), width)
    needs = savings.needs_text(report, finding)
    if needs:
        yield _wrapped(words.shorten(needs, 4 * width), width)
    yield from _cure(finding, width)


def _details(report: Report, finding: Finding, width: int) -> Iterator[Text]:
    spread = savings.range_text(finding)
    if spread:
        yield _wrapped(f"Saving {spread}; basis: {finding.basis}", width)
    for name, value in sorted(finding.facts.items()):
        text = quantity_text(name, value)
        yield _wrapped(words.shorten(f"{name}: {text}", width - 6), width, INDENT + 2)
    for subject in finding.subjects:
        own = "not priced alone" if subject.saving_ns is None else ns_text(subject.saving_ns)
        text = words.shorten(f"{subject.subject}: {own}; {subject.message}", 2 * width)
        yield _wrapped(text, width, INDENT + 2)
    for evidence in finding.evidence:
        text = words.shorten(evidence_text(report, finding.trace, evidence), width - 6)
        yield _wrapped(f"at {text}", width, INDENT + 2, "bright_black")
    hidden = finding.evidence_total - len(finding.evidence)
    if hidden > 0:
        yield _wrapped(f"and {count_text(hidden)} more places", width, INDENT + 2, "bright_black")


def _findings(report: Report, width: int, top: int, verbose: bool) -> Iterator[Text]:
    wanted = report.findings if verbose else words.to_act_on(report.findings)
    shown = wanted[:top]
    for place, finding in enumerate(shown, 1):
        yield from _finding(report, place, finding, width)
        if verbose:
            yield from _details(report, finding, width)
    around = [] if verbose else words.of_start_up(report.findings)
    yield from _start_up(around, width)
    rest = len(wanted) - len(shown)
    for_the_record = len(report.findings) - len(wanted) - len(around)
    more = [f"{count_text(rest)} more findings (--top shows more)"] if rest else []
    if for_the_record:
        more.append(f"{count_text(for_the_record)} for the record (--verbose shows them)")
    if more:
        yield _line()
        yield _wrapped("; ".join(more), width, 0, "bright_black")


def _start_up(around: list[Finding], width: int) -> Iterator[Text]:
    """What is slow before the work and after it, in a section of its own."""
    if around:
        yield _line()
        yield _line(("Start-up and teardown, no part of the savings above", "bold"))
    for finding in around:
        yield _wrapped(words.shorten(finding.message, 4 * width), width)
        yield from _cure(finding, width)


def _limits(report: Report, width: int) -> Iterator[Text]:
    """Notes that the reader must see before trusting the rest."""
    rows = [
        ("Not judged: ", words.skipped_text(report), "yellow"),
        ("Broken rules: ", words.failed_text(report), "red"),
        ("Left out: ", words.dropped_text(report), "yellow"),
    ]
    rows += [("Note: ", note, "yellow") for note in words.notes_text(report)]
    shown = [(head, text, style) for head, text, style in rows if text]
    if shown:
        yield _line()
    for head, text, style in shown:
        yield _wrapped(head + words.shorten(text, 6 * width), width, 0, style)


def _kernel_facts(row: KernelRow) -> str:
    kind = f"{row.category} {row.dtype}".strip()
    times = f"{count_text(row.count)} launches, median {ns_text(row.median_ns)}"
    known = row.bound not in ("", "unknown")
    facts = [kind, f"{row.bound} bound ({row.basis})" if known else "bound unknown", times]
    if row.rate_bytes_per_s is not None:
        facts.append(rate_text(row.rate_bytes_per_s))
    if row.peak_ratio is not None:
        facts.append(f"{ratio_text(row.peak_ratio)} of peak bandwidth")
    return ", ".join(facts)


def _kernels(report: Report, width: int, top: int) -> Iterator[Text]:
    shown = report.kernels[:top]
    if shown:
        yield _line()
        yield _line(("Kernels by time", "bold"))
    for row in shown:
        head = f"{ratio_text(row.share_ratio):>7} {ns_text(row.total_ns):>8}  "
        name = words.middle(" ".join((row.short or row.name).split()), width - len(head))
        where = words.device_label(report, row.trace, row.device)
        place = f"{where}: " if len(report.devices) > 1 else ""
        yield _line(head, (name, "bold"))
        facts = words.shorten(place + _kernel_facts(row), 2 * width)
        yield _wrapped(facts, width, len(head), "bright_black")
    yield from _unrecognised(report, width)


def _unrecognised(report: Report, width: int) -> Iterator[Text]:
    """The kernels that match no known pattern, so that a reader can judge how far to trust the
    rest."""
    unknown = [row for row in report.kernels if row.category == "other"]
    if not unknown:
        return
    total = sum(row.total_ns for row in report.kernels)
    share = ratio_text(sum(row.total_ns for row in unknown) / max(total, 1))
    names = [
        f"{words.middle(' '.join((row.short or row.name).split()), 40)} "
        f"({ratio_text(row.share_ratio)})"
        for row in unknown[:8]
    ]
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    text = f"Not recognised, {share} of the kernel time: {', '.join(names)}{more}"
    yield _wrapped(text, width, 0, "bright_black")


def render_terminal(
    report: Report, console: Console, *, top: int = 5, verbose: bool = False
) -> None:
    """Prints the report: headline, budget, ranked findings, what was not judged.

    `top` limits findings (and, with `verbose`, kernels × 4). Colours follow the console; text that
    its encoding lacks is replaced, so a cp1252 console prints all of it.
    """
    width = max(40, min(console.width, WIDTH) - 1)
    parts = [*_headline(report, width), *_budgets(report, width)]
    parts += _findings(report, width, top, verbose)
    if verbose:
        parts += _kernels(report, width, 4 * top)
    parts += _limits(report, width)
    console.print(Page(parts))
