"""Work of operators by their shapes, and how kernels come to have it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.roofline.bound import BASES
from nsysdoctor.roofline.flops import Work, attention, convolution, gemm, layer_norm, softmax
from nsysdoctor.roofline.operator_text import OPERATOR, Annotation
from nsysdoctor.roofline.shape_work import Operand, operator_work
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.kernels.operators import Annotated, launch_marks
from nsysdoctor.tables.kernels.recorded_work import measured_work, shape_work
from nsysdoctor.trace.trace import Trace, open_trace
from sample_traces import record, write
from sample_traces.hardware import A100_80GB
from sample_traces.kernels import BF16, cast_to_bf16, pointwise
from sample_traces.work import Kernel
from tests import SAMPLES

Shapes = list[list[int]]


def uniform(operator: str, shapes: Shapes, itemsize: int = 2, **settings: Any) -> Work | None:
    operands = [Operand(tuple(shape), itemsize) for shape in shapes]
    return operator_work(operator, operands, itemsize, settings)


@pytest.mark.parametrize(
    ("operator", "shapes", "settings", "work"),
    [
        ("aten::mm", [[2, 4], [4, 3]], {}, gemm(2, 3, 4, 2)),
        ("aten::addmm", [[3], [2, 4], [4, 3]], {}, gemm(2, 3, 4, 2, addend=3)),
        ("aten::bmm", [[5, 2, 4], [5, 4, 3]], {}, gemm(2, 3, 4, 2, batch=5)),
        ("aten::baddbmm", [[5, 2, 3], [5, 2, 4], [5, 4, 3]], {},
         gemm(2, 3, 4, 2, batch=5, addend=30)),
        ("aten::linear", [[5, 2, 4], [3, 4], [3]], {}, gemm(10, 3, 4, 2, addend=3)),
        ("linear", [[5, 2, 4], [3, 4]], {}, gemm(10, 3, 4, 2)),
        # 10x10 data, 3x3 filter, padding 1, stride 2: 5x5 results
        ("aten::convolution", [[1, 2, 10, 10], [4, 2, 3, 3]],
         {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1]},
         convolution([1, 2, 10, 10], [4, 2, 3, 3], [1, 4, 5, 5], 2)),
        # a dilated filter of 3 reaches over 5: 6x6 results
        ("aten::cudnn_convolution", [[1, 2, 10, 10], [4, 2, 3, 3]],
         {"stride": 1, "padding": 0, "dilation": 2},
         convolution([1, 2, 10, 10], [4, 2, 3, 3], [1, 4, 6, 6], 2)),
        ("aten::convolution", [[1, 4, 10, 10], [4, 1, 3, 3]],
         {"stride": 1, "padding": "same"},
         convolution([1, 4, 10, 10], [4, 1, 3, 3], [1, 4, 10, 10], 2, groups=4)),
        # transposed: (5 - 1) x 2 + 3 = 11, and each data element meets 3x3x4 weights
        ("aten::convolution", [[1, 2, 5, 5], [2, 4, 3, 3]],
         {"stride": 2, "padding": 0, "transposed": True},
         Work(2 * 50 * 36, 2 * (50 + 72 + 4 * 121))),
        # stride unknown
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], {}, None),
        ("aten::convolution_backward", [[1, 4, 8, 8], [1, 2, 10, 10], [4, 2, 3, 3]], {},
         convolution([1, 2, 10, 10], [4, 2, 3, 3], [1, 4, 8, 8], 2)),
        ("aten::scaled_dot_product_attention", [[2, 8, 16, 4], [2, 2, 16, 4], [2, 2, 16, 4]], {},
         attention(2, 8, 16, 16, 4, 2, kv_heads=2)),
        ("aten::_flash_attention_forward", [[2, 16, 8, 4], [2, 16, 2, 4], [2, 16, 2, 4]],
         {"is_causal": True}, attention(2, 8, 16, 16, 4, 2, causal=True, kv_heads=2)),
        # five products instead of two; Q and its like 5 times, K and V 2 times each
        ("aten::_flash_attention_backward",
         [[1, 3, 1, 2], [1, 3, 1, 2], [1, 5, 1, 2], [1, 5, 1, 2]], {},
         Work(300, 2 * (4 * 6 + 4 * 10))),
        ("aten::add", [[4, 3], [3]], {}, Work(12, 54)),
        ("aten::relu", [[4, 3]], {}, Work(12, 48)),
        ("aten::gelu_backward", [[4, 3], [4, 3]], {}, Work(144, 72)),
        ("aten::zero_", [[4, 3]], {}, Work(0, 24)),
        ("aten::copy_", [[4, 3], [4, 3]], {}, Work(0, 48)),
        ("aten::cat", [[4, 3], [2, 3]], {}, Work(0, 72)),
        ("aten::native_dropout", [[4, 3]], {}, Work(24, 60)),
        ("aten::softmax", [[5, 2, 4]], {}, softmax(10, 4, 2)),
        ("aten::_softmax_backward_data", [[10, 4], [10, 4]], {}, Work(160, 240)),
        ("aten::layer_norm", [[5, 2, 4], [4], [4]], {}, layer_norm(10, 4, 2)),
        ("aten::native_layer_norm", [[5, 2, 4]], {}, layer_norm(10, 4, 2, affine=False)),
        ("aten::mm", [[2, 4], [5, 3]], {}, None),
        ("aten::mm", [], {}, None),
        ("aten::add", [[4, 3], [5]], {}, None),
        ("aten::layer_norm", [[5, 2, 4], [3]], {}, None),
        ("my::operator", [[1]], {}, None),
    ],
)  # fmt: skip
def test_operator(
    operator: str, shapes: Shapes, settings: dict[str, Any], work: Work | None
) -> None:
    assert uniform(operator, shapes, **settings) == work


def test_an_index_has_its_own_size() -> None:
    table, index = Operand((100, 4), 2), Operand((5, 2), 8)
    assert operator_work("embedding", [table, index], 2) == Work(0, 240)


@given(
    st.sampled_from(
        ["mm", "addmm", "bmm", "linear", "convolution", "convolution_backward", "add", "embedding",
         "layer_norm", "softmax", "scaled_dot_product_attention", "_flash_attention_backward",
         "copy_", "cat", "unknown"]
    ),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=5),
    st.dictionaries(
        st.sampled_from(["stride", "padding", "dilation", "transposed", "groups"]),
        st.one_of(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3), st.text(max_size=2)),
    ),
)  # fmt: skip
def test_odd_arguments_are_no_error(
    operator: str, shapes: Shapes, settings: dict[str, Any]
) -> None:
    work = uniform(f"aten::{operator}", shapes, **settings)
    assert work is None or work.bytes >= 0


ADD = pointwise(A100_80GB, "add", 1 << 20, BF16)
CAST = cast_to_bf16(A100_80GB, 1 << 20)


@pytest.mark.parametrize(
    ("annotation", "kernel", "dtype", "moved"),
    [
        # the kernel's name tells the types of three arrays
        (Annotation(OPERATOR, "aten::add", "", ((64, 8), (8,), ())), ADD, "bf16", 2 * 1032),
        # a cast reads four bytes and writes two
        (Annotation(OPERATOR, "aten::copy_", "", ((64,), (64,), ())), CAST, "bf16", 6 * 64),
        # recorded types come before those of the kernel
        (
            Annotation(OPERATOR, "aten::copy_", "", ((64,), (64,)), ("float16", "float64")),
            Kernel("k", 1), "fp32", 64 * 10,
        ),
        (Annotation(OPERATOR, "aten::mm", "", ((2, 4), (4, 3))), Kernel("k", 1), "tf32", 4 * 26),
        # a comparison writes one byte per element
        (
            Annotation(OPERATOR, "aten::eq", "", ((8,), (8,)), ("float32", "float32")),
            Kernel("k", 1), "", 8 * 9,
        ),
        (Annotation(OPERATOR, "aten::embedding", "", ((99, 4), (5,))), Kernel("k", 1), "bf16",
         5 * (16 + 8)),
    ],
)  # fmt: skip
def test_item_sizes(annotation: Annotation, kernel: Kernel, dtype: str, moved: int) -> None:
    work = shape_work(annotation, kernel.name, dtype)
    assert work is not None
    assert work.bytes == moved


def test_without_a_type_there_are_no_bytes() -> None:
    assert shape_work(Annotation(OPERATOR, "aten::mm", "", ((2, 4), (4, 3))), "k", "") is None


def test_a_module_tells_the_stride() -> None:
    said = Annotation(OPERATOR, "aten::cudnn_convolution", "", ((1, 2, 10, 10), (4, 2, 3, 3)))
    assert shape_work(said, "k", "fp16") is None
    told = shape_work(said, "k", "fp16", {"stride": [1, 1], "padding": [0, 0]})
    assert told == convolution([1, 2, 10, 10], [4, 2, 3, 3], [1, 4, 8, 8], 2)


def kernels_of(rows: list[tuple[str, str, int]]) -> Kernels:
    """Kernels by category, units and duration, all of one name."""
    frame = pd.DataFrame(rows, columns=["category", "math", "end_ns"])
    place = np.arange(len(rows))
    return Kernels(
        frame.assign(name=0, dtype="bf16"),
        {"op": place, "configuration": place},
        frame.assign(start_ns=0),
    )


PRODUCT = Annotation(OPERATOR, "aten::mm", "", ((20, 40), (40, 30)))
GRADIENT = Annotation(
    OPERATOR, "aten::convolution_backward", "", ((1, 4, 8, 8), (1, 2, 10, 10), (4, 2, 3, 3))
)


@pytest.mark.parametrize(
    ("said", "rows", "shares"),
    [
        (PRODUCT, [("gemm", "tensor", 100)], [1.0]),
        # the sum of a split product is a helper
        (PRODUCT, [("gemm", "tensor", 100), ("gemm", "unknown", 10)], [1.0, None]),
        (PRODUCT, [("memory", "unknown", 50), ("gemm", "unknown", 100)], [None, 1.0]),
        # two halves
        (PRODUCT, [("gemm", "simt", 30), ("gemm", "simt", 10)], [0.75, 0.25]),
        # a kernel nobody knows, alone in its operator, must be it
        (PRODUCT, [("other", "unknown", 100)], [1.0]),
        (PRODUCT, [("elementwise", "unknown", 5), ("reduction", "unknown", 5)], [None, None]),
        # two gradients, as much each
        (GRADIENT, [("conv", "tensor", 30), ("conv", "tensor", 10)], [1.0, 1.0]),
    ],
)
def test_kernels_of_one_operator_share_its_work(
    said: Annotation, rows: list[tuple[str, str, int]], shares: list[float | None]
) -> None:
    instance = np.full(len(rows), 3)
    marks = pd.DataFrame({"operator": np.zeros(len(rows), dtype=int), "module": -1})
    told = measured_work(kernels_of(rows), ["k"], instance, marks, [said])
    assert told is not None
    flops, moved = told
    work = shape_work(said, "k", "bf16")
    assert work is not None
    wanted = np.array([np.nan if share is None else share for share in shares])
    assert flops == pytest.approx(wanted * work.flops, nan_ok=True)
    assert moved == pytest.approx(wanted * work.bytes, nan_ok=True)


def marks_of(ranges: list[tuple[int, int, int, Annotation, int]], at: list[tuple[int, int]]) -> Any:
    """Ranges by thread, start, end, meaning and number; one launch per (thread, time)."""
    places = pd.DataFrame(
        {
            "thread": [row[0] for row in ranges], "start_ns": [row[1] for row in ranges],
            "end_ns": [row[2] for row in ranges], "text": np.arange(len(ranges)),
        }
    ).astype("int64").assign(pushed=True)  # fmt: skip
    codes = np.arange(len(ranges), dtype=np.int32)
    numbers = np.array([row[4] for row in ranges], dtype=np.int64)
    annotated = Annotated([row[3] for row in ranges], codes, numbers, codes)
    called = sorted(range(len(at)), key=at.__getitem__)
    api = pd.DataFrame([at[op] for op in called], columns=["thread", "start_ns"]).astype("int64")
    launches = pd.DataFrame({"op": called, "api": np.arange(len(at))})
    threads = pd.DataFrame({"process": [0, 0, 0]})
    ops = pd.DataFrame(index=range(len(at)))
    return launch_marks(ops, launches, api, places, annotated, threads)


MODULE_A = Annotation("module", "Block", "a")
NODE = Annotation("backward", "MmBackward0")


def test_forward_and_backward_meet_by_number_across_threads() -> None:
    ranges = [
        (0, 0, 100, MODULE_A, -1),
        (0, 10, 90, Annotation(OPERATOR, "aten::matmul"), 7),
        (0, 20, 80, PRODUCT, 7),
        (0, 120, 130, Annotation(OPERATOR, "aten::relu"), 8),
        (1, 200, 300, NODE, 7),
        (1, 210, 250, PRODUCT, 7),  # the number means nothing inside a node
        (1, 310, 350, NODE, 7),
        (1, 400, 450, NODE, 99),  # its forward pass was not recorded
    ]
    marks = marks_of(ranges, [(0, 30), (0, 125), (1, 220), (1, 320), (1, 410), (2, 30), (0, 500)])
    assert marks["operator"].tolist() == [2, 3, 5, -1, -1, -1, -1]
    assert marks["node"].tolist() == [-1, -1, 4, 6, 7, -1, -1]
    assert marks["forward"].tolist() == [-1, -1, 2, 2, -1, -1, -1]
    assert marks["module"].tolist() == [0, -1, 0, 0, -1, -1, -1]


def test_without_ranges_nothing_is_marked() -> None:
    assert (marks_of([], [(0, 30), (1, 4)]) == -1).all(axis=None)


@pytest.fixture(scope="module")
def annotated_trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("annotated") / "run.sqlite"
    write(record("annotated_chain"), path)
    return open_trace(path)


def test_shapes_give_what_the_program_moved(annotated_trace: Trace) -> None:
    kernels = annotated_trace.table("kernels")
    truth = [op.work.bytes for op in sorted(record("annotated_chain").ops, key=lambda o: o.start_ns)
             if isinstance(op.work, Kernel)]  # fmt: skip
    assert (kernels["traffic_basis"] == BASES.index("measured")).all()
    assert kernels["bytes"].tolist() == truth
    assert (kernels["bytes_low"] == kernels["bytes"]).all()
    assert (kernels["bytes_high"] == kernels["bytes"]).all()


def test_geometry_gives_a_range_around_it(annotated_trace: Trace) -> None:
    kernels = annotated_trace.table("kernels")
    kinds = kernels.configurations
    known = kinds["launch_bytes"].notna()
    assert set(kinds.loc[known, "category"]) == {"elementwise"}
    mine = kernels.at(kernels.spread(known))
    assert len(mine) == 12 * 4 * 4
    assert mine["launch_bytes"] == pytest.approx(mine["bytes"], rel=0.1)
    assert (mine["launch_bytes_low"] <= mine["bytes"]).all()
    assert (mine["launch_bytes_high"] >= 0.999 * mine["bytes"]).all()
    assert (mine["launch_bytes_high"] > 1.3 * mine["launch_bytes_low"]).any()


def test_operators_sum_up_the_kernels(annotated_trace: Trace) -> None:
    kernels, operators = annotated_trace.table("kernels"), annotated_trace.table("operators")
    assert operators["count"].sum() == len(kernels)
    assert operators["duration_ns"].sum() == kernels["duration_ns"].sum()
    product = operators[operators["operator"] == "aten::mm"]
    assert set(product["module"]) == {f"layers.{n}" for n in range(4)}
    assert product["phase"].tolist().count("backward") == 2 * product["phase"].tolist().count(
        "forward"
    )
    assert (product["flops"] / product["count"] == 2 * 8192 * 2048 * 2048).all()
    assert (product["bound"] == "compute").all()
    norm = operators[operators["operator"] == "aten::native_layer_norm"].iloc[0]
    assert norm["bytes"] / norm["count"] == 4 * 8192 * 2048 + 4 * 2048
    assert norm["bound"] == "memory"
    assert norm["intensity"] == pytest.approx(7 * 8192 * 2048 / (4 * 8192 * 2048 + 4 * 2048))


def test_the_kept_sample_is_what_the_program_writes(tmp_path: Path) -> None:
    from sample_traces.__main__ import JITTER_RATIO, SEED

    fresh = tmp_path / "run.sqlite"
    write(record("annotated_chain", seed=SEED, jitter_ratio=JITTER_RATIO), fresh)
    kept = SAMPLES / "annotated_chain.sqlite"
    assert kept.read_bytes() == fresh.read_bytes()


def test_shapes_that_no_gpu_could_compute_in_time_are_not_believed(tmp_path: Path) -> None:
    recording = record("annotated_chain")
    path = tmp_path / "run.sqlite"
    write(recording, path)
    kernels = open_trace(path).table("kernels")
    told = (~np.isnan(kernels["flops"])).sum()
    assert told
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE NVTX_EVENTS SET text = replace(text, 'sizes = [[', 'sizes = [[9000000, ')"
        )
    db.close()
    trace = open_trace(path)
    exaggerated, roofs = trace.table("kernels"), trace.table("peaks")
    believed = exaggerated.at(~np.isnan(exaggerated["flops"]))
    frame = believed.frame("device", "dtype", "math", "flops", "duration_ns")
    for row in frame.to_dict("records"):
        roof = roofs[row["device"]].flops_per_s(str(row["dtype"]), str(row["math"]))
        assert roof is None or row["flops"] <= roof * row["duration_ns"] / 1e9
    assert len(believed) < told
