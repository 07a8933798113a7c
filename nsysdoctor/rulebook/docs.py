"""All rules as one page: `python -m nsysdoctor.rulebook.docs docs/rules.md`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nsysdoctor.rulebook.pages import rule_page
from nsysdoctor.rulebook.rule import Rule, load_rules

_HEAD = """# Rules

What nsysdoctor looks for, by category. Each rule ends *found*, *passed*, *skipped* (the trace lacks
what it needs; the report names the nsys option that records it) or *failed*. The level of a finding
follows from what its cure saves of the window: high from 10 %, medium from 3 %, low from 1 %, else
it is for the record. `nsysdoctor rules explain NAME` prints one of these pages.

This page is made from the rules: `python -m nsysdoctor.rulebook.docs docs/rules.md`."""


def rules_document(rules: Sequence[Rule]) -> str:
    """Returns the page as Markdown: an index by category, then every rule's own page."""
    categories = sorted({rule.words.category for rule in rules})
    ordered = [rule for name in categories for rule in rules if rule.words.category == name]
    rows = [
        f"| {rule.words.category} | [{rule.name}](#{rule.name}) | {rule.words.title} |"
        for rule in ordered
    ]
    index = "\n".join(["| category | rule | finds |", "|---|---|---|", *rows])
    pages = [rule_page(rule, 2).rstrip() for rule in ordered]
    return "\n\n".join([_HEAD, index, *pages]) + "\n"


def main(words: Sequence[str]) -> None:
    """Writes the page of the built-in rules into the file named, else prints it."""
    text = rules_document(load_rules())
    if words:
        Path(words[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
