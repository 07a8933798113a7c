"""Reads the text of an annotated range: operator, module, shapes, types."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nsysdoctor.arrays.numbers import bounded

Shape = tuple[int, ...]

OPERATOR, BACKWARD, MODULE, FUNCTION = "operator", "backward", "module", "function"

# A text without any of these has no known form, which holds for most ranges of most traces:
_TELLING = re.compile(r"[:.{,]|Backward|^module ")
_VARYING = re.compile(r", (?:seq|op_id) = -?\d+|, input_op_ids = \[[^\[\]]*\]$")
_SEQ = re.compile(r", seq = (\d+)")
_FIELD = re.compile(r", (sizes|dtypes|settings) = ")
_BACKWARD = re.compile(r"(?:autograd::engine::evaluate_function: )?(\w*Backward\d*)$")
_OWN_MODULE = re.compile(r"module (\S*) \(([^()]*)\)$")
_NAMESPACED = re.compile(r"[A-Za-z_]\w*::[\w.]+$")
_TSL = re.compile(r"(\w+):#(.*)#$", re.DOTALL)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:[.#][A-Za-z_<]\w*>?)+$")
_LONGEST_LITERAL = 100_000
_LARGEST_SIZE = 2**40
"""No tensor is longer along an axis; what a text tells beyond that is no shape."""


@dataclass(frozen=True)
class Annotation:
    """What a range stands for.

    `kind` is operator, backward (a node of autograd), module, function (a named piece of code) or
    "" for texts of no known form. `name` is the operator, node, class or function; `module` the
    dotted path of a module. `sizes` has a shape per argument, () for what is no tensor, and
    `dtypes` a type per argument, where recorded. `settings` are a module's fixed parameters.
    """

    kind: str
    name: str
    module: str = ""
    sizes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict, hash=False)


    def as_operator(self) -> Annotation | None:
        """Returns the operator that a range stands for, None if it stands for none.

        A module of known kind is the operator that does its work, on its first input and its
        weights; what runs in it is that operator unless a range inside says otherwise.
        """
        if self.kind != MODULE:
            return self if self.kind == OPERATOR else None
        weights = self.settings.get("weights")
        known = weights if isinstance(weights, dict) else {}
        parameters = _shapes([known[key] for key in ("weight", "bias") if known.get(key)])
        name = next((name for key, name in _BY_SETTING if key in self.settings), "")
        if not name or not parameters or not self.sizes or not self.sizes[0]:
            return None
        data, types = self.sizes[0], self.dtypes[:1] * (1 + len(parameters))
        if name == "embedding":
            data, parameters, types = parameters[0], [data], ()
        return Annotation(OPERATOR, name, self.module, (data, *parameters), types, self.settings)


# a fixed parameter that only one kind of module has, and the operator that does its work
_BY_SETTING = (
    ("in_features", "linear"),
    ("kernel_size", "convolution"),
    ("normalized_shape", "layer_norm"),
    ("num_embeddings", "embedding"),
)


def read_text(text: str) -> tuple[Annotation, int]:
    """Returns what a range's text stands for, and its sequence number, -1 where it has none.

    A forward operator and the node of its gradient carry the same sequence number. Known forms:
    PyTorch's `emit_nvtx` (`NAME, seq = N, op_id = N, sizes = [...]`), the markers of
    `nsysdoctor.torch`, Python dictionaries of layer-wise hooks and of DLProf, `Prefix:#key=value#`
    of XLA, and the dotted function names of Megatron and DeepSpeed.
    """
    if not _TELLING.search(text):
        return Annotation("", text), -1
    number = _SEQ.search(text)
    told = bounded(number[1]) if number else None
    return _read(_VARYING.sub("", text), number is not None), -1 if told is None else told


def title(text: str) -> str:
    """Returns what to call a range in a sentence: the text without numbers and shapes."""
    said, _ = read_text(text)
    if said.kind == MODULE:
        return f"{said.module or 'the model'} ({said.name})" if said.name else said.module
    return said.name


@lru_cache(maxsize=1 << 16)
def _read(text: str, numbered: bool) -> Annotation:
    if text.startswith("{"):
        return _from_dict(text)
    if hit := _TSL.match(text):
        return _from_xla(hit[1], hit[2])
    return _from_fields(*_fields(text), numbered)


def _from_fields(name: str, fields: Mapping[str, str], numbered: bool) -> Annotation:
    if module := _OWN_MODULE.match(name):
        return Annotation(MODULE, module[2], module[1], *_operands(fields), _settings(fields))
    if node := _BACKWARD.match(name):
        return Annotation(BACKWARD, node[1])
    if numbered or "sizes" in fields or _NAMESPACED.match(name):
        return Annotation(OPERATOR, name, "", *_operands(fields), _settings(fields))
    return Annotation(FUNCTION if _DOTTED.match(name) else "", name)


def _fields(text: str) -> tuple[str, dict[str, str]]:
    """The name before the first field, and the text of each field."""
    hits = list(_FIELD.finditer(text))
    bounds = [*(hit.start() for hit in hits), len(text)]
    pairs = zip(hits, bounds[1:], strict=True)
    return text[: bounds[0]], {hit[1]: text[hit.end() : end] for hit, end in pairs}


def _operands(fields: Mapping[str, str]) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    sizes = tuple(_shapes(_json(fields.get("sizes", "[]"))))
    types = fields.get("dtypes", "").strip("[]")
    dtypes = tuple(word.strip() for word in types.split(",")) if types else ()
    return sizes, dtypes if len(dtypes) == len(sizes) else ()


def _settings(fields: Mapping[str, str]) -> dict[str, object]:
    value = _literal(fields.get("settings", "{}"))
    return value if isinstance(value, dict) else {}


def _json(text: str) -> Any:
    """The JSON value that a text holds, None if the text was cut or is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _literal(text: str) -> Any:
    """The Python value that a text holds, None if it holds none."""
    try:
        return ast.literal_eval(text) if len(text) <= _LONGEST_LITERAL else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _shapes(value: Any) -> list[Shape]:
    """A shape per argument; the tensors of a list become arguments of their own."""
    found: list[Shape] = []
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else ():
        if not isinstance(item, Sequence) or isinstance(item, str):
            return []
        if all(_is_size(size) for size in item):
            found.append(tuple(item))
        elif any(isinstance(size, int | float) for size in item):
            return []
        else:
            found.extend(_shapes(item))
    return found


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_SIZE


def _from_dict(text: str) -> Annotation:
    """Layer-wise hooks of vLLM, SGLang and TensorRT-LLM, and the argument records of DLProf."""
    record = _literal(text)
    if not isinstance(record, dict):
        return Annotation("", text)
    if isinstance(record.get("Module"), str):
        fixed = record.get("StaticParams")
        settings = dict(fixed) if isinstance(fixed, dict) else {}
        settings["weights"] = record.get("TrainableParams")
        inputs = tuple(_shapes(record.get("Inputs", [])))
        return Annotation(MODULE, "", record["Module"], inputs, settings=settings)
    if isinstance(record.get("op"), str) and isinstance(record.get("args"), list):
        return _from_arguments(record["op"], record["args"])
    return Annotation("", text)


def _from_arguments(name: str, arguments: Sequence[Any]) -> Annotation:
    known = [row for row in arguments if isinstance(row, dict)]
    tensors = [row.get("type") == "tensor" for row in known]
    sizes = [
        tuple(_shapes([row.get("shape", ())])) if is_tensor else ((),)
        for row, is_tensor in zip(known, tensors, strict=True)
    ]
    dtypes = [
        str(row.get("dtype", "")) if is_tensor else ""
        for row, is_tensor in zip(known, tensors, strict=True)
    ]
    settings = {
        str(row["name"]): row.get("value") for row in known if row.get("name") and "value" in row
    }
    if any(len(shape) != 1 for shape in sizes):
        return Annotation(OPERATOR, name, settings=settings)
    return Annotation(
        OPERATOR, name, "", tuple(shape[0] for shape in sizes), tuple(dtypes), settings
    )


def _from_xla(prefix: str, body: str) -> Annotation:
    """`Thunk:#hlo_op=NAME#` is an operation, `XlaModule:#hlo_module=NAME#` the program it is in."""
    pairs = (part.partition("=") for part in body.split(","))
    fields = {key.strip(): value for key, _, value in pairs}
    if name := fields.get("hlo_op"):
        return Annotation(OPERATOR, name, fields.get("hlo_module", ""))
    if module := fields.get("hlo_module") or fields.get("module"):
        return Annotation(MODULE, prefix, module)
    return Annotation(FUNCTION, prefix)
