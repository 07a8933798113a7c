"""What a cure saves, alone and together with the cures that it needs, in words."""

from __future__ import annotations

from collections.abc import Sequence

from nsysdoctor.report.model import Finding, Report
from nsysdoctor.units import ns_text, ratio_text


def saving_text(finding: Finding, numbered: bool = True) -> str:
    """Returns `up to 812 ms (19.3 %)`, or says that the cure has no price; with the others that
    the cure needs, told by their numbers where findings are `numbered`."""
    if finding.needs and finding.saving_with_ns is not None:
        those = [str(need + 1) for need in finding.needs]
        if follows(finding):
            lead = f"after {listed(those)}" if numbered else "then"
            return f"{lead} up to {ns_text(finding.worth_ns)}"
        lead = f"with {listed(those)}" if numbered else "together"
        return f"{lead} {up_to(finding.saving_with_ns, finding.saving_with_ratio)}"
    if finding.saving_ns is None:
        return "not priced"
    if finding.saving_ns <= 0:
        return "no saving"
    return up_to(finding.saving_ns, finding.saving_ratio)


def up_to(saving_ns: int, ratio: float | None) -> str:
    """Returns `up to 812 ms (19.3 %)`, without the share where none is known."""
    share = "" if ratio is None else f" ({ratio_text(ratio)})"
    return f"up to {ns_text(saving_ns)}{share}"


def listed(texts: Sequence[str]) -> str:
    """Returns texts as `a, b and c`."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def needs_text(report: Report, finding: Finding) -> str:
    """Returns a sentence on the cures without which this one helps less or not at all, empty for
    one that needs none."""
    if not finding.needs or finding.saving_with_ns is None:
        return ""
    others = listed([f"“{report.findings[need].title}”" for need in finding.needs])
    own = finding.saving_ns or 0
    alone = up_to(own, finding.saving_ratio) if own > 0 else "nothing"
    whole = up_to(finding.saving_with_ns, finding.saving_with_ratio)
    if follows(finding):
        return (
            f"Another fault hides this one: alone the cure saves {alone}, after the cure of "
            f"{others} it adds up to {ns_text(finding.worth_ns)}."
        )
    return (
        f"These faults hide each other: this cure alone saves {alone}, together with the cure of "
        f"{others} it is {whole}."
    )


def range_text(finding: Finding) -> str:
    """Returns the low and high estimate of a saving, empty where both are the same."""
    low, high = finding.saving_low_ns, finding.saving_high_ns
    if finding.needs or low is None or high is None or low == high:
        return ""
    return f"between {ns_text(low)} and {ns_text(high)}"


def follows(finding: Finding) -> bool:
    """Returns whether the cure helps after others that do not need it."""
    return (finding.saving_added_ns or 0) < (finding.saving_with_ns or 0)
