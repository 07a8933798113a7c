"""A diff on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nsysdoctor.diff.kernels import KernelChange, KernelSide
from nsysdoctor.diff.runs import Diff, FindingChange, MetricChange
from nsysdoctor.render.markdown import literal
from nsysdoctor.render.terminal import WIDTH, Page
from nsysdoctor.render.verdicts.verdict import paragraph
from nsysdoctor.render.verdicts.words import value_text
from nsysdoctor.units import count_text, ns_text, ratio_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {
    "worse": "red", "slower": "red", "new": "red", "more": "yellow", "unclear": "cyan",
    "better": "green", "faster": "green", "fixed": "green", "gone": "green", "fewer": "green",
    "less": "green",
}  # fmt: skip
INDENT = " " * 8


def render_diff(diff: Diff, console: Console, *, top: int = 10) -> None:
    """Prints what changed, `top` kernels at most, and counts what did not."""
    console.print(Page(list(_terminal(diff, min(console.width, WIDTH), top))))


def diff_markdown(diff: Diff, *, top: int = 10) -> str:
    """Returns the same as Markdown. Names are data: shown as they are, never read as markup."""
    lines = [f"### nsysdoctor diff: {literal(headline(diff))}", ""]
    lines += [f"- {literal(text)}" for text in (*diff.cautions, *diff.statements)]
    rows: list[tuple[str, str]] = [(change.state, metric_text(change)) for change in diff.metrics]
    rows += [(change.state, kernel_text(change)) for change in diff.kernels[:top]]
    rows += [(change.state, finding_text(change)) for change in diff.findings]
    lines += [f"- **{state}** {literal(text, 400)}" for state, text in rows]
    return "\n".join([*lines, "", f"{literal(calm_text(diff, top))}."]) + "\n"


def _terminal(diff: Diff, width: int, top: int) -> Iterator[Text]:
    yield paragraph(headline(diff), width, style="bold")
    for text in diff.cautions:
        yield paragraph(text, width, "caution ", INDENT, head_style="yellow")
    for text in diff.statements:
        yield paragraph(text, width, "note    ", INDENT, head_style="cyan")
    for change in diff.metrics:
        yield _row(change.state, metric_text(change), width)
    for kernel in diff.kernels[:top]:
        yield _row(kernel.state, kernel_text(kernel), width)
    for finding in diff.findings:
        yield _row(finding.state, finding_text(finding), width)
    yield paragraph(calm_text(diff, top), width, style="bright_black")


def _row(state: str, text: str, width: int) -> Text:
    return paragraph(text, width, f"{state:<8}", INDENT, head_style=STYLES[state])


def headline(diff: Diff) -> str:
    """Returns the most important change in one line, or that there is none."""
    names = f"{diff.before} to {diff.after}"
    if diff.neutral:
        return f"{names}: nothing changed beyond the noise"
    main = [c for c in diff.metrics if c.metric in ("utilization_ratio", "step_ns")]
    for change in main:
        if change.state != "unclear":
            return f"{names}: {metric_text(change)}"
    if main:
        return f"{names}: whether utilization and step time changed is unclear"
    return f"{names}: utilization and step time did not change"


def metric_text(change: MetricChange) -> str:
    """Returns a metric with both values."""
    before, after = value_text(change.unit, change.before), value_text(change.unit, change.after)
    place = f"trace {change.trace} " if change.trace else ""
    place += "" if change.device is None else f"on GPU {change.device} "
    step = " per step" if change.per_step and change.unit != "ratio" else ""
    step = "" if change.metric == "step_ns" else step
    doubt = ", one run a side: the spread is not known" if change.state == "unclear" else ""
    return f"{change.title} {place}{before} -> {after}{step}{doubt}"


def kernel_text(change: KernelChange) -> str:
    """Returns a kernel with its time and launches on both sides."""
    sides = " -> ".join(_side_text(side) for side in (change.before, change.after) if side)
    place = f"trace {change.trace} " if change.trace else ""
    return f"kernel {change.name} on {place}GPU {change.device}: {sides}"


def _side_text(side: KernelSide) -> str:
    count = count_text(side.count) if side.count >= 1 else f"{side.count:.2g}"
    return f"{ns_text(side.total_ns)} ({count} x {ns_text(side.median_ns)})"


def finding_text(change: FindingChange) -> str:
    """Returns a finding with its saving on both sides."""
    ratios = [change.before_ratio, change.after_ratio]
    savings = " -> ".join(ratio_text(ratio) for ratio in ratios if ratio is not None)
    return f"finding {change.rule}: {change.subject}" + (f", saving {savings}" if savings else "")


def calm_text(diff: Diff, top: int) -> str:
    """Returns how much did not change, and how much is not shown."""
    hidden = max(len(diff.kernels) - top, 0)
    more = f"{hidden} more kernels changed; " if hidden else ""
    counts = (
        (diff.unchanged_metrics, "metrics"),
        (diff.unchanged_kernels, "kernels"),
        (diff.unchanged_findings, "findings"),
    )
    return f"{more}unchanged: " + ", ".join(f"{count} {name}" for count, name in counts)
