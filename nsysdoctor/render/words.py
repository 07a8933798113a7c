"""Words that every renderer shares: labels of buckets, causes, devices, savings and skips."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from nsysdoctor.render.savings import listed, saving_text, up_to
from nsysdoctor.report.model import (
    FAILURES,
    START_UP,
    DeviceBudget,
    Finding,
    IdleCause,
    Outcome,
    Report,
    TraceInfo,
)
from nsysdoctor.units import count_text, ns_text, ratio_text

BUCKETS = ("compute", "communication", "copy", "idle")

CAUSES: dict[str, str] = {
    "input_wait": "waiting for input",
    "blocking_copy": "blocking copy",
    "synchronization": "synchronization",
    "launch": "launching work",
    "host_code": "host code",
    "os_wait": "waiting in the OS",
    "allocation": "memory allocation",
    "module_load": "loading code",
    "copy_queue": "copy engine queue",
    "dependency": "another operation",
    "communication": "communication",
    "profiler": "the profiler itself",
    "unknown": "unknown",
}


def cause_label(cause: str) -> str:
    """Returns a cause in words; a cause that only a newer release knows keeps its raw name."""
    return CAUSES.get(cause, cause.replace("_", " "))


def buckets_ns(device: DeviceBudget) -> tuple[int, int, int, int]:
    """Returns the ns of compute, communication, copy and idle, in the order of `BUCKETS`."""
    return (
        device.compute_ns,
        device.exposed_communication_ns,
        device.exposed_copy_ns,
        device.idle_ns,
    )


def shares(values: Sequence[int], cells: int) -> list[int]:
    """Returns whole numbers of cells per value that add up to `cells`.

    Largest remainder, with at least one cell for each value above zero. All zeros give all zeros.
    """
    total = sum(values)
    if total <= 0 or cells <= 0:
        return [0] * len(values)
    exact = [value * cells / total for value in values]
    taken = [max(int(part), 1 if part > 0 else 0) for part in exact]
    order = sorted(range(len(values)), key=lambda i: (taken[i] - exact[i], i))
    for index in order[: max(0, cells - sum(taken))]:
        taken[index] += 1
    while sum(taken) > cells:
        taken[max(range(len(taken)), key=lambda i: (taken[i], -i))] -= 1
    return taken


def trace_label(report: Report, trace: int) -> str:
    """Returns a short name of one trace: its rank where known, else its file name; with its number
    where another one has the same."""
    if not 0 <= trace < len(report.traces):
        return f"trace {trace}"
    names = [_own_label(info) for info in report.traces]
    name = names[trace] or f"trace {trace}"
    return name if names.count(name) <= 1 else f"{name} (trace {trace + 1})"


def _own_label(info: TraceInfo) -> str:
    return PurePath(info.path).name if info.rank is None else f"rank {info.rank}"


def device_label(report: Report, trace: int, device: int | None) -> str:
    """Returns `GPU 0`, with the trace before it where there are several traces."""
    place = "host" if device is None else f"GPU {device}"
    return f"{trace_label(report, trace)}, {place}" if len(report.traces) > 1 else place


def causes_of(report: Report, device: DeviceBudget) -> list[IdleCause]:
    """Returns one device's idle causes, longest first."""
    mine = [
        cause
        for cause in report.idle_causes
        if (cause.trace, cause.device) == (device.trace, device.device) and cause.idle_ns > 0
    ]
    return sorted(mine, key=lambda cause: (-cause.idle_ns, cause.cause))


def to_act_on(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings above info, in their order; what is slow around the work stands
    apart, see `of_start_up`."""
    return [f for f in findings if f.level != "info" and f.category != START_UP]


def of_start_up(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings about what is slow before the work and after it, the longest first."""
    mine = [f for f in findings if f.level != "info" and f.category == START_UP]
    return sorted(mine, key=lambda f: -_spent(f))


def _spent(finding: Finding) -> int:
    return int(finding.facts.get("spent_ns") or 0)


def start_up_text(finding: Finding) -> str:
    """Returns what a finding about start-up or teardown takes."""
    ratio = finding.facts.get("spent_ratio")
    share = f" ({ratio_text(float(ratio))} of all)" if ratio is not None else ""
    return f"takes {ns_text(_spent(finding))}{share}"


def first_cure(report: Report) -> Finding | None:
    """Returns the finding with the largest saving, None where no cure has a price."""
    priced = [finding for finding in to_act_on(report.findings) if finding.worth_ns]
    return max(priced, key=lambda finding: finding.worth_ns, default=None)


def place_text(report: Report, finding: Finding) -> str:
    """Returns the finding's subject, with trace and device where the subject does not name them."""
    parts = [trace_label(report, finding.trace)] if len(report.traces) > 1 else []
    device = f"GPU {finding.device}"
    if finding.device is not None and device not in finding.subject:
        parts.append(device)
    return f"{finding.subject} ({', '.join(parts)})" if parts else finding.subject


@dataclass(frozen=True)
class Piece:
    """A stretch of text that is code or is not."""

    code: bool
    text: str


def blocks(text: str) -> list[Piece]:
    """Returns prose and code in turn: lines indented by four blanks, or fenced, are code.

    An empty line starts a new paragraph; code keeps its own line breaks and further indentation.
    """
    found: list[Piece] = []
    fenced = paragraph = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced, paragraph = not fenced, True
        elif not line.strip() and not fenced:
            paragraph = True
        else:
            code = fenced or line.startswith("    ")
            body = line[4:] if code and not fenced else line
            if found and found[-1].code == code and not (paragraph and not code):
                found[-1] = Piece(code, f"{found[-1].text}\n{body}")
            else:
                found.append(Piece(code, body))
            paragraph = False
    return found


def cure_lead(finding: Finding) -> tuple[str, list[str]]:
    """Returns the first words of the cure in one line, and the lines of code that follow them."""
    pieces = blocks(finding.fix)
    if not pieces:
        return "", []
    if pieces[0].code:
        return "", pieces[0].text.splitlines()
    code = pieces[1].text.splitlines() if len(pieces) > 1 and pieces[1].code else []
    return " ".join(pieces[0].text.split()), code


def cure_text(finding: Finding) -> str:
    """Returns the beginning of the cure, with the code it announces, in one line."""
    lead, code = cure_lead(finding)
    return " ".join(part for part in (lead, "; ".join(line.strip() for line in code)) if part)


def shorten(text: str, width: int) -> str:
    """Returns text in one line of at most `width` characters, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(1, width - 1)].rstrip() + "…"


def clipped(text: str, width: int) -> str:
    """Returns one line of code, its indentation kept, cut with an ellipsis."""
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


def middle(text: str, width: int) -> str:
    """Returns text with its middle cut out: names of kernels differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def holds_kernels(report: Report) -> bool:
    """Returns whether any trace holds kernels or graph replays; True for older reports, which do
    not say."""
    rows = [trace.rows for trace in report.traces]
    return not rows or any(r.get("kernel", 1) or r.get("graph", 1) for r in rows)


def utilization_text(report: Report) -> str:
    """Returns the utilization of all devices in one phrase."""
    ratios = sorted(device.utilization_ratio for device in report.devices)
    if not ratios:
        return "no GPU activity"
    if not holds_kernels(report):
        return "GPU utilization unknown, as the capture holds no kernels"
    if len(ratios) == 1:
        return f"GPU utilization {ratio_text(ratios[0])}"
    low, high = ratio_text(ratios[0]), ratio_text(ratios[-1])
    spread = low if low == high else f"{low} to {high}"
    return f"GPU utilization {spread} on {len(ratios)} GPUs"


def cure_headline(report: Report) -> str:
    """Returns what the best cure saves and what all cures save, in a sentence or two; nothing
    where there is no finding to act on."""
    best = first_cure(report)
    failed = next((f for f in to_act_on(report.findings) if f.category == FAILURES), None)
    if failed is not None:
        return f"{failed.title}: {failed.message}"
    if best is None:
        if to_act_on(report.findings):
            return "The cures of the findings have no price in time."
        return ""
    head = f"{best.title}: the cure saves {saving_text(best)}."
    others = len(best.needs)
    if others and best.saving_with_ns is not None:
        names = [best.title, *(report.findings[need].title for need in best.needs)]
        whole = up_to(best.saving_with_ns, best.saving_with_ratio)
        head = f"{listed(names)} hide each other: their cures together save {whole}."
    if sum(1 for finding in report.findings if finding.worth_ns) < 2 + others:
        return head
    total = f"{ns_text(report.combined_saving_ns)} ({ratio_text(report.combined_saving_ratio)})"
    return f"{head} All cures together save up to {total}."


def window_text(report: Report) -> str:
    """Returns the window that ratios of savings refer to, with the steps inside. For a given window
    (START:END), which may cut operations at its edges and follows the device's clock, the text adds
    how these count and that steps are the host's."""
    basis = {"all": "the whole capture", "steady": "the steady steps", "given": "the given window"}
    text = f"Savings refer to {basis[report.window.basis]}, {ns_text(report.window.span_ns)}"
    steps, given = report.steps, report.window.basis == "given"
    text += "; what begins in it counts whole" if given else ""
    if steps is None:
        none = "the host takes no whole step in it" if given and report.phases else ""
        return f"{text}; {none or 'no iterations recognised'}"
    medians = f"median {ns_text(steps.median_ns)}, p90 {ns_text(steps.p90_ns)}"
    if given:
        whole = "1 whole step" if steps.count == 1 else f"{count_text(steps.count)} whole steps"
        return f"{text}; the host takes {whole} in it, {medians}"
    return f"{text}; {count_text(steps.steady_count)} of {steps.count} steps steady, {medians}"


_FLAG = re.compile(r"--[a-z][a-z-]*(?:=[^\s,;)]+(?:,[^\s;)]+)*)?")
_NOT_RECORDED = frozenset({"--window", "--type"})
"""Options of other commands that reasons name: no recording is made with them."""


def flags(reasons: Iterable[str]) -> str:
    """Returns the nsys options that reasons name, each once; `--trace` values are united."""
    merged: dict[str, dict[str, None]] = {}
    for reason in reasons:
        for flag in _FLAG.findall(reason):
            name, _, value = flag.partition("=")
            if name in _NOT_RECORDED:
                continue
            parts = merged.setdefault(name, {})
            parts.update(dict.fromkeys(part for part in value.rstrip(".").split(",") if part))
    return " ".join(
        name if not values else f"{name}={','.join(values)}" for name, values in merged.items()
    )


def skipped(report: Report) -> list[Outcome]:
    """Returns the rules that could not be judged, by name."""
    return sorted(
        (outcome for outcome in report.outcomes if outcome.state == "skipped"),
        key=lambda outcome: outcome.rule,
    )


def skipped_text(report: Report) -> str:
    """Returns one sentence on what could not be judged and what to record; empty if all was."""
    outcomes = skipped(report)
    if not outcomes:
        return ""
    names = ", ".join(outcome.rule for outcome in outcomes)
    wanted = flags(outcome.reason for outcome in outcomes)
    return f"{names}; record with {wanted}" if wanted else names


def failed_text(report: Report) -> str:
    """Returns one sentence on rules that broke; empty if none did."""
    return "; ".join(f"{o.rule} ({o.reason})" for o in report.outcomes if o.state == "failed")


def dropped_text(report: Report) -> str:
    """Returns one sentence on impossible rows that were left out; empty if there were none."""
    parts = []
    for index, trace in enumerate(report.traces):
        prefix = f"{trace_label(report, index)}: " if len(report.traces) > 1 else ""
        parts += [
            f"{prefix}{count_text(drop.rows)} {drop.table} rows ({drop.reason})"
            for drop in trace.dropped
        ]
    return "; ".join(parts)


def notes_text(report: Report) -> list[str]:
    """Returns the capture notes, with the trace before each where there are several."""
    many = len(report.traces) > 1
    return [
        f"{trace_label(report, note.trace)}: {note.text}" if many else note.text
        for note in report.notes
    ]


def faults_text(report: Report) -> list[str]:
    """Returns why the numbers of each trace are no measurement and what to do; empty if they are
    sound."""
    many = len(report.traces) > 1
    return [
        (f"{trace_label(report, fault.trace)}: " if many else "") + f"{fault.text}; {fault.hint}"
        for fault in report.capture_faults
    ]
