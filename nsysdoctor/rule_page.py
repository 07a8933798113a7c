"""A rule's page: the one text behind `rules explain` and the documentation."""

from __future__ import annotations

import textwrap

from nsysdoctor.rule import Rule

_NAMES = {
    "pytorch": "PyTorch", "jax": "JAX", "cuda": "CUDA C++", "openacc": "OpenACC and OpenMP",
    "any": "Cure",
}  # fmt: skip


def rule_page(rule: Rule) -> str:
    """Returns the rule's page as Markdown: what, why, cures, examples, numbers, sources."""
    words = rule.words
    parts = [f"# {rule.name}", words.title + ".", words.why.strip()]
    if words.needs:
        parts.append("Needs the tables: " + ", ".join(words.needs) + ".")
    for ecosystem, text in words.fix.items():
        parts += [f"## {_NAMES[ecosystem]}", text.strip()]
    for kind, text in words.example.items():
        parts += [f"## Example: {kind}", textwrap.indent(text.strip(), "    ")]
    if words.params:
        rows = [f"- `{n}` = {p.default}: {p.help}" for n, p in sorted(words.params.items())]
        parts += ["## Numbers you can set", "\n".join(rows)]
    if words.references:
        parts += ["## Sources", "\n".join(f"- {source}" for source in words.references)]
    return "\n\n".join(parts) + "\n"
