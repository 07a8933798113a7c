"""Where the lost time went, in words: what has a cure, and what owns the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nsysdoctor.render import words
from nsysdoctor.render.moments import moment
from nsysdoctor.report.model import LostTime, Report
from nsysdoctor.units import count_text, ns_text, ratio_text

NAMES = 4
BUSY_RATIO = 0.9
"""A device that loses more than the rest is not said to be well."""

_SMALL_RATIO, _UNNAMED_RATIO = 0.01, 0.1
_AROUND = ("before", "after")
_SLEEPS = ("", "poll", "epoll_wait", "pthread_cond_wait", "pthread_cond_timedwait", "futex")
_SAMPLING = "--sample=process-tree --cpuctxsw=process-tree --cudabacktrace=all"
_PHASES = {"start_up": "start-up", "warm_up": "warm-up", "pause": "a pause", "tail": "the tail"}
_BY_DEVICE = {
    "dependency": "passing on from one operation to the next",
    "copy_queue": "the queue of the copy engine",
}


@dataclass
class Owner:
    """The name of an owner of lost time, how much of it no finding's cure addresses, and the row
    with the longest stretch."""

    label: str
    ns: int = 0
    longest: LostTime | None = None

    def add(self, row: LostTime, ns: int) -> None:
        """Adds the time of a row."""
        self.ns += ns
        if self.longest is None or row.longest_ns > self.longest.longest_ns:
            self.longest = row


def verdict(report: Report) -> list[str]:
    """Returns the sentences that open a report: what the best cure saves, how much of the lost
    time has a cure and where the rest went, and what to record to learn more."""
    told = (_cures(report), _account(report), _around(report), _to_record(report))
    return [text for text in told if text]


def _around(report: Report) -> str:
    """What is slow before the work and after it."""
    slow = words.of_start_up(report.findings)
    if not slow:
        return ""
    parts = [f"{f.facts.get('what')} {words.start_up_text(f)}" for f in slow[:3]]
    return f"Around the work, apart from this: {', '.join(parts)}."


def lost_and_span_ns(report: Report) -> tuple[int, int]:
    """Returns the lost time of all devices in their spans, and the sum of the spans, both in ns."""
    whole = sum(device.span_ns for device in report.devices)
    return whole - sum(device.compute_ns for device in report.devices), whole


def is_busy(report: Report) -> bool:
    """Returns whether every device works for most of its span and the rules had the data to
    look."""
    lost = (1 - d.compute_ns / d.span_ns for d in report.devices if d.span_ns)
    looked = all(trace.rows.get("api", 0) > 0 for trace in report.traces)
    return looked and not report.capture_faults and max(lost, default=0.0) <= 1 - BUSY_RATIO


def _cures(report: Report) -> str:
    if words.to_act_on(report.findings):
        return words.cure_headline(report)
    if not is_busy(report):
        return ""
    return "Nothing found that is worth curing."


def _account(report: Report) -> str:
    """The sentence on how much of the lost time cures address, and what owns the rest."""
    lost, whole = lost_and_span_ns(report)
    if not whole or (is_busy(report) and not words.to_act_on(report.findings)):
        return ""
    if not lost:
        return "" if words.to_act_on(report.findings) else _blind(report)
    claimed = sum(row.claimed_ns for row in inside(report))
    names = owners(report)
    rest, share = lost - claimed, ratio_text((lost - claimed) / whole)
    named = f": {_list(report, names)}" if names else ""
    if not claimed:
        return f"No cure known for the {ns_text(lost)} ({share}){' of' if named else ''}{named}."
    of = f"Of the {ns_text(lost)} lost ({ratio_text(lost / whole)}) cures address"
    if rest < _SMALL_RATIO * whole:
        return f"{of} {ns_text(claimed)}."
    return f"{of} {ns_text(claimed)}; no cure known for the other {ns_text(rest)} ({share}){named}."


def _blind(report: Report) -> str:
    """The sentence for busy devices that the rules had no data to look into."""
    few = any(trace.rows.get("api", 0) == 0 for trace in report.traces)
    text = "No time is lost; the capture holds no CUDA calls, so few rules could look."
    return text if few else ""


def inside(report: Report) -> list[LostTime]:
    """Returns the rows of lost time that lie in the spans of the devices."""
    return [row for row in report.lost_time if row.phase not in _AROUND]


def owners(report: Report) -> list[Owner]:
    """Returns the owners of the lost time that no finding's cure addresses, the largest first."""
    found: dict[str, Owner] = {}
    for row in inside(report):
        ns = row.ns - row.claimed_ns
        if ns > 0:
            label = owner_label(row)
            found.setdefault(label, Owner(label)).add(row, ns)
    if not report.lost_time:
        found = {o.label: o for o in _from_causes(report)}
    return sorted(found.values(), key=lambda owner: (-owner.ns, owner.label))


def _from_causes(report: Report) -> Iterable[Owner]:
    """The owners for older reports, which hold only causes and buckets."""
    total: dict[str, int] = {}
    for cause in report.idle_causes:
        label = words.cause_label(cause.cause)
        total[label] = total.get(label, 0) + cause.idle_ns
    copy = sum(d.exposed_copy_ns for d in report.devices)
    peers = sum(d.exposed_communication_ns for d in report.devices)
    total |= {"copies beside no compute": copy, "collectives beside no compute": peers}
    return (Owner(label, ns) for label, ns in total.items() if ns)


def owner_label(row: LostTime) -> str:
    """Returns the name for the owner of a row; an OS call inside a CUDA call goes by the CUDA
    call."""
    cause = words.cause_label(row.cause)
    if row.cause in _BY_DEVICE:
        return _BY_DEVICE[row.cause]
    if row.culprit_kind == "none":
        return "unknown waits" if row.cause == "unknown" else f"{cause} that nothing names"
    if row.culprit_kind == "os_call":
        name, _, call = row.culprit.partition(" in ")
        return call or f"{name} ({cause})"
    if row.culprit == "others":
        return f"{cause} in many places"
    if row.culprit_kind in ("range", "function", "operation", "thread_state"):
        return f"{cause} in {row.culprit}"
    return row.culprit


def _list(report: Report, names: list[Owner]) -> str:
    parts = [f"{words.shorten(o.label, 60)} {ns_text(o.ns)}" for o in names[:NAMES]]
    if parts and names[0].longest is not None:
        parts[0] += f" ({place_of(report, names[0].longest)})"
    more = names[NAMES:]
    if more:
        rest = sum(owner.ns for owner in more)
        parts.append(f"{count_text(len(more))} more {ns_text(rest)}")
    return ", ".join(parts)


def place_of(report: Report, row: LostTime) -> str:
    """Returns in words where the longest stretch of a row lies."""
    at = moment(report, row.trace, row.longest_start_ns)
    parts = [f"longest {ns_text(row.longest_ns)} at {at}"]
    if row.thread:
        parts.append(row.thread)
    if row.range and row.culprit_kind != "range":
        parts.append(f"in range {words.shorten(row.range, 40)}")
    if row.phase in _PHASES:
        parts.append(f"in {_PHASES[row.phase]}")
    return ", ".join(parts)


def _to_record(report: Report) -> str:
    """The sentence with the flags that would name unnamed time, where there is much of it and they
    were not used."""
    lost, whole = lost_and_span_ns(report)
    host = [
        row
        for row in inside(report)
        if row.cause in ("host_code", "os_wait", "input_wait")
        and row.culprit.partition(" in ")[0] in _SLEEPS
    ]
    unnamed = sum(row.ns for row in host)
    if not whole or unnamed < _UNNAMED_RATIO * lost or lost < (1 - BUSY_RATIO) * whole:
        return ""
    flags = _flags(report, any(row.cause == "host_code" for row in host), host)
    if not flags:
        return ""
    return f"What the host does for {ns_text(unnamed)} has no name; record with {flags}."


def _flags(report: Report, own_code: bool, host: list[LostTime]) -> str:
    """The flags that were not used and would name what the host does."""
    recorded = [trace.rows for trace in report.traces]

    def lacks(name: str) -> bool:
        return any(rows.get(name, 0) == 0 for rows in recorded)

    flags = []
    if own_code and lacks("sample"):
        flags.append(_SAMPLING)
        if any("python" in row.thread or "pt_" in row.thread for row in host):
            flags.append("--python-sampling=true")
    if lacks("nvtx") or lacks("osrt"):
        flags.insert(0, "--trace=cuda,nvtx,osrt")
    return " ".join(flags)
