"""Reads kernel names in any form (nsys, c++filt, mangled) and finds their bare function name."""

from __future__ import annotations

import re

from nsysdoctor.arrays.numbers import bounded

_SCOPED = re.compile(r"<unnamed>::|\(anonymous namespace\)::")
_MANGLED = re.compile(r"^_Z")
_TOKEN = re.compile(
    r"(?P<lambda>Ul)|(?P<ident>\d+)|(?P<sub>St|S[0-9A-Z]*_|S[absiod]|T[0-9]*_|D[pv])"
    r"|(?P<end>E(?:\d*_)?)|(?P<literal>L[a-z](?P<value>n?\d+)E)|(?P<op>cl)|(?P<open>[NIJXLZ])"
    r"|(?P<type>[fdijlmxyabchstv])|(?P<skip>.)",
    re.DOTALL,
)
# letters of the Itanium C++ ABI (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-type)
_BUILTIN = {
    "f": "float", "d": "double", "i": "int", "j": "unsigned int", "l": "long",
    "m": "unsigned long", "x": "long long", "y": "unsigned long long", "b": "bool",
    "a": "signed char", "h": "unsigned char", "c": "char", "s": "short", "t": "unsigned short",
    "v": "",
}  # fmt: skip


def short_name(full: str) -> str:
    """The function name without namespaces, return type, template arguments and parameters."""
    path = _outside_brackets(_SCOPED.sub("", full))
    return path.strip().rpartition("::")[2].rpartition(" ")[2]


def _outside_brackets(text: str) -> str:
    """A name up to its parameters, without template arguments."""
    kept: list[str] = []
    depth = start = 0
    for hit in re.finditer(r"[<>(]", text):
        if hit[0] == "(" and depth == 0:
            return "".join(kept) + text[start : hit.start()]
        if hit[0] == "<":
            kept.append(text[start : hit.start()] if depth == 0 else "")
            depth += 1
        elif hit[0] == ">" and depth:
            depth -= 1
            start = hit.end()
    return "".join(kept) + (text[start:] if depth == 0 else "")


def readable(name: str) -> str:
    """Returns a demangled name unchanged, and a mangled one (`_ZN...`) demangled well enough to
    match patterns.

    Covers nested names, template arguments, integer literals and lambdas of the Itanium C++ ABI.
    Substitutions (`S_`, `T0_`), qualifiers and parameter types are left out.
    """
    if not _MANGLED.match(name):
        return name
    out: list[str] = []
    stack: list[str] = []
    at = 2
    while at < len(name):
        token = _TOKEN.match(name, at)
        assert token is not None  # the last alternative takes any character
        at = token.end()
        if token["ident"]:
            at = _identifier(name, token, out)
        elif token["end"]:
            _close(stack, out)
        else:
            _open(token, stack, out)
        if not stack and out:
            break
    return "".join(out)


def _identifier(name: str, token: re.Match[str], out: list[str]) -> int:
    stop = token.end() + (bounded(token["ident"], len(name)) or 0)
    word = name[token.end() : stop]
    anonymous = word.startswith(("_GLOBAL__N", "_INTERNAL"))
    separator = "::" if out and re.search(r"[\w)>}]$", out[-1]) else ""
    out.append(separator + ("(anonymous namespace)" if anonymous else word))
    return stop


def _open(token: re.Match[str], stack: list[str], out: list[str]) -> None:
    if token["lambda"]:
        stack.append("}")
        out.append("::{lambda(")
    elif token["open"]:
        stack.append(">" if token["open"] == "I" else "")
        out.append("<" if token["open"] == "I" else "")
    elif token["literal"]:
        out.append(_comma(out) + token["value"])
    elif token["type"]:
        out.append(_comma(out) + _BUILTIN[token["type"]])


def _close(stack: list[str], out: list[str]) -> None:
    kind = stack.pop() if stack else ""
    out.append(")}" if kind == "}" else kind)


def _comma(out: list[str]) -> str:
    return "" if not out or out[-1].endswith(("<", "(", ", ")) else ", "
