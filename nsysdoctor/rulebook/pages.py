"""A rule's page: the one text behind `rules explain` and the documentation."""

from __future__ import annotations

import textwrap

from nsysdoctor.rulebook.rule import Rule

_NAMES = {
    "pytorch": "PyTorch", "jax": "JAX", "cuda": "CUDA C++", "openacc": "OpenACC and OpenMP",
    "any": "Cure",
}  # fmt: skip


def rule_page(rule: Rule, level: int = 1) -> str:
    """Returns the rule's page as Markdown: what, why, cures, examples, numbers, sources.

    `level` is that of its heading; those of its parts are one lower.
    """
    words, part = rule.words, "#" * (level + 1)
    parts = [f"{'#' * level} {rule.name}", words.title + ".", words.why.strip()]
    if words.needs:
        parts.append("Needs the tables: " + ", ".join(words.needs) + ".")
    for ecosystem, text in words.fix.items():
        parts += [f"{part} {_NAMES[ecosystem]}", _spaced(text.strip())]
    for kind, text in words.example.items():
        parts += [f"{part} Example: {kind}", textwrap.indent(text.strip(), "    ")]
    if words.params:
        rows = [f"- `{n}` = {p.default}: {p.help}" for n, p in sorted(words.params.items())]
        parts += [f"{part} Numbers you can set", "\n".join(rows)]
    if words.references:
        parts += [f"{part} Sources", "\n".join(f"- {source}" for source in words.references)]
    return "\n\n".join(parts) + "\n"


def _spaced(text: str) -> str:
    """The text with a blank line wherever prose and indented code meet, as Markdown asks."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line and lines[-1] and line.startswith("    ") != lines[-1].startswith("    "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
