"""Names of kernels and subjects with the parts that differ from run to run folded away."""

from __future__ import annotations

import re

_HEX = re.compile(
    r"0[xX][0-9a-fA-F]+|(?<![0-9A-Za-z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}(?![0-9A-Za-z])"
)
_LAMBDA = re.compile(r"(lambda\([^)]*\))#\d+|lambda_\d+|\{unnamed[^}]*\}")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N__\w+?::|\[clone [^]]*\]")
_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long|short|char|bool|long long)\)(?=-?\d)")
# Compilers of fused kernels number what they generate; the number moves when code moves.
_GENERATED = re.compile(
    r"^((?:triton|cutlass_triton|fusion|wrapped|loop|input|jit|gemm_fusion)\w*?)"
    r"((?:[._]\d+)+)(?=$|\(|_kernel)"
)
_DIGITS = re.compile(r"\d+")
_SPACE = re.compile(r"\s+")


def stable_name(name: str) -> str:
    """Returns the name without what a rebuild or a rerun changes, its meaningful numbers kept.

    Addresses, hashes, numbered lambdas, anonymous namespaces and the running number of generated
    kernels go; tile sizes, template arguments and types stay.
    """
    text = _ANONYMOUS.sub("", name)
    text = _LAMBDA.sub(lambda match: match[1] or "lambda", text)
    text = _HEX.sub("0x", text)
    text = _CAST.sub("", text)
    text = _GENERATED.sub(r"\1", text)
    return _SPACE.sub(" ", text).strip()


def folded_name(name: str) -> str:
    """Returns the stable name with every number folded to `#`: tile sizes and ids match too."""
    return _DIGITS.sub("#", stable_name(name))


def printable(text: str) -> str:
    """Returns the text with whatever XML and terminals cannot carry replaced by a question mark.

    Control characters, lone surrogates and noncharacters go; line feeds and tabs stay.
    """
    return "".join(char if _is_printable(char) else "?" for char in text)


def _is_printable(char: str) -> bool:
    """XML 1.0, section 2.2, and no C1 controls."""
    code = ord(char)
    if code < 0x20:
        return char in "\n\t"
    return not (0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF))
