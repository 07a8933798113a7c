"""What a frame of a call stack is: whose code it belongs to, and how it is called in a sentence."""

from __future__ import annotations

import re
from enum import IntEnum


class Role(IntEnum):
    """Whose code a frame is, from what nobody asked for to what somebody wrote."""

    NOTHING = 0
    """No place in a program: a stack that was cut, the start of a thread."""
    KERNEL = 1
    SYSTEM = 2
    """The C and C++ library, the loader."""
    PROFILER = 3
    LIBRARY = 4
    """CUDA, its libraries, MPI and what lies below: called by somebody, and costly."""
    INTERPRETER = 5
    CODE = 6
    """The program's own code or that of its framework."""


_STARTS = re.compile(
    r"_start|(__GI_)?_*libc_start_(main|call_main).*|(__GI_)?_*clone3?|start_thread|_dl_start_user"
    r"|_dl_start|std::thread::.*|std::sys::.*|std::rt::.*|execute_native_thread_routine"
)
_KERNEL_MODULE = re.compile(
    r"\[?(kernel|vmlinux|nvidia|guest\.kernel)\b.*|.*\.ko(\.\w+)?$|\[nvidia.*"
)
_SYSTEM_MODULE = re.compile(
    r"(libc|libm|ld|ld-linux.*|libpthread|libstdc\+\+|libc\+\+|libgcc_s|libdl|librt|libmvec"
    r"|libjemalloc|libtcmalloc\w*|libmimalloc|msvcrt|ntdll|kernelbase|kernel32|ucrtbase)"
    r"([-.].*)?$",
    re.I,
)
_PROFILER_MODULE = re.compile(r"(lib)?(ToolsInjection|cupti|nvperf|nsys)", re.I)
_LIBRARY_MODULE = re.compile(
    r"(libcu(da|dart|blas|blaslt|dnn|fft|rand|sparse|solver|tensor|dss|file|pti)\w*"
    r"|libnv(rtc|jpeg|jitlink|idia|shmem|tx|vm|infer|onnxparser)[-\w]*|libnccl\w*|libuc[pst]\w*"
    r"|libmpi\w*|libopen-(pal|rte)|libpmix|libfabric|libibverbs|libmlx\w*|librdmacm|libhcoll\w*"
    r"|libgomp|libiomp5|libomp|libnvomp|libacc\w*|libtbb\w*|nvcuda\w*|cudart\w*|cublas\w*|cudnn\w*)"
    r"([-.].*)?$",
    re.I,
)
_LIBRARY_SYMBOL = re.compile(
    r"(__cudart\w*|cuda[A-Z]\w*|cu[A-Z]\w*|cublas\w+|cudnn[A-Z]\w*|cufft[A-Z]\w*|cusparse[A-Z]\w*"
    r"|libcudart_static_\w+|cusolver\w+|curand[A-Z]\w*|nccl[A-Z]\w*|nvrtc[A-Z]\w*|P?MPI_\w+|MPI[DR]I?_\w+)(_v\d+)?$"
)
_WRAPPER = re.compile(r"cudaError\s|cudaError_enum\s|(static\s+)?cudaError_t\s|_*cuda[A-Z]\w*[<(]")
_TEMPLATE_NOISE = re.compile(
    r"(?:[\w:<>,&*\s]*?[\s&*])?(?:std|__gnu_cxx|_STL|__cxxabiv1|core|alloc)::"
    r"|operator (new|delete)|__tls_get_addr|<?core::|<?alloc::"
)
_INTERPRETER_MODULE = re.compile(r"(lib)?python\d[\w.]*$|libpython.*|python\.exe|libjulia.*", re.I)
_INTERPRETER_SYMBOL = re.compile(
    r"_?Py([A-Z]\w*)?_\w+|_?Py[A-Z]\w+|cfunction_\w+|method_vectorcall\w*|_?vectorcall\w*|object_\w+"
    r"|slot_tp_\w+|type_call|gc_collect\w*|take_gil|drop_gil|builtin_\w+|partial_\w+|jl_\w+|ijl_\w+"
)
_MODULES = (
    (re.compile("the (kernel|clock)$"), Role.KERNEL),
    (_KERNEL_MODULE, Role.KERNEL),
    (_PROFILER_MODULE, Role.PROFILER),
    (_LIBRARY_MODULE, Role.LIBRARY),
    (_SYSTEM_MODULE, Role.SYSTEM),
    (_INTERPRETER_MODULE, Role.INTERPRETER),
)
_CUT = re.compile(r"\[(max depth|broken backtraces?|unknown|no stack)\]", re.I)
_ADDRESS = re.compile(r"0x[0-9a-f]+$", re.I)


def module_name(module: str) -> str:
    """Returns the file name of a module."""
    return _SAID.get(module.lower(), re.split(r"[\\/]", module)[-1])


_SAID = {"[kernel.kallsyms]": "the kernel", "[kernel]": "the kernel", "[vdso]": "the clock"}


def is_told(symbol: str, *, unresolved: bool) -> bool:
    """Returns whether a symbol names a function: it is no address and was not taken out."""
    return not unresolved and bool(symbol) and symbol != "(removed)" and not _ADDRESS.match(symbol)


def role_of(symbol: str, module: str, *, told: bool, special: bool = False) -> Role:
    """Returns whose code a frame is."""
    if special or _CUT.match(symbol) or _CUT.match(module):
        return Role.NOTHING
    name = module_name(module)
    known = next((role for pattern, role in _MODULES if pattern.match(name)), Role.CODE)
    if known == Role.SYSTEM and told and _STARTS.fullmatch(symbol):
        return Role.NOTHING
    if symbol.startswith("NSYS_"):
        return Role.PROFILER
    return _own_role(symbol) if known == Role.CODE and told else known


def _own_role(symbol: str) -> Role:
    """Whose code a function is that lies in a program's own file, or in its framework's."""
    if _STARTS.fullmatch(symbol):
        return Role.NOTHING
    if _LIBRARY_SYMBOL.match(symbol) or _WRAPPER.match(symbol):
        return Role.LIBRARY
    if _INTERPRETER_SYMBOL.fullmatch(symbol):
        return Role.INTERPRETER
    return Role.SYSTEM if _TEMPLATE_NOISE.match(symbol) else Role.CODE


_VERSION = re.compile(r"@+[A-Z]+_[\d.]*$|\.(isra|part|constprop|cold|lto_priv)(\.\d+)*")
_SYSTEM_PREFIX = re.compile(r"^(__GI_+|__libc_|__isoc\d+_|__(?!cuda|tls)(?=[a-z]))")
_SYSTEM_SUFFIX = re.compile(r"_(avx|sse|evex|ssse|erms)\w*$")
_RUST = ((re.compile(r"::h[0-9a-f]{16}$"), ""), (re.compile(r"\$LT\$"), "<"),
         (re.compile(r"\$GT\$"), ">"), (re.compile(r"\$u20\$"), " "), (re.compile(r"\$C\$"), ","),
         (re.compile(r"\$RF\$"), "&"), (re.compile(r"\.\."), "::"))  # fmt: skip
_LONGEST = 80


def function_name(symbol: str) -> str:
    """Returns a symbol as a person would say it: without arguments, template arguments, return
    type, versions and hashes."""
    for pattern, text in _RUST:
        symbol = pattern.sub(text, symbol)
    symbol = _SYSTEM_PREFIX.sub("", _VERSION.sub("", symbol).strip())
    symbol = _SYSTEM_SUFFIX.sub("", symbol)
    bare = _without_brackets(symbol)
    bare = bare if "operator" in bare else bare.split(" ")[-1]
    # A Rust name may be nothing but brackets.
    return (bare.lstrip("*&:") or symbol)[:_LONGEST]


def _without_brackets(symbol: str) -> str:
    """The text outside of all brackets, up to the arguments; spaces inside are no part of it."""
    depth = 0
    kept: list[str] = []
    for at, letter in enumerate(symbol):
        if letter in "<({[":
            if letter == "(" and depth == 0 and kept and not symbol.startswith("(anon", at):
                break
            depth += 1
        elif letter in ">)}]":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(letter)
    return "".join(kept).strip()
