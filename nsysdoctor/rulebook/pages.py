"""A rule's page: the one text behind `rules explain` and the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from nsysdoctor.rulebook.rule import Rule

_NAMES = {
    "pytorch": "PyTorch", "jax": "JAX", "cupy": "CuPy", "numba": "Numba", "rapids": "RAPIDS",
    "julia": "Julia", "cuda": "CUDA C++", "stdpar": "C++ standard parallelism",
    "fortran": "CUDA Fortran", "openmp": "OpenMP", "openacc": "OpenACC and OpenMP",
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
    for variant, texts in words.variants.items():
        for ecosystem, text in texts.items():
            title = f"{part} {_NAMES[ecosystem]}: {variant.replace('_', ' ')}"
            parts += [title, _spaced(text.strip())]
    for title, text in _examples(words.example):
        parts += [f"{part} {title}", textwrap.indent(text.strip(), "    ")]
    if words.params:
        rows = [f"- `{n}` = {p.default}: {p.help}" for n, p in sorted(words.params.items())]
        parts += [f"{part} Numbers you can set", "\n".join(rows)]
    if words.references:
        parts += [f"{part} Sources", "\n".join(f"- {source}" for source in words.references)]
    return "\n\n".join(parts) + "\n"


def _examples(example: dict[str, str | dict[str, str]]) -> Iterator[tuple[str, str]]:
    """The titles and texts of examples, those of an ecosystem with its name."""
    for kind, text in example.items():
        if isinstance(text, str):
            yield f"Example: {kind}", text
        else:
            yield from ((f"Example, {_NAMES[kind]}: {k}", v) for k, v in text.items())


def _spaced(text: str) -> str:
    """The text with a blank line wherever prose and indented code meet, as Markdown asks."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line and lines[-1] and line.startswith("    ") != lines[-1].startswith("    "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
