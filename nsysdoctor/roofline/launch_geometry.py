"""How many elements a launch covers, and the bytes each of them moves, from a kernel's name.

PyTorch's pointwise kernels process a fixed number of elements per thread and name the types they
read and write. They therefore move grid x block x elements per thread x bytes per element. The
figures of each family follow its launch code (ATen/native/cuda: CUDALoops.cuh,
MultiTensorApply.cuh, PersistentSoftmax.cuh, Dropout.cu).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from nsysdoctor.arrays.numbers import bounded
from nsysdoctor.roofline.kernel_names import readable

ITEMSIZES = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "short": 2, "unsigned short": 2, "c10::Half": 2, "c10::BFloat16": 2,
    "int": 4, "unsigned int": 4, "float": 4,
    "long": 8, "long long": 8, "unsigned long": 8, "unsigned long long": 8, "double": 8,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
_MOST_PER_THREAD, _MOST_ARRAYS = 1024, 64
"""A name that tells of more elements per thread or arrays is no kernel's."""

MULTI_TENSOR_CHUNK = 65536


class Span(Enum):
    """How precisely the launch determines the number of elements."""

    FULL = "full"  # every block but the last is full
    CHUNKS = "chunks"  # every block has at least one element
    HALF = "half"  # at least half of the slots are used
    UNCAPPED = "uncapped"  # full, unless the grid was cut to what the device holds


@dataclass(frozen=True)
class Layout:
    """What a kernel's name says about its memory traffic.

    `per_thread` is the number of elements per thread, 0 where it depends on the release of PyTorch;
    `vector` is the width of its vector loads. `bytes_per_element` lists the possible bytes per
    element, largest first: inputs that are broadcast, or narrower than the arithmetic, move fewer.
    `likely` is the index of the usual one.
    """

    per_thread: int
    bytes_per_element: tuple[int, ...]
    likely: int = 0
    vector: int = 0
    out_bytes: int = 0
    span: Span = Span.FULL


def layout_of(full: str) -> Layout | None:
    """Returns what a kernel's name says about its traffic, None if it says nothing."""
    text = plain(full)
    for marker, parse in _FAMILIES:
        if marker in text:
            return parse(text)
    return None


def operand_sizes(full: str) -> tuple[int, ...] | None:
    """Bytes per element of the result, then of each input of a pointwise kernel, by its name.

    None for other kernels, and for those that convert while they load.
    """
    text = plain(full)
    if "LoadWithCast" in text:
        return None
    for kernel, place in (("unrolled_elementwise_kernel", 0), ("vectorized_elementwise_kernel", 1)):
        arguments = template_arguments(text, kernel)
        if len(arguments) > place + 1:
            return itemsizes(arguments[place], _array_length(arguments[place + 1]))
    arguments = template_arguments(text, "elementwise_kernel")
    inner = template_arguments(arguments[2], "gpu_kernel_impl_nocast") if arguments[2:] else []
    return itemsizes(inner[0]) if inner else None


def plain(full: str) -> str:
    """Returns a kernel name in a uniform form: no value casts, no ATen namespaces,
    `{lambda(...)}`."""
    text = re.sub(r"\[lambda\((.*?)\) \(instance \d+\)\]", r"{lambda(\1)}", readable(full))
    text = re.sub(r"(?<=\)\})#\d+|#\d+(?=\})", "", text)
    text = re.sub(r"\((?:int|long|bool|unsigned int|unsigned long(?: long)?)\)(?=-?\d)", "", text)
    text = re.sub(r"at::native::|at::detail::|<unnamed>::|\(anonymous namespace\)::", "", text)
    return re.sub(r"(?<=\w) ?\*", "*", text).replace("> >", ">>").replace("> >", ">>")


def template_arguments(text: str, kernel: str) -> list[str]:
    """The template arguments of `kernel` in a name, in order; empty if there are none."""
    start = text.find(kernel + "<")
    if start < 0:
        return []
    found, depth, at = [], 0, start + len(kernel) + 1
    begin = at
    while at < len(text):
        letter = text[at]
        if (letter == ">" and depth == 0) or (letter == "," and depth == 0):
            found.append(text[begin:at].strip())
            begin = at + 1
            if letter == ">":
                return found
        depth += (letter in "<({[") - (letter in ">)}]")
        at += 1
    return []


def _vectorized(text: str) -> Layout | None:
    arguments = template_arguments(text, "vectorized_elementwise_kernel")
    width = bounded(arguments[0], _MOST_PER_THREAD) if len(arguments) >= 3 else None
    if width is None:
        return None
    sizes = itemsizes(arguments[1], _array_length(arguments[2]))
    if sizes is None:
        return None
    # releases that still had their own array type took 4 elements per thread
    per_thread = 4 if arguments[2].startswith("Array") else 0
    return Layout(per_thread, (sum(sizes),), 0, width, sizes[0])


def _unrolled(text: str) -> Layout | None:
    arguments = template_arguments(text, "unrolled_elementwise_kernel")
    if len(arguments) < 2:
        return None
    sizes = itemsizes(arguments[0], _array_length(arguments[1]))
    if sizes is None:
        return None
    third = arguments[2] if len(arguments) > 2 else ""
    per_thread = bounded(third, _MOST_PER_THREAD) or 4
    if "LoadWithCast" in text:
        return _cast(per_thread, arguments[0], sizes)
    return Layout(per_thread, *_shared(sizes, "TrivialOffset" not in text and not third.isdigit()))


def _legacy(text: str) -> Layout | None:
    """The strided kernel: block size and elements per thread are its first two arguments."""
    arguments = template_arguments(text, "elementwise_kernel")
    per_thread = bounded(arguments[1], _MOST_PER_THREAD) if len(arguments) >= 3 else None
    if per_thread is None or not arguments[0].isdecimal():
        return None
    if inner := template_arguments(arguments[2], "gpu_kernel_impl_nocast"):
        sizes = itemsizes(inner[0])
        return Layout(per_thread, *_shared(sizes, True)) if sizes else None
    inner = template_arguments(arguments[2], "gpu_kernel_impl")
    sizes = itemsizes(inner[0]) if inner else None
    return _cast(per_thread, inner[0], sizes) if sizes else None


def _multi_tensor(text: str) -> Layout | None:
    """One chunk of a tensor per block; the functor's name says how many lists it reads and
    writes."""
    if hit := re.search(r"Fused(?:Adam|Sgd)MathFunctor<([\w:]+), (\d)", text):
        moved = [2 * int(hit[2]) - 1]  # all but the gradient are written back
    elif hit := re.search(r"Functor<([\w:]+), \d, (\d), \d>", text):
        # three lists may be two: x += value * g * g reads g once
        moved = [int(hit[2]) + 1, int(hit[2])][: 2 if hit[2] == "3" else 1]
    if not hit or hit[1] not in ITEMSIZES:
        return None
    sizes = tuple(count * ITEMSIZES[hit[1]] for count in moved)
    return Layout(MULTI_TENSOR_CHUNK, sizes, span=Span.CHUNKS)


def _warp_softmax(text: str) -> Layout | None:
    """Rows of up to 2^n elements, one or two per warp; backward reads two arrays, not one."""
    kernel = "softmax_warp_backward" if "softmax_warp_backward" in text else "softmax_warp_forward"
    arguments = template_arguments(text, kernel)
    power = bounded(arguments[3], 11) if len(arguments) >= 4 else None
    if power is None:
        return None
    read, written = (ITEMSIZES.get(argument) for argument in arguments[:2])
    if read is None or written is None:
        return None
    row = 2**power
    per_warp = row * (2 if row <= 128 else 1)
    moved = written + read * 2 if kernel.endswith("backward") else written + read
    return Layout(max(per_warp // min(row, 32), 1), (moved,), span=Span.HALF)


def _dropout(text: str) -> Layout | None:
    """Reads the data, writes the result and a mask of one byte; one slot per element."""
    hit = re.search(r"fused_dropout_kernel(?:_vec)?<([\w:]+), ", text)
    if not hit or hit[1] not in ITEMSIZES:
        return None
    return Layout(1, (2 * ITEMSIZES[hit[1]] + 1,), span=Span.UNCAPPED)


# longer names first: they contain the shorter ones
_FAMILIES = (
    ("index_elementwise_kernel", lambda text: None),
    ("_scatter_gather_elementwise_kernel", lambda text: None),
    ("unrolled_elementwise_kernel<", _unrolled),
    ("vectorized_elementwise_kernel<", _vectorized),
    ("elementwise_kernel<", _legacy),
    ("multi_tensor_apply_kernel<", _multi_tensor),
    ("softmax_warp_", _warp_softmax),
    ("fused_dropout_kernel", _dropout),
)


def itemsizes(functor: str, arrays: int = 0) -> tuple[int, ...] | None:
    """Returns the bytes per element of the output, then of each input; None if the functor does not
    determine them.

    `arrays` is the number of arrays the kernel takes, 0 if its name does not say. The result is
    None, too, for a functor that contradicts this number.
    """
    head = functor.split("<", 1)[0].rpartition("::")[2]
    types = _operands(head, functor, arrays)
    sizes = tuple(ITEMSIZES.get(name, 0) for name in types)
    return sizes if sizes and all(sizes) and arrays in (0, len(sizes)) else None


def _operands(head: str, functor: str, arrays: int) -> list[str]:
    """The types of the output and the inputs."""
    own = template_arguments(functor, head)
    if head in _WRAPPERS and len(own) >= 3:
        return [own[2], *(own[index] for index in _WRAPPERS[head])]
    called = [types for types in re.findall(r"\{lambda\(([^{}]*?)\)\}", functor) if types]
    if called:
        return _lambda_operands(functor, _split(called[-1]))
    inputs = arrays - 1 if arrays else _INPUTS.get(head, -1)
    result = ["bool"] if head.startswith("Compare") else own[:1]
    return result + own[:1] * inputs if inputs >= 0 else []


# inputs of functors where the name of a strided kernel has no array count
_INPUTS = {
    "FillFunctor": 0, "AbsFunctor": 1, "CUDAFunctorOnSelf_add": 1, "CUDAFunctorOnOther_add": 1,
    "CUDAFunctor_add": 2, "CompareFunctor": 2,
}  # fmt: skip
_WRAPPERS = {"BinaryFunctor": (0, 1), "AUnaryFunctor": (1,), "BUnaryFunctor": (0,)}
_PREDICATE = re.compile(r"logical_|isnan|isinf|isfinite|isposinf|isneginf|signbit|compare")


def _lambda_operands(functor: str, inputs: list[str]) -> list[str]:
    """The result type of a lambda is not in its name: most return the type they compute in."""
    if _PREDICATE.search(functor):
        return ["bool", *inputs]
    if "bfloat16_copy" in functor or "float16_copy" in functor:
        return ["c10::Half", *inputs]
    return [next((name for name in inputs if name != "bool"), "bool"), *inputs]


def _split(types: str) -> list[str]:
    return template_arguments(f"x<{types}>", "x")


def _array_length(argument: str) -> int:
    hit = re.search(r"\b(?:array|Array)<char\*?, (\d+)(?:ul|ull)?>", argument)
    return (bounded(hit[1], _MOST_ARRAYS) or 0) if hit else 0


def _shared(sizes: Sequence[int], shared: bool) -> tuple[tuple[int, ...], int]:
    """All arrays moved; where inputs may be broadcast, also every subset of them."""
    out, inputs = sizes[0], sizes[1:]
    if not shared:
        return (sum(sizes),), 0
    sums = {
        out + sum(kept) for count in range(len(inputs) + 1) for kept in combinations(inputs, count)
    }
    return tuple(sorted(sums, reverse=True)), 0


def _cast(per_thread: int, functor: str, sizes: Sequence[int]) -> Layout:
    """A kernel that converts while it loads: at least one array is not of the functor's type.

    A copy is named after its output; its input is mostly twice or half as wide. Arithmetic
    mostly runs in fp32 on some inputs of half the size.
    """
    if "copy" in functor:
        out = sizes[0]
        widths = tuple(sorted({out + width for width in (1, 2, 4, 8)}, reverse=True))
        return Layout(per_thread, widths, widths.index(out + (2 if out >= 4 else 4)))
    narrow = [max(size // 2, 1) for size in sizes]
    steps = tuple(sum(sizes[: len(sizes) - n]) + sum(narrow[len(sizes) - n :])
                  for n in range(len(sizes) + 1))  # fmt: skip
    return Layout(per_thread, steps, min(1, len(steps) - 1))
