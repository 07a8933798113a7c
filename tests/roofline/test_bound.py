"""Peaks, bytes from launch geometry, and the roof that binds: right figures, none impossible."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysdoctor.roofline.bound import BASES, BOUNDS, Roofline, roofs_of
from nsysdoctor.roofline.geometry_work import launch_traffic, limit_bytes
from nsysdoctor.roofline.launch_geometry import Layout, layout_of, template_arguments
from nsysdoctor.roofline.peaks import DevicePeaks, device_peaks, has_tensor_dtype
from nsysdoctor.roofline.taxonomy import classify

GB = 10**9
LEGACY = "void at::native::elementwise_kernel<(int)128, (int)%d, void at::native::%s<%s>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)"  # noqa: E501
MUL = (
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"
)
COPY = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]"
    "::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(%s) (instance 1)]"
)
WHERE = "at::native::<unnamed>::where_kernel_impl(at::TensorIterator &)::[lambda(bool, float, float) (instance 1)]"  # noqa: E501


def vectorized(functor: str, arrays: int, vector: int = 4) -> str:
    return (
        f"void at::native::vectorized_elementwise_kernel<(int){vector}, at::native::{functor}, "
        f"std::array<char *, (unsigned long){arrays}>>(int, T2, T3)"
    )


def unrolled(functor: str, arrays: int, rest: str) -> str:
    return (
        f"void at::native::unrolled_elementwise_kernel<{functor}, "
        f"std::array<char *, (unsigned long){arrays}>, {rest}>(int, T1, T2)"
    )


ADD = vectorized("CUDAFunctor_add<float>", 3)
ADD_CXXFILT = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
ADD_OLD = ADD.replace("std::array<char *, (unsigned long)3>", "at::detail::Array<char *, (int)3>")
NO_CAST = "TrivialOffsetCalculator<(int)2>, at::native::memory::LoadWithoutCast"
CAST = "TrivialOffsetCalculator<(int)2>, at::native::memory::LoadWithCast<(int)2>"
ADAM = (
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::"
    "FusedOptimizerTensorListMetadata<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<float, "
    "(int)4, (at::native::ADAM_MODE)1, (bool)0>, const float *>(T1, T2, T3...)"
)
FOREACH = (
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::"
    "TensorListMetadata<(int)1>, at::native::<unnamed>::BinaryOpScalarFunctor<float, (int)1, "
    "(int)1, (int)0>, std::multiplies<float>, float>(T1, T2, T3...)"
)
ADDCMUL = FOREACH.replace(
    "BinaryOpScalarFunctor<float, (int)1, (int)1", "PointwiseOpScalarFunctor<float, (int)3, (int)3"
)
SOFTMAX = (
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)%d, (bool)0, (bool)0>(T2 *)"
)
DROPOUT = "void at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int, (int)1, (int)4, bool>(int)"  # noqa: E501


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        (ADD, Layout(0, (12,), vector=4, out_bytes=4)),
        (ADD_CXXFILT, Layout(0, (12,), vector=4, out_bytes=4)),
        # before torch 2.4: always 4 elements per thread
        (ADD_OLD, Layout(4, (12,), vector=4, out_bytes=4)),
        (vectorized("FillFunctor<c10::Half>", 1), Layout(0, (2,), vector=4, out_bytes=2)),
        (vectorized("AbsFunctor<long>", 2, 2), Layout(0, (16,), vector=2, out_bytes=8)),
        (vectorized("CUDAFunctor_add<c10::BFloat16>", 3, 8), Layout(0, (6,), 0, 8, 2)),
        (
            vectorized("<unnamed>::CompareFunctor<c10::Half>", 3),
            Layout(0, (5,), vector=4, out_bytes=1),
        ),
        (
            vectorized("AUnaryFunctor<c10::Half, c10::Half, bool, X<c10::Half>>", 2),
            Layout(0, (3,), vector=4, out_bytes=1),
        ),
        (
            vectorized("bfloat16_copy_kernel_cuda(at::X &)::[lambda(float) (instance 1)]", 2, 8),
            Layout(0, (6,), vector=8, out_bytes=2),
        ),
        (
            vectorized("compare_scalar_kernel<long>(X &)::[lambda(long) (instance 1)]", 2),
            Layout(0, (9,), vector=4, out_bytes=1),
        ),
        (
            vectorized("neg_kernel_cuda(X &)::[lambda(c10::complex<float>) (instance 1)]", 2, 2),
            Layout(0, (16,), vector=2, out_bytes=8),
        ),
        (LEGACY % (2, "gpu_kernel_impl_nocast", MUL), Layout(2, (12, 8, 4))),
        (LEGACY % (2, "gpu_kernel_impl_nocast", WHERE), Layout(2, (13, 12, 9, 8, 5, 4))),
        (LEGACY % (4, "gpu_kernel_impl_nocast", COPY % "c10::BFloat16"), Layout(4, (4, 2))),
        (LEGACY % (4, "gpu_kernel_impl", MUL), Layout(4, (12, 10, 8, 6), likely=1)),
        (unrolled(MUL, 3, f"(int)8, {NO_CAST}"), Layout(8, (12,))),
        (unrolled(MUL, 3, NO_CAST), Layout(4, (12,))),
        (unrolled(MUL, 3, f"(int)4, {CAST}"), Layout(4, (12, 10, 8, 6), likely=1)),
        # fp32 result: source mostly half as wide, 1 to 8 bytes possible
        (unrolled(COPY % "float", 2, f"(int)4, {CAST}"), Layout(4, (12, 8, 6, 5), likely=2)),
        (unrolled(COPY % "c10::Half", 2, f"(int)4, {CAST}"), Layout(4, (10, 6, 4, 3), likely=1)),
    ],
)
def test_layout(name: str, layout: Layout) -> None:
    assert layout_of(name) == layout


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ampere_sgemm_128x64_tn",
        "void at::native::vectorized_elementwise_kernel<(int)4>(int)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::Odd<Mystery>, "
        "std::array<char *, (unsigned long)2>>(int)",
        # three arrays, two operands
        vectorized("neg_kernel_cuda(X &)::[lambda(float) (instance 1)]", 3),
        "void at::native::elementwise_kernel<128, 2, something>(int)",
        "void at::native::elementwise_kernel<",
        "void at::native::index_elementwise_kernel<(int)128, (int)4, gpu_index_kernel<X>>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
        SOFTMAX % 99,
    ],
)
def test_no_layout(name: str) -> None:
    assert layout_of(name) is None


@given(st.text(alphabet="<>(){}[],: aT4vectorized_elementwise_kernel", max_size=80))
def test_a_broken_name_is_no_error(text: str) -> None:
    layout_of(text)
    layout_of("vectorized_elementwise_kernel<4, " + text)
    assert isinstance(template_arguments(text, "k"), list)


def launches(*rows: tuple[int, int, int, int]) -> pd.DataFrame:
    """Kernels from (name, blocks, threads, duration in ns)."""
    frame = pd.DataFrame(list(rows), columns=["name", "grid_x", "block_x", "ns"], dtype="int64")
    ones = dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
    return frame.assign(**ones, start_ns=1_000, end_ns=1_000 + frame["ns"])


def kernel_traffic(
    kernels: pd.DataFrame,
    names: Sequence[str],
    peak_bytes_per_s: float | None = None,
    sm_count: int | None = None,
) -> pd.DataFrame:
    """Bytes of each kernel, and their range and rate."""
    sides = {what: kernels[[f"{what}_{axis}" for axis in "xyz"]] for what in ("grid", "block")}
    ns = kernels["end_ns"] - kernels["start_ns"]
    launched = pd.DataFrame(
        {
            "name": kernels["name"],
            "blocks": sides["grid"].prod(axis=1).astype("int64"),
            "threads": sides["block"].prod(axis=1).astype("int64"),
            "ns": ns,
        }
    )
    grouped = launched.groupby(["name", "blocks", "threads"])
    seen = grouped["ns"].agg(median_ns="median", total_ns="sum").reset_index()
    told = launch_traffic(seen, names, peak_bytes_per_s, sm_count).iloc[grouped.ngroup()]
    limit = limit_bytes(ns, peak_bytes_per_s)
    table = told.set_axis(kernels.index).apply(lambda column: np.minimum(column, limit))
    return table.assign(rate_bytes_per_s=table["bytes"] / ns.where(ns > 0) * 1e9)


def traffic(names: Sequence[str], *rows: tuple[int, int, int, int], **given_peaks: float) -> list:
    table = kernel_traffic(launches(*rows), names, **given_peaks)  # type: ignore[arg-type]
    return table["bytes"].tolist()


def test_a_vectorised_kernel() -> None:
    # 12288 blocks x 128 threads x 4 elements x 12 bytes in 138 µs
    table = kernel_traffic(launches((0, 12_288, 128, 138_000)), [ADD], 608 * GB)
    row = table.iloc[0]
    assert row["bytes"] == row["bytes_high"] == 75_497_472
    assert row["bytes_low"] == (12_287 * 512 + 1) * 12
    assert row["rate_bytes_per_s"] == pytest.approx(547.1 * GB, rel=1e-3)


def test_all_axes_of_the_grid_count() -> None:
    kernels = launches((0, 1_024, 128, 100_000)).assign(grid_y=3, grid_z=2, block_y=2)
    assert kernel_traffic(kernels, [ADD])["bytes"][0] == 1_024 * 6 * 256 * 4 * 12


def test_unknown_kernels_have_no_estimate() -> None:
    table = kernel_traffic(launches((0, 99, 128, 10_000)), ["ampere_sgemm_128x64_tn"], 608 * GB)
    assert table.isna().all(axis=None)


def test_no_kernels() -> None:
    table = kernel_traffic(launches(), [ADD], 608 * GB)
    assert table.empty
    assert list(table)[:3] == ["bytes", "bytes_low", "bytes_high"]


def test_vector_loads_of_8_mean_8_elements_everywhere() -> None:
    half = vectorized("CUDAFunctor_add<c10::BFloat16>", 3, 8)
    wide = (0, 1_000, 128, 100_000)
    assert traffic([half, ADD], wide, (1, 1_000, 128, 100_000)) == [6_144_000, 12_288_000]


def test_wide_loads_of_8_byte_types_mean_4_elements() -> None:
    long = vectorized("AbsFunctor<long>", 2, 4)
    rows = (0, 1_000, 128, 100_000), (1, 1_000, 128, 100_000)
    assert traffic([long, ADD], *rows) == [8_192_000, 6_144_000]


@pytest.mark.parametrize(("strided_blocks", "per_thread"), [(2_000, 4), (4_000, 8)])
def test_sizes_that_kernels_share_settle_elements_per_thread(
    strided_blocks: int, per_thread: int
) -> None:
    # the strided kernel takes 2 elements per thread in every release
    strided = LEGACY % (2, "gpu_kernel_impl_nocast", COPY % "float")
    rows = (0, 1_000, 128, 900_000), (1, strided_blocks, 128, 900_000)
    assert traffic([ADD, strided], *rows)[0] == 1_000 * 128 * per_thread * 12


def test_an_impossible_rate_settles_elements_per_thread() -> None:
    # 4 elements: 1.78 of 2.04 TB/s; 8 elements would need 3.5 TB/s
    assert traffic([ADD], (0, 40_960, 128, 141_300), peak_bytes_per_s=2_039 * GB) == [251_658_240]


def test_in_doubt_both_elements_per_thread_are_in_the_range() -> None:
    table = kernel_traffic(launches((0, 1_000, 128, 900_000)), [ADD], 2_039 * GB)
    row = table.iloc[0]
    assert (row["bytes"], row["bytes_high"]) == (6_144_000, 12_288_000)


def test_the_larger_reading_is_rejected_above_peak() -> None:
    strided = LEGACY % (2, "gpu_kernel_impl_nocast", MUL)
    # 131072 x 256 elements: 12 bytes need 2.36 TB/s, 8 bytes 1.57 TB/s
    table = kernel_traffic(launches((0, 131_072, 128, 170_600)), [strided], 2_039 * GB)
    row = table.iloc[0]
    assert row["bytes"] == 131_072 * 256 * 8
    assert row["bytes_low"] == 131_072 * 256 * 4 - 255 * 4
    assert row["bytes_high"] == pytest.approx(170_600 * 2_039)


def test_a_small_tensor_in_the_cache_is_cut_to_what_memory_delivers() -> None:
    # 31.5 MB in 14.3 µs would be 2.2 TB/s: a part came from the cache
    table = kernel_traffic(launches((0, 5_120, 128, 14_300)), [ADD_OLD], 2_039 * GB)
    assert table["bytes"][0] == pytest.approx(14_300 * 2_039)
    assert table["rate_bytes_per_s"][0] <= (1 + 1e-12) * 2_039 * GB


def test_a_strided_kernel_in_the_cache_is_cut_too() -> None:
    strided = LEGACY % (2, "gpu_kernel_impl_nocast", COPY % "float")
    # even the output alone, 10.5 MB in 4.5 µs, would be 2.3 TB/s
    row = kernel_traffic(launches((0, 10_240, 128, 4_500)), [strided], 2_039 * GB).iloc[0]
    assert row["bytes"] == row["bytes_high"] == pytest.approx(4_500 * 2_039)


def test_far_above_peak_there_is_no_estimate() -> None:
    assert np.isnan(traffic([ADD], (0, 5_120, 128, 2_000), peak_bytes_per_s=2_039 * GB)[0])


def test_one_outlier_does_not_change_its_kind() -> None:
    rows = [(0, 12_288, 128, 138_000)] * 9 + [(0, 12_288, 128, 60_000)]
    table = kernel_traffic(launches(*rows), [ADD], 608 * GB)
    assert table["bytes"].tolist() == [75_497_472] * 9 + [pytest.approx(36_480_000)]
    assert table["rate_bytes_per_s"].max() <= (1 + 1e-12) * 608 * GB


def test_multi_tensor_chunks() -> None:
    # 320 chunks of 65536 elements, read and written: 167.8 MB in 307 µs
    table = kernel_traffic(launches((0, 320, 512, 306_832)), [FOREACH], 608 * GB)
    assert table["bytes"][0] == 320 * 65_536 * 8
    assert table["bytes_low"][0] == 320 * 8
    assert table["rate_bytes_per_s"][0] == pytest.approx(546.8 * GB, rel=1e-3)


def test_small_tensors_do_not_fill_their_chunks() -> None:
    assert np.isnan(traffic([FOREACH], (0, 320, 512, 20_000), peak_bytes_per_s=608 * GB)[0])


def test_a_list_given_twice_is_read_once() -> None:
    # x += value * g * g: 16 bytes would need 723 GB/s, 12 bytes 542 GB/s
    assert traffic([ADDCMUL], (0, 320, 512, 463_731), peak_bytes_per_s=608 * GB) == [251_658_240]


def test_fused_adam_reads_four_lists_and_writes_three() -> None:
    assert traffic([ADAM], (0, 100, 512, 10**6)) == [100 * 65_536 * 28]


@pytest.mark.parametrize(
    ("log2", "warps", "rows_per_block"),
    # 128 threads; two rows per warp up to 128 elements, one above
    [(6, 4, 8), (7, 4, 8), (10, 4, 4)],
)
def test_softmax_rows(log2: int, warps: int, rows_per_block: int) -> None:
    kernels = launches((0, 400, 32, 100_000)).assign(block_y=warps)
    row = kernel_traffic(kernels, [SOFTMAX % log2]).iloc[0]
    assert row["bytes"] == 400 * rows_per_block * 2**log2 * 8
    assert row["bytes_low"] == row["bytes"] / 2


def test_short_softmax_rows_share_a_warp() -> None:
    # rows of 8: 8 lanes each, 16 per block of 128 threads, two at a time
    kernels = launches((0, 400, 8, 100_000)).assign(block_y=16)
    assert kernel_traffic(kernels, [SOFTMAX % 3])["bytes"][0] == 400 * 32 * 8 * 8


@pytest.mark.parametrize(("sm_count", "known"), [(108, True), (25, False), (None, False)])
def test_dropout_is_known_while_its_grid_is_not_cut(sm_count: int | None, known: bool) -> None:
    kernels = launches((0, 100, 256, 100_000))
    table = kernel_traffic(kernels, [DROPOUT], sm_count=sm_count)
    assert table["bytes"].fillna(0).tolist() == [100 * 256 * 9 if known else 0]


POOL = [
    ADD, ADDCMUL, ADAM, FOREACH, DROPOUT, SOFTMAX % 5, SOFTMAX % 11, "ampere_sgemm_128x64_tn",
    LEGACY % (2, "gpu_kernel_impl_nocast", MUL), LEGACY % (2, "gpu_kernel_impl_nocast", WHERE),
    LEGACY % (4, "gpu_kernel_impl", MUL), unrolled(COPY % "float", 2, f"(int)4, {CAST}"),
    vectorized("AbsFunctor<long>", 2, 2), vectorized("CUDAFunctor_add<c10::BFloat16>", 3, 8),
]  # fmt: skip
LAUNCH = st.tuples(
    st.integers(0, len(POOL) - 1),
    st.one_of(st.integers(0, 300), st.integers(0, 2**31 - 1)),
    st.integers(0, 1024),
    st.one_of(st.integers(0, 5_000), st.integers(0, 10**10)),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(LAUNCH, max_size=30),
    st.sampled_from([None, 128 * GB, 608 * GB, 7_672 * GB]),
    st.sampled_from([None, 16, 148]),
    st.randoms(use_true_random=False),
)
@pytest.mark.sweep
def test_no_rate_above_peak(rows: list, peak: float | None, sm_count: int | None, order) -> None:  # noqa: ANN001
    table = kernel_traffic(launches(*rows), POOL, peak, sm_count)
    known = table.dropna(subset="bytes")
    assert (known["bytes_low"] <= known["bytes"]).all()
    assert (known["bytes"] <= known["bytes_high"]).all()
    if peak is not None:
        assert not (table["rate_bytes_per_s"] > (1 + 1e-12) * peak).any()
        seconds = pd.Series([row[3] for row in rows], dtype="float64")[known.index] / 1e9
        assert (known["bytes_high"] <= seconds * peak * (1 + 1e-12)).all()
    shuffled = order.sample(range(len(rows)), len(rows))
    again = kernel_traffic(launches(*(rows[i] for i in shuffled)), POOL, peak, sm_count)
    pd.testing.assert_frame_equal(again, table.iloc[shuffled].reset_index(drop=True))


DATA_SHEETS = [
    # name, SMs, clock, capability, units, type, operations/s
    ("Tesla V100-SXM2-16GB", 80, 1530, (7, 0), "simt", "fp32", 15.7e12),
    ("Tesla V100-SXM2-16GB", 80, 1530, (7, 0), "simt", "fp64", 7.8e12),
    ("Tesla V100-SXM2-16GB", 80, 1530, (7, 0), "tensor", "fp16", 125e12),
    ("Tesla P100-SXM2-16GB", 56, 1480, (6, 0), "simt", "fp16", 21.2e12),
    ("Tesla T4", 40, 1590, (7, 5), "simt", "fp32", 8.1e12),
    ("Tesla T4", 40, 1590, (7, 5), "tensor", "fp16", 65e12),
    ("Tesla T4", 40, 1590, (7, 5), "tensor", "int8", 130e12),
    ("NVIDIA GeForce RTX 2080 Ti", 68, 1545, (7, 5), "tensor", "fp16", 53.8e12),
    ("NVIDIA A100-SXM4-80GB", 108, 1410, (8, 0), "simt", "fp32", 19.5e12),
    ("NVIDIA A100-SXM4-80GB", 108, 1410, (8, 0), "tensor", "fp64", 19.5e12),
    ("NVIDIA A100-SXM4-80GB", 108, 1410, (8, 0), "tensor", "tf32", 156e12),
    ("NVIDIA A100-SXM4-80GB", 108, 1410, (8, 0), "tensor", "bf16", 312e12),
    ("NVIDIA A100-SXM4-80GB", 108, 1410, (8, 0), "tensor", "int8", 624e12),
    ("NVIDIA A40", 84, 1740, (8, 6), "simt", "fp32", 37.4e12),
    ("NVIDIA A40", 84, 1740, (8, 6), "tensor", "tf32", 74.8e12),
    ("NVIDIA A40", 84, 1740, (8, 6), "tensor", "bf16", 149.7e12),
    ("NVIDIA GeForce RTX 3090", 82, 1695, (8, 6), "tensor", "fp16", 71e12),
    ("NVIDIA GeForce RTX 3090", 82, 1695, (8, 6), "tensor", "fp16_accumulate_fp16", 142e12),
    ("NVIDIA GeForce RTX 3090", 82, 1695, (8, 6), "tensor", "tf32", 35.6e12),
    ("Orin", 16, 1300, (8, 7), "tensor", "int8", 85e12),
    ("NVIDIA GeForce RTX 4090", 128, 2520, (8, 9), "simt", "fp32", 82.6e12),
    ("NVIDIA GeForce RTX 4090", 128, 2520, (8, 9), "tensor", "bf16", 165.2e12),
    ("NVIDIA GeForce RTX 4090", 128, 2520, (8, 9), "tensor", "fp8", 330.3e12),
    ("NVIDIA L40S", 142, 2520, (8, 9), "tensor", "fp8", 733e12),
    ("NVIDIA H100 80GB HBM3", 132, 1980, (9, 0), "simt", "fp32", 66.9e12),
    ("NVIDIA H100 80GB HBM3", 132, 1980, (9, 0), "tensor", "fp64", 66.9e12),
    ("NVIDIA H100 80GB HBM3", 132, 1830, (9, 0), "tensor", "bf16", 989e12),
    ("NVIDIA H100 80GB HBM3", 132, 1830, (9, 0), "tensor", "fp8", 1979e12),
    ("NVIDIA B200", 148, 1850, (10, 0), "tensor", "bf16", 2250e12),
    ("NVIDIA GeForce RTX 5090", 170, 2407, (12, 0), "tensor", "fp16", 209.5e12),
]


@pytest.mark.parametrize(
    ("name", "sms", "mhz", "capability", "units", "dtype", "flops"), DATA_SHEETS
)
def test_peaks_are_those_of_the_data_sheets(
    name: str, sms: int, mhz: int, capability: tuple[int, int], units: str, dtype: str, flops: float
) -> None:
    peaks = device_peaks(name, 10**12, sms, mhz * 10**6, *capability)
    assert peaks.flops_per_s(dtype, units) == pytest.approx(flops, rel=0.02)


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "has"),
    [
        ("Tesla V100-PCIE-32GB", (7, 0), "tf32", False),
        ("Tesla V100-PCIE-32GB", (7, 0), "bf16", False),
        ("Tesla V100-PCIE-32GB", (7, 0), "fp16", True),
        ("Tesla T4", (7, 5), "tf32", False),
        ("Tesla T4", (7, 5), "fp16", True),
        ("NVIDIA GeForce GTX 1660 SUPER", (7, 5), "fp16", False),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "tf32", True),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "fp8", False),
        ("NVIDIA GeForce RTX 3070 Ti", (8, 6), "bf16", True),
        ("NVIDIA H200", (9, 0), "fp8", True),
        ("NVIDIA GB10", (12, 1), "bf16", True),
        ("NVIDIA GeForce GTX 1080", (6, 1), "fp16", False),
        ("GPU of tomorrow", (99, 0), "fp16", False),
        ("", (0, 0), "fp32", False),
    ],
)
def test_tensor_types(name: str, capability: tuple[int, int], dtype: str, has: bool) -> None:
    assert has_tensor_dtype(*capability, dtype, name) is has


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("GPU of tomorrow", (10**12, 100, 10**9, 99, 0)),
        ("NVIDIA A100", (0, 0, 0, 8, 0)),
        ("Microsoft Basic Render Driver", (0, 0, 0, 0, 0)),
    ],
)
def test_unknown_devices_are_not_guessed(name: str, figures: tuple[int, ...]) -> None:
    peaks = device_peaks(name, *figures)  # type: ignore[arg-type]
    assert peaks.flops_per_s("fp32", "simt") is None
    assert peaks.ridge_flops_per_byte("fp32", "simt") is None
    assert peaks.memory_bytes_per_s == (float(figures[0]) or None)
    assert peaks.sm_count == (figures[1] or None)


def test_gb10_has_no_published_tensor_rate() -> None:
    peaks = device_peaks("NVIDIA GB10", 546 * GB, 48, 2_418_000_000, 12, 1)
    assert peaks.flops_per_s("bf16", "tensor") is None
    assert peaks.flops_per_s("fp32", "simt") == pytest.approx(29.7e12, rel=0.01)


def test_ridge() -> None:
    peaks = device_peaks("NVIDIA A100-SXM4-80GB", 2_039 * GB, 108, 1_410_000_000, 8, 0)
    assert peaks.ridge_flops_per_byte("bf16", "tensor") == pytest.approx(153, rel=0.01)
    assert peaks.ridge_flops_per_byte("fp32", "simt") == pytest.approx(9.56, rel=0.01)
    # unknown units: the higher roof, so that nothing is put above it
    assert peaks.flops_per_s("fp16", "unknown") == peaks.flops_per_s("fp16", "tensor")


A100 = device_peaks("NVIDIA A100-SXM4-80GB", 2_000 * GB, 108, 1_410_000_000, 8, 0)


def bound(kernels: pd.DataFrame, peaks: DevicePeaks = A100) -> list[tuple[str, str]]:
    """What binds kernels that have a configuration each, and how that is known."""
    kinds = kernels.assign(device=0)
    roofline = Roofline(kinds.join(roofs_of(kinds, {0: peaks})))
    basis = np.array([BASES.index(one) for one in kernels["basis"]], dtype=np.int8)
    moved, flops = (kernels[name].to_numpy(dtype=np.float64) for name in ("bytes", "flops"))
    took = kernels["duration_ns"].to_numpy(dtype=np.int64)
    verdict, known = roofline.bound(np.arange(len(kernels)), took, moved, basis, flops)
    if np.isnan(flops).all():
        again = roofline.bound(np.arange(len(kernels)), took, moved, basis)
        assert (again[0] == verdict).all()
        assert (again[1] == known).all()
    return [(BOUNDS[one], BASES[how]) for one, how in zip(verdict, known, strict=True)]


def judged(peaks: DevicePeaks = A100, **fields: object) -> tuple[str, str]:
    row: dict[str, object] = {
        "category": "elementwise", "dtype": "fp32", "math": "unknown", "blocks": 10_000,
        "duration_ns": 100_000, "bytes": np.nan, "basis": "", "flops": np.nan, **fields,
    }  # fmt: skip
    return bound(pd.DataFrame([row]), peaks)[0]


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"bytes": 1.7e8, "basis": "geometry"}, ("memory", "geometry")),
        ({"bytes": 1.7e8, "basis": "measured"}, ("memory", "measured")),
        ({"bytes": 0.5e8, "basis": "geometry"}, ("memory", "inferred")),
        ({}, ("memory", "inferred")),
        ({"category": "norm"}, ("memory", "inferred")),
        # fills the device for a few µs only
        ({"duration_ns": 4_999}, ("latency", "measured")),
        ({"blocks": 107}, ("latency", "measured")),
        ({"blocks": 107, "bytes": 1.7e8, "basis": "geometry"}, ("memory", "geometry")),
        # one block for the whole run
        ({"category": "other", "blocks": 1, "duration_ns": 10**9}, ("latency", "measured")),
        ({"category": "gemm", "math": "simt"}, ("compute", "inferred")),
        ({"category": "gemm", "math": "tensor"}, ("compute", "inferred")),
        ({"category": "gemm"}, ("unknown", "")),
        ({"category": "attention"}, ("compute", "inferred")),
        # persistent kernels need not start a block on every SM
        ({"category": "gemm", "math": "tensor", "blocks": 66}, ("compute", "inferred")),
        ({"category": "gemm", "math": "simt", "blocks": 66}, ("latency", "measured")),
        ({"category": "communication"}, ("unknown", "")),
        ({"category": "communication", "duration_ns": 100}, ("unknown", "")),
        ({"category": "other"}, ("unknown", "")),
        # 1.95 TFLOP/s of 19.5 with 20 operations per byte, ridge 9.75
        (
            {"category": "other", "math": "simt", "flops": 1.95e8, "bytes": 9.75e6,
             "basis": "geometry"},
            ("compute", "geometry"),
        ),
        # the same with 2 operations per byte
        (
            {"category": "gemm", "math": "simt", "flops": 1.95e7, "bytes": 9.75e6,
             "basis": "measured"},
            ("memory", "measured"),
        ),
        # 15 of 19.5 TFLOP/s
        (
            {"category": "conv", "math": "simt", "flops": 1.5e9, "bytes": 1e6, "basis": "measured"},
            ("compute", "measured"),
        ),
        # 100 TFLOP/s on units that make 19.5: the shapes belong to another kernel
        (
            {"category": "other", "math": "simt", "flops": 1e10, "bytes": 1e6, "basis": "measured"},
            ("unknown", ""),
        ),
    ],
)  # fmt: skip
def test_bound(fields: dict[str, object], verdict: tuple[str, str]) -> None:
    assert judged(**fields) == verdict


def test_without_peaks_only_the_category_speaks() -> None:
    unknown = DevicePeaks()
    assert judged(unknown, bytes=1e11, basis="geometry") == ("memory", "inferred")
    assert judged(unknown, category="gemm", math="simt", flops=1e20, bytes=1.0) == (
        "compute", "inferred",
    )  # fmt: skip
    assert judged(unknown, blocks=1) == ("memory", "inferred")
    assert judged(unknown, category="other") == ("unknown", "")


def test_bound_of_nothing() -> None:
    columns = ["category", "dtype", "math", "blocks", "duration_ns", "bytes", "basis", "flops"]
    assert bound(pd.DataFrame(columns=columns)) == []


KINDS = st.fixed_dictionaries(
    {
        "category": st.sampled_from(["gemm", "attention", "norm", "other", "communication"]),
        "dtype": st.sampled_from(["fp32", "bf16", "fp8", ""]),
        "math": st.sampled_from(["simt", "tensor", "unknown"]),
        "blocks": st.integers(0, 10**6),
        "duration_ns": st.integers(0, 10**9),
        "bytes": st.integers(0, 10**12) | st.just(np.nan),
        "basis": st.sampled_from(BASES),
        "flops": st.floats(0, 1e18) | st.just(np.nan),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=6), st.booleans())
def test_each_kernel_is_judged_alone(rows: list[dict[str, object]], categorical: bool) -> None:
    frame = pd.DataFrame(rows)
    names = ["category", "dtype", "math", "basis"]
    typed = frame.astype(dict.fromkeys(names, "category")) if categorical else frame
    told = bound(typed)
    assert told == [bound(frame.iloc[[i]].reset_index(drop=True))[0] for i in range(len(frame))]
    for (verdict, _), category in zip(told, frame["category"], strict=True):
        assert verdict == "unknown" or category != "communication"


def kernels_of(path: Path) -> tuple[pd.DataFrame, list[str], tuple[float, int] | None] | None:
    """Kernels, their names and (bandwidth, SMs) of the first GPU; None without kernels."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    columns = [
        f"{kind}{axis} as {kind}_{axis.lower()}" for kind in ("grid", "block") for axis in "XYZ"
    ]
    try:
        frame = pd.read_sql(
            f"select demangledName as id, {', '.join(columns)}, start as start_ns,"
            ' "end" as end_ns from CUPTI_ACTIVITY_KIND_KERNEL',
            connection,
        )
        texts = dict(connection.execute("select id, value from StringIds"))
    except (pd.errors.DatabaseError, sqlite3.OperationalError):
        return None
    ids = np.unique(frame["id"])
    try:
        device = connection.execute(
            "select memoryBandwidth, smCount from TARGET_INFO_GPU where smCount > 0"
        ).fetchone()
    except sqlite3.OperationalError:
        device = None
    connection.close()
    frame["name"] = np.searchsorted(ids, frame["id"])
    return frame, [texts[i] for i in ids], device


needs_corpus = pytest.mark.skipif(
    "NSYSDOCTOR_CORPUS" not in os.environ, reason="set NSYSDOCTOR_CORPUS"
)


@pytest.mark.corpus
@needs_corpus
def test_no_real_kernel_beats_its_memory() -> None:
    estimated = 0
    for path in sorted(Path(os.environ["NSYSDOCTOR_CORPUS"]).glob("*.sqlite")):
        loaded = kernels_of(path)
        if loaded is None or loaded[2] is None:
            continue
        kernels, names, (peak, sm_count) = loaded
        table = kernel_traffic(kernels, names, peak, sm_count)
        assert not (table["rate_bytes_per_s"] > (1 + 1e-12) * peak).any(), path.name
        estimated += int(table["bytes"].notna().sum())
    assert estimated > 10_000


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize(
    "trace", ["2025.1.3_rtx-3070-ti_1.sqlite", "2024.6.2_a100-sxm4-80gb_1.sqlite"]
)
def test_big_pointwise_kernels_run_at_memory_speed(trace: str) -> None:
    loaded = kernels_of(Path(os.environ["NSYSDOCTOR_CORPUS"]) / trace)
    assert loaded is not None
    kernels, names, device = loaded
    assert device is not None
    table = kernel_traffic(kernels, names, *device)
    contiguous = [i for i, name in enumerate(names) if "::vectorized_elementwise_kernel" in name]
    # too big for the cache
    big = table[kernels["name"].isin(contiguous) & (table["bytes"] > 100e6)]
    ratio = big["rate_bytes_per_s"] / device[0]
    assert len(big) > 500
    assert 0.86 < ratio.median() < 0.93
    assert ratio.quantile(0.05) > 0.75
    assert ratio.quantile(0.95) < 0.96


def test_kernel_names_of_the_pool_are_classified() -> None:
    assert classify(POOL, [""] * len(POOL))["matched"].all()
