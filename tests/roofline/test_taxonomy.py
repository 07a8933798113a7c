"""Kernel names say what a kernel does, in either spelling, and nobody is taken for another."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysdoctor.errors import RuleError
from nsysdoctor.roofline.kernel_names import readable, short_name
from nsysdoctor.roofline.taxonomy import (
    CHAINABLE,
    COMPUTE_HEAVY,
    MEMORY_BOUND,
    KernelRule,
    Taxonomy,
    classify,
    load_taxonomy,
    rule_of,
)
from tests import ROOT

TAXONOMY = load_taxonomy()
EXAMPLES = [(rule, text) for rule in TAXONOMY.rules for text in rule.examples]


class Kernel(NamedTuple):
    category: str
    dtype: str
    fused: bool
    library: str
    math: str
    phase: str
    matched: bool


def described(full: str, short: str | None = None, taxonomy: Taxonomy | None = None) -> Kernel:
    frame = classify([full], [short_name(full) if short is None else short], taxonomy)
    return Kernel(*frame.iloc[0].tolist())


def compact(full: str) -> str:
    """The nsys spelling turned into the one of c++filt."""
    text = re.sub(r"\(unsigned (?:long|long long|int)\)(\d+)", r"\1ul", full)
    text = re.sub(r"\(bool\)([01])", lambda m: ("false", "true")[int(m[1])], text)
    text = re.sub(r"\((?:int|long)\)(-?\d+)(?!\d)", r"\1", text)
    text = re.sub(r"\[lambda\((.*?)\) \(instance (\d+)\)\]", r"{lambda(\1)#\2}", text)
    text = text.replace("operator ()", "operator()").replace("<unnamed>", "(anonymous namespace)")
    return text.replace(" *", "*").replace(" &", "&").replace(">>", "> >")


@pytest.mark.parametrize(("rule", "text"), EXAMPLES, ids=[text[:60] for _, text in EXAMPLES])
def test_example_is_caught_by_its_own_rule(rule: KernelRule, text: str) -> None:
    assert rule_of(text, "", TAXONOMY) is rule
    assert rule_of(text, short_name(readable(text)), TAXONOMY) is rule


def test_every_rule_shows_an_example() -> None:
    assert [rule for rule in TAXONOMY.rules if not rule.examples] == []


def test_every_category_is_described_and_used() -> None:
    assert {rule.category for rule in TAXONOMY.rules} == set(TAXONOMY.categories)
    assert set(TAXONOMY.categories) >= MEMORY_BOUND | COMPUTE_HEAVY | CHAINABLE


@pytest.mark.parametrize("text", [text for _, text in EXAMPLES if "(int)" in text or "[l" in text])
def test_both_spellings_say_the_same(text: str) -> None:
    assert described(compact(text)) == described(text)


MATRIX_KERNELS = [
    ("ampere_sgemm_128x64_tn", "gemm", "fp32", "simt"),
    ("volta_sgemm_128x64_nn", "gemm", "fp32", "simt"),
    ("maxwell_sgemm_128x64_tn", "gemm", "fp32", "simt"),
    ("sgemm_32x32x32_NN_vec", "gemm", "fp32", "simt"),
    ("volta_dgemm_64x64_nt", "gemm", "fp64", "simt"),
    ("volta_gcgemm_32x32_nt", "gemm", "complex64", "simt"),
    ("volta_zgemm_32x32_nn", "gemm", "complex128", "simt"),
    ("ampere_hgemm_128x128_nn", "gemm", "fp16", "simt"),
    ("volta_h884gemm_64x128_ldg8_nn", "gemm", "fp16", "tensor"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "fp16", "tensor"),
    ("turing_h1688gemm_128x128_ldg8_nn", "gemm", "fp16", "tensor"),
    ("turing_fp16_s1688gemm_fp16_256x64_ldg8_f2f_nn", "gemm", "fp16", "tensor"),
    ("ampere_h16816gemm_128x64_ldg8_stages_64x3_nn", "gemm", "fp16", "tensor"),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", "gemm", "fp16", "tensor"),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", "gemm", "bf16", "tensor"),
    ("ampere_bf16_s1688gemm_bf16_64x64_sliced1x2_ldg8_f2f_tn", "gemm", "bf16", "tensor"),
    ("ampere_tf32_s1688gemm_128x128_ldg4_tn", "gemm", "tf32", "tensor"),
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "gemm", "bf16", "tensor"),
    ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "gemm", "fp16", "tensor"),
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "gemm", "fp8", "tensor"),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma"
        "_aligna4_alignc4_execute_kernel__5x_cublas",
        "gemm", "fp32", "simt",
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_tensor16x8x8_kernel",
        "gemm", "tf32", "tensor",
    ),
    (
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_tensor16x8x16_kernel",
        "gemm", "fp16", "tensor",
    ),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
        "_segment_k_off_kernel__5x_cublas",
        "gemm", "bf16", "tensor",
    ),
    (
        "sm80_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize32x64x16_tensor8x8x4_kernel",
        "gemm", "fp64", "tensor",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)",
        "gemm", "fp32", "simt",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(T1::Params)",
        "gemm", "tf32", "tensor",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688bf16gemm_128x128_16x5_nn_align4>(P)",
        "gemm", "bf16", "tensor",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_tn_align8>(P)",
        "gemm", "fp16", "tensor",
    ),
    (
        "void cutlass::Kernel<cutlass_80_tensorop_d884gemm_32x32_16x5_tn_align1>(T1::Params)",
        "gemm", "fp64", "tensor",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x128_64x3_tn_align16>(P)",
        "gemm", "int8", "tensor",
    ),
    (
        "void gemmSN_NN_kernel<float, (int)128, (int)2, (int)4, (int)8, (int)4, (int)4, "
        "cublasGemvTensorStridedBatched<const float>>(cublasGemmSmallNParams<T8, T9, T1>)",
        "gemm", "fp32", "simt",
    ),
    (
        "void gemv2T_kernel_val<int, int, __half, __half, float, (int)128>(T11, T5, T5)",
        "gemm", "fp16", "unknown",
    ),
    (
        "void splitKreduce_kernel<(int)32, (int)16, int, double, double>(cublasSplitKParams<T6>)",
        "gemm", "fp64", "unknown",
    ),
    (
        "void cudnn::detail::implicit_convolve_sgemm<float, float, (int)1024, (int)5>(int)",
        "conv", "fp32", "simt",
    ),
    (
        "void cudnn::detail::implicit_convolve_sgemm<__half, __half, (int)1024, (int)5>(int)",
        "conv", "fp16", "simt",
    ),
    ("volta_scudnn_128x64_relu_interior_nn_v1", "conv", "fp32", "simt"),
    ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small", "conv", "fp16", "tensor"),
    (
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16"
        "_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn",
        "conv", "tf32", "tensor",
    ),
    (
        "xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3"
        "_warpsize1x2x1_g1_ffma_aligna4_execute_kernel__5x_cudnn",
        "conv", "fp32", "simt",
    ),
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64>(P)",
        "conv", "bf16", "tensor",
    ),
    (
        "void cutlass_cudnn::Kernel<cutlass_simt_sfprop_optimized_128x128_8x4_nchw_align1>(P)",
        "conv", "fp32", "simt",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "category", "dtype", "math"), MATRIX_KERNELS)
def test_matrix_kernel(name: str, category: str, dtype: str, math: str) -> None:
    kernel = described(name)
    assert (kernel.category, kernel.dtype, kernel.math) == (category, dtype, math)


ATEN = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::"
POINTWISE = [
    ("CUDAFunctor_add<float>, std::array<char *, (unsigned long)3>>(int)", "elementwise", "fp32"),
    ("AbsFunctor<c10::Half>, std::array<char *, (unsigned long)2>>(int)", "elementwise", "fp16"),
    ("CUDAFunctor_add<c10::BFloat16>, std::array<char *, 3ul>>(int)", "elementwise", "bf16"),
    ("AbsFunctor<long>, std::array<char *, (unsigned long)2>>(int)", "elementwise", "int64"),
    (
        "BinaryFunctor<bool, bool, bool, at::native::BitwiseOrFunctor<bool>>, "
        "std::array<char *, (unsigned long)3>>(int, T2, T3)",
        "elementwise", "bool",
    ),
    (
        "<unnamed>::where_kernel_impl(at::TensorIterator &)::[lambda(bool, long, long) "
        "(instance 1)], std::array<char *, (unsigned long)4>>(int, T2, T3)",
        "elementwise", "int64",
    ),
    ("FillFunctor<double>, std::array<char *, (unsigned long)1>>(int, T2, T3)", "memory", "fp64"),
    (
        "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(c10::complex<float>) "
        "(instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
        "copy_cast", "complex64",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("functor", "category", "dtype"), POINTWISE)
def test_pointwise_kernel(functor: str, category: str, dtype: str) -> None:
    kernel = described(ATEN + functor)
    assert kernel[:4] == (category, dtype, False, "ATen")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "fp32"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE(ncclDevComm *)", "bf16"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm *)", ""),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm *, unsigned long, ncclWork *)",
            "fp32",
        ),
        ("ncclKernel_AllReduce_TREE_LL_Sum_half(ncclDevComm *)", "fp16"),
        ("ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16(ncclDevComm *)", "bf16"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm *)", "int8"),
    ],
)
def test_collective(name: str, dtype: str) -> None:
    kernel = described(name)
    assert (kernel.category, kernel.library, kernel.dtype) == ("communication", "NCCL", dtype)


@pytest.mark.parametrize(
    "name",
    [
        "my_nccl_like_gemm(float *)",
        "nccl_free_softmax(float *)",
        "prepare_for_ncclKernel(int *)",
        "dispatch(int *)",
        "combine(float *)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
    ],
)
def test_not_communication(name: str) -> None:
    assert described(name).category != "communication"


@pytest.mark.parametrize(
    ("name", "category", "fused"),
    [
        ("triton_poi_fused_gelu_mul_0", "elementwise", True),
        ("triton_per_fused__softmax_add_div_3", "softmax", True),
        ("triton_per_fused_add_native_layer_norm_5", "norm", True),
        ("triton_red_fused_sum_7", "reduction", True),
        ("triton_tem_fused_addmm_2", "gemm", True),
        ("triton_tem_fused_flex_attention_0", "attention", True),
        ("loop_add_fusion", "elementwise", True),
        ("fusion_123", "elementwise", True),
        ("input_reduce_fusion", "reduction", True),
        ("wrapped_add", "elementwise", False),
        ("wrapped_transpose_2", "layout", False),
        ("void vllm::fused_add_rms_norm_kernel<c10::Half, (int)8>(int)", "norm", True),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
         "norm", False),
    ],
)  # fmt: skip
def test_fused_or_not(name: str, category: str, fused: bool) -> None:
    kernel = described(name)
    assert (kernel.category, kernel.fused) == (category, fused)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("void vllm::fused_add_rms_norm_kernel<c10::Half, (int)8>(int)", "vLLM"),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)", "FlashInfer"),
        ("void transformer_engine::normalization::ln_fwd_tuned_kernel<T>(P)", "TransformerEngine"),
        (
            "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float>(int)",
            "ATen",
        ),
        ("void cudnn::bn_fw_tr_1C11_singleread<float, 512>(int)", "cuDNN"),
        ("_rms_norm_forward_kernel", ""),
        ("void flash::flash_fwd_kernel<Traits<cutlass::bfloat16_t> >(P)", "FlashAttention"),
        ("void cub::DeviceScanKernel<Policy, int const*, int*>(int const*, int*)", "CUB"),
    ],
)
def test_library(name: str, library: str) -> None:
    assert described(name).library == library


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (
            "void (anonymous namespace)::softmax_warp_backward<float, float, float, 9>(int)",
            "backward",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9>(int)",
            "forward",
        ),
        ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, T>(P)", "backward"),
        ("sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_tensor16x8x16_kernel", "backward"),
        (
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float> >(int)",
            "optimizer",
        ),
        ("ampere_sgemm_128x64_tn", ""),
    ],
)
def test_phase(name: str, phase: str) -> None:
    assert described(name).phase == phase


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::<unnamed>::softmax_warp_forward<float, (int)6>(T2 *)",
            "softmax_warp_forward",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        (
            "<unnamed>::nvfuser_pointwise_f0(<unnamed>::Tensor<float, (int)2>)",
            "nvfuser_pointwise_f0",
        ),
        ("vadd(const float *, float *, int)", "vadd"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, A<B<int> > >(T11)",
            "kernel",
        ),
        ("void f<&g, (int)1, h<(bool)0>>(int)", "f"),
        ("void f<", "f"),
        ("", ""),
    ],
)
def test_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("mangled", "category", "dtype"),
    [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE"
         "St5arrayIPcLm3EEEEviT0_T1_", "elementwise", "fp32"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c108BFloat16EEE"
         "St5arrayIPcLm3EEEEviT0_T1_", "elementwise", "bf16"),
        ("_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi4EEE"
         "NS1_20FusedAdamMathFunctorIfLi4EEEJfEEEvT_T0_DpT1_", "optimizer", "fp32"),
        ("_ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x64_8x5_nt_align1EEvNT_6ParamsE",
         "gemm", "fp32"),
        ("_Z4vaddPKfPfi", "other", ""),
        ("_Z", "other", ""),
        ("_Z99tooShort", "other", ""),
    ],
)  # fmt: skip
def test_mangled_name(mangled: str, category: str, dtype: str) -> None:
    kernel = described(mangled, mangled)
    assert (kernel.category, kernel.dtype) == (category, dtype)


@pytest.mark.parametrize("name", ["vadd(const float *, float *, int)", "jacobi_kernel", "", "ncc"])
def test_unknown_kernel_is_named_as_such(name: str) -> None:
    kernel = described(name)
    assert (kernel.category, kernel.matched, kernel.fused, kernel.library) == (
        "other", False, False, "",
    )  # fmt: skip


@settings(deadline=None)
@given(st.text(max_size=80), st.text(max_size=30))
def test_any_text_has_an_answer(full: str, short: str) -> None:
    kernel = described(full, short)
    assert kernel.category in TAXONOMY.categories
    assert kernel.math in ("simt", "tensor", "unknown")
    assert kernel.matched == (kernel.category != "other")


def test_no_names_give_an_empty_table() -> None:
    frame = classify([], [])
    assert frame.empty
    assert frame["fused"].dtype == bool


def test_own_rules_come_first(tmp_path: Path) -> None:
    own = tmp_path / "ours.yaml"
    own.write_text(
        "categories: {stencil: finite differences}\n"
        "rules:\n"
        "  - {short: '^jacobi', category: stencil, library: ours, dtype: fp64}\n"
        "  - {short: '^ampere_sgemm', category: attention, fused: true}\n"
    )
    taxonomy = load_taxonomy(own)
    assert described("jacobi_kernel(float *)", taxonomy=taxonomy)[:4] == (
        "stencil", "fp64", False, "ours",
    )  # fmt: skip
    assert described("ampere_sgemm_128x64_tn", taxonomy=taxonomy)[:3] == ("attention", "", True)
    assert described("volta_sgemm_128x64_tn", taxonomy=taxonomy).category == "gemm"
    assert described("jacobi_kernel(float *)").category == "other"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules: [{short: '^a', category: nonsense}]", "category 'nonsense'"),
        ("rules: [{short: '^a', category: gemm, colour: red}]", "unknown fields colour"),
        ("rules: [{category: gemm}]", "no pattern"),
        ("rules: [{short: '(', category: gemm}]", "no regular expression"),
        ("rules: [{short: '^a', category: gemm, math: fast}]", "math 'fast'"),
        ("rules: [", "not YAML"),
        ("just a sentence", "no list of rules"),
        ("rules: {a: b}", "no list of rules"),
    ],
)
def test_own_rules_with_a_fault(tmp_path: Path, text: str, complaint: str) -> None:
    own = tmp_path / "ours.yaml"
    own.write_text(text)
    with pytest.raises(RuleError) as caught:
        load_taxonomy(own)
    assert complaint in caught.value.message
    assert caught.value.hint


def test_a_name_takes_few_calls() -> None:
    """How long that is depends on the machine and on what else it does."""
    names = [text for _, text in EXAMPLES]
    shorts = [short_name(readable(text)) for text in names]
    classify(names, shorts)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        classify(names, shorts)
    finally:
        sys.setprofile(None)
    assert calls / len(names) < 1000


DOCS = ROOT / "docs" / "kernels.md"


def test_the_docs_list_every_category() -> None:
    table = DOCS.read_text().split("| category")[1].split("A kernel of your own")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(TAXONOMY.categories)


def test_the_example_in_the_docs_works(tmp_path: Path) -> None:
    own = tmp_path / "ours.yaml"
    own.write_text(DOCS.read_text().split("```yaml\n")[1].split("```")[0])
    taxonomy = load_taxonomy(own)
    assert described("jacobi_kernel(float *)", taxonomy=taxonomy)[:2] == ("stencil", "fp64")
    assert described("my_fused_norm_fwd(float *)", taxonomy=taxonomy)[:3] == ("norm", "fp32", True)


ML_LIBRARIES = {"ATen", "cuDNN", "cuBLAS", "FlashAttention", "Triton", "XLA", "TensorFlow"}


def kernel_names(path: Path) -> list[tuple[str, str, int]]:
    """(full name, short name, ns in all) of each kernel in an export; empty without kernels."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        return connection.execute(
            "select d.value, s.value, sum(k.end - k.start) from CUPTI_ACTIVITY_KIND_KERNEL k"
            " join StringIds d on d.id = k.demangledName join StringIds s on s.id = k.shortName"
            " group by 1, 2"
        ).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()


def corpus() -> Iterator[Path]:
    yield from sorted(Path(os.environ["NSYSDOCTOR_CORPUS"]).glob("*.sqlite"))


@pytest.mark.corpus
@pytest.mark.skipif("NSYSDOCTOR_CORPUS" not in os.environ, reason="set NSYSDOCTOR_CORPUS")
def test_little_is_left_unclassified_in_traces_of_ml_frameworks() -> None:
    shares = {}
    for path in corpus():
        rows = kernel_names(path)
        frame = classify([row[0] for row in rows], [row[1] for row in rows])
        if not ML_LIBRARIES & set(frame["library"]):
            continue
        time_ns = frame.assign(ns=[row[2] for row in rows]).groupby("matched")["ns"].sum()
        shares[path.name] = time_ns.get(False, 0) / time_ns.sum()
    assert len(shares) >= 10
    assert {name: share for name, share in shares.items() if share >= 0.05} == {}
