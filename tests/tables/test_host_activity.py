"""Whose code a thread was in: frames, signatures, shares, and what a window needs of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nsysdoctor.tables.host_activity.frames import Role, function_name, is_told, role_of
from nsysdoctor.tables.host_activity.samples import sample_at
from nsysdoctor.tables.host_activity.schedule import OFF, off_cpu, schedule
from nsysdoctor.tables.host_activity.shares import function_shares, wilson
from nsysdoctor.tables.host_activity.signatures import load_signatures, signature_of
from nsysdoctor.tables.host_activity.stacks import Stacks, named_stacks

SIGNATURES = load_signatures()
EXAMPLES = [(one.name, *pair) for one in SIGNATURES for pair in one.examples]


@pytest.mark.parametrize(("name", "symbol", "module"), EXAMPLES)
def test_each_signature_knows_its_examples(name: str, symbol: str, module: str) -> None:
    found = signature_of(symbol if is_told(symbol, unresolved=False) else "", module)
    assert SIGNATURES[found].name == name


def test_every_signature_has_a_cure_and_an_example() -> None:
    assert all(one.examples and one.fix.get("any") for one in SIGNATURES)
    assert len({one.name for one in SIGNATURES}) == len(SIGNATURES)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("void std::vector<int, std::allocator<int> >::resize(unsigned long)",
         "std::vector::resize"),
        ("CLUEAlgo<TilesConstants, 100>::verboseResults(std::string)", "CLUEAlgo::verboseResults"),
        ("rand::random_range::hbd00c8cb99adf1d2", "rand::random_range"),
        ("dlopen@@GLIBC_2.34", "dlopen"),
        ("__memset_avx2_unaligned_erms", "memset"),
        ("cudaError cudaMalloc<float>(float**, unsigned long)", "cudaMalloc"),
    ],
)  # fmt: skip
def test_functions_are_named_as_a_person_would(symbol: str, name: str) -> None:
    assert function_name(symbol) == name


@pytest.mark.parametrize(
    ("symbol", "module", "role"),
    [
        ("[Max depth]", "[Max depth]", Role.NOTHING),
        ("0xffffffff8775c7cb", "[kernel.kallsyms]", Role.KERNEL),
        ("__snprintf", "/lib64/libc-2.28.so", Role.SYSTEM),
        ("0x77fd20490319", "/opt/nsys/libToolsInjection64.so", Role.PROFILER),
        ("cublasSgemm_v2", "/usr/lib/libcublas.so.12", Role.LIBRARY),
        ("__cudart516", "/app/nvtx_matmul", Role.LIBRARY),
        ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12", Role.INTERPRETER),
        ("forward", "/app/model.py", Role.CODE),
        ("at::native::add(at::Tensor const&)", "libtorch_cpu.so", Role.CODE),
        ("_start", "/app/app", Role.NOTHING),
    ],
)
def test_frames_belong_to_somebody(symbol: str, module: str, role: Role) -> None:
    told = is_told(symbol, unresolved=False)
    assert role_of(symbol, module, told=told) == role


def _stack_name(*frames: tuple[str, str]) -> tuple[str, str]:
    """What a stack is called, innermost frame first, and the signature it is one of."""
    texts = sorted({text for frame in frames for text in frame})
    strings = pd.Series(texts, dtype=object)
    rows = pd.DataFrame(
        {
            "stack": 7,
            "depth": np.arange(len(frames)),
            "symbol_id": [texts.index(symbol) for symbol, _ in frames],
            "module_id": [texts.index(module) for _, module in frames],
            "unresolved": [int(symbol.startswith("0x")) for symbol, _ in frames],
            "special": [int(symbol.startswith("[")) for symbol, _ in frames],
        }
    )
    found = named_stacks(rows.sample(frac=1, random_state=1), strings)
    assert found.stack.tolist() == [7]
    name = found.names.iloc[found.function[0]]
    sign = int(name["signature"])
    return name["text"], SIGNATURES[sign].name if sign >= 0 else ""


CUT = ("[Max depth]", "[Max depth]")


def test_the_named_frame_is_where_code_enters_what_costs() -> None:
    libc, app = "/lib/libc.so.6", "/app/app"
    assert _stack_name(
        ("hack_digit", libc), ("_IO_vfprintf", libc), ("snprintf", libc), ("report(int)", app),
        ("main", app), CUT,
    ) == ("snprintf in report", "printing")  # fmt: skip
    lt, blas = "/usr/lib/libcublasLt.so.12", "/usr/lib/libcublas.so.12"
    assert _stack_name(
        ("0x7f00aa", lt), ("cublasLtSSSMatmulAlgoGetHeuristic", lt), ("cublasSgemm_v2", blas),
        ("matmul_forward(float*)", app), CUT,
    ) == ("cublasLtSSSMatmulAlgoGetHeuristic in matmul_forward", "heuristic_search")  # fmt: skip
    assert _stack_name(("0xffffffffa1", "[kernel.kallsyms]"), ("step()", app), CUT) == ("step", "")
    assert _stack_name(("0x7f00aa", "/usr/lib/libcuda.so.1"), CUT)[0] == "libcuda.so.1"
    assert _stack_name(CUT) == ("", "")


def test_the_profiler_is_not_the_program() -> None:
    libc, injection = "/lib/libc.so.6", "/opt/nsys/libToolsInjection64.so"
    assert _stack_name(
        ("__memset_avx2", libc), ("0x77fd", injection), ("cudaMalloc", "/usr/lib/libcudart.so.12"),
        ("main", "/app/app"),
    ) == ("the profiler", "")  # fmt: skip


def test_shares_are_ranges_and_few_samples_name_nothing() -> None:
    low, high = wilson(np.array([52, 0, 5]), np.array([115, 10, 5]))
    # Wilson's interval of 52 in 115, 0 in 10 and 5 in 5.
    assert low == pytest.approx([0.364, 0.0, 0.566], abs=2e-3)
    assert high == pytest.approx([0.543, 0.278, 1.0], abs=2e-3)


def test_samples_count_in_their_intervals() -> None:
    names = pd.DataFrame(
        {"text": ["a", "b"], "module": ["m", "m"], "signature": [-1, 0], "profiler": [False] * 2}
    )
    stacks = Stacks(np.array([1, 2]), np.array([0, 1]), names)
    seen = pd.DataFrame(
        {
            "thread": [0] * 8 + [1],
            "start_ns": [*range(10, 90, 10), 15],
            "function": [0] * 6 + [1] * 3,
        }
    )
    assert sample_at(seen, np.array([0, 1]), np.array([20, 20])).tolist() == [1, 9]
    found = function_shares(
        seen, stacks, np.array([0, 0, 1]), np.array([10, 60, 0]), np.array([50, 90, 99]),
        np.array([3, 3, 4]),
    )  # fmt: skip
    assert found[["group", "name", "n", "total", "named"]].to_numpy().tolist() == [
        [3, "a", 5, 7, True], [3, "b", 2, 7, False], [4, "b", 1, 1, False],
    ]  # fmt: skip


def test_threads_off_their_cpu_stand_in_order_of_their_codes() -> None:
    threads = pd.DataFrame({"global_tid": [10, 20], "process": 0, "tid": [10, 20], "name": ""})
    # The thread of code 1 is seen first.
    rows = pd.DataFrame(
        {
            "start_ns": [5, 10, 20, 30, 40, 50],
            "global_tid": [20, 10, 20, 10, 20, 20],
            "cpu": [0, 1, 0, 1, 0, 0],
            "runs": [0, 0, 1, 1, 0, 1],
            "thread_state": 0,
        }
    )
    found = schedule(rows, threads)
    assert found["thread"].tolist() == [0, 1, 1]
    assert [off_cpu(found, code, (OFF,)).total_ns for code in (0, 1)] == [20, 25]
