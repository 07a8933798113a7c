"""What range texts of the frameworks say, one form after another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysdoctor.roofline.operator_text import (
    BACKWARD,
    FUNCTION,
    MODULE,
    OPERATOR,
    Annotation,
    read_text,
    title,
)


def operator(name: str, *sizes: tuple[int, ...], dtypes: tuple[str, ...] = ()) -> Annotation:
    return Annotation(OPERATOR, name, "", sizes, dtypes)


@pytest.mark.parametrize(
    ("text", "said", "seq"),
    [
        # emit_nvtx, with and without each of its fields
        ("aten::mul, seq = 45328, op_id = 990726", operator("aten::mul"), 45328),
        ("aten::view, op_id = 314290", operator("aten::view"), -1),
        ("aten::empty", operator("aten::empty"), -1),
        ("aten::_convolution, seq = 0", operator("aten::_convolution"), 0),
        (
            "aten::addmm, seq = 3, op_id = 12, sizes = [[64], [8, 32], [32, 64], [], []]",
            operator("aten::addmm", (64,), (8, 32), (32, 64), (), ()), 3,
        ),
        (
            "aten::mm, seq = 3, op_id = 12, sizes = [[8, 32], [32, 64]],"
            " input_op_ids = [(3,0), (7,1)]",
            operator("aten::mm", (8, 32), (32, 64)), 3,
        ),
        # a list of tensors: each is an argument of its own
        (
            "aten::cat, sizes = [[[2, 3], [4, 3]], []]",
            operator("aten::cat", (2, 3), (4, 3), ()), -1,
        ),
        # names with commas and brackets
        (
            "my op, v[2], seq = 9, op_id = 4, sizes = [[1]]",
            operator("my op, v[2]", (1,)), 9,
        ),
        ("MulBackward0, seq = 45328, op_id = 77", Annotation(BACKWARD, "MulBackward0"), 45328),
        (
            "autograd::engine::evaluate_function: AddmmBackward0, seq = 5, op_id = 8",
            Annotation(BACKWARD, "AddmmBackward0"), 5,
        ),
        # with the types that our own records add
        (
            "aten::mul, seq = 1, op_id = 2, sizes = [[4, 3], []], dtypes = [bfloat16, ]",
            operator("aten::mul", (4, 3), (), dtypes=("bfloat16", "")), 1,
        ),
        # markers of nsysdoctor.torch, also behind emit_nvtx, which adds its number
        (
            'module layers.0.fc1 (Linear), sizes = [[8, 32]], dtypes = [float32],'
            ' settings = {\'in_features\': 32, \'weights\': {\'weight\': [64, 32]}}, op_id = 5',
            Annotation(
                MODULE, "Linear", "layers.0.fc1", ((8, 32),), ("float32",),
                {"in_features": 32, "weights": {"weight": [64, 32]}},
            ),
            -1,
        ),
        ("module  (Net)", Annotation(MODULE, "Net"), -1),
        # layer-wise hooks of vLLM and SGLang
        (
            "{'Module': 'model.layers.0.mlp.up', 'TrainableParams': {'weight': [64, 32]},"
            " 'Inputs': [[8, 32]], 'StaticParams': {'in_features': 32, 'out_features': 64}}",
            Annotation(
                MODULE, "", "model.layers.0.mlp.up", ((8, 32),), (),
                {"in_features": 32, "out_features": 64, "weights": {"weight": [64, 32]}},
            ),
            -1,
        ),
        # argument records of DLProf
        (
            "{'mod': 'Tensor', 'op': 'uniform_', 'args': [{'name': '', 'type': 'tensor',"
            " 'shape': (6, 3, 3, 3), 'dtype': 'float32'}]}",
            operator("uniform_", (6, 3, 3, 3), dtypes=("float32",)), -1,
        ),
        ("{'traceMarker': ['a.py:3'], 'funcStack': '/f'}",
         Annotation("", "{'traceMarker': ['a.py:3'], 'funcStack': '/f'}"), -1),
        # Megatron, DeepSpeed, optimizers
        (
            "megatron.core.transformer.transformer_layer.forward.self_attention",
            Annotation(
                FUNCTION, "megatron.core.transformer.transformer_layer.forward.self_attention"
            ),
            -1,
        ),
        ("DeepSpeedEngine.forward", Annotation(FUNCTION, "DeepSpeedEngine.forward"), -1),
        ("Optimizer.step#AdamW.step", Annotation(FUNCTION, "Optimizer.step#AdamW.step"), -1),
        # XLA
        ("Thunk:#hlo_op=fusion.3#", Annotation(OPERATOR, "fusion.3"), -1),
        (
            "XlaModule:#prefix=jit(f),hlo_module=jit_train_step,program_id=7#",
            Annotation(MODULE, "XlaModule", "jit_train_step"), -1,
        ),
        # texts of no known form
        ("step 12", Annotation("", "step 12"), -1),
        ("FSDP::post_forward (blocks.10), op_id = 994942",
         Annotation("", "FSDP::post_forward (blocks.10)"), -1),
        ("", Annotation("", ""), -1),
    ],
)  # fmt: skip
def test_text(text: str, said: Annotation, seq: int) -> None:
    assert read_text(text) == (said, seq)


@pytest.mark.parametrize(
    "text",
    [
        "aten::mm, sizes = [[8, 32], [32",
        "aten::mm, sizes = [8, 32]",
        "aten::mm, sizes = [[8, -1]]",
        "aten::mm, sizes = [[true]]",
        "aten::mm, sizes = 7",
    ],
)
def test_broken_sizes_are_no_sizes(text: str) -> None:
    assert read_text(text)[0] == operator("aten::mm")


@pytest.mark.parametrize("text", ["{'Module': ", "{'Module': 3}", "{" * 5000, "{1: 2}", "{}"])
def test_broken_dictionaries_say_nothing(text: str) -> None:
    assert read_text(text)[0].kind == ""


def test_types_that_do_not_match_the_sizes_are_left_out() -> None:
    assert read_text("aten::mm, sizes = [[1, 2]], dtypes = [a, b]")[0].dtypes == ()


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    said, seq = read_text(text)
    assert seq >= -1
    assert said.kind or not said.sizes


SIZES = st.lists(st.lists(st.integers(0, 1 << 40), max_size=5), max_size=6)


@given(st.sampled_from(["aten::mm", "x::y", "MyFunction"]), st.integers(0, 1 << 40), SIZES)
def test_what_emit_nvtx_writes_is_read_back(name: str, seq: int, sizes: list[list[int]]) -> None:
    text = f"{name}, seq = {seq}, op_id = 3" + (f", sizes = {sizes}" if sizes else "")
    said, number = read_text(text)
    assert (said.name, number, said.sizes) == (name, seq, tuple(map(tuple, sizes)))


@pytest.mark.parametrize(
    ("settings", "inputs", "name", "sizes"),
    [
        (
            {"in_features": 32, "weights": {"weight": [64, 32], "bias": [64]}}, ((8, 32),),
            "linear", ((8, 32), (64, 32), (64,)),
        ),
        (
            {"kernel_size": [3, 3], "stride": [1, 1], "weights": {"weight": [4, 2, 3, 3]}},
            ((1, 2, 8, 8),), "convolution", ((1, 2, 8, 8), (4, 2, 3, 3)),
        ),
        (
            {"num_embeddings": 100, "weights": {"weight": [100, 8]}}, ((5, 2),),
            "embedding", ((100, 8), (5, 2)),
        ),
    ],
)  # fmt: skip
def test_a_module_of_known_kind_is_an_operator(
    settings: dict[str, object], inputs: tuple[tuple[int, ...], ...], name: str,
    sizes: tuple[tuple[int, ...], ...],
) -> None:  # fmt: skip
    found = Annotation(MODULE, "", "a", inputs, settings=settings).as_operator()
    assert found is not None
    assert (found.name, found.sizes, found.module) == (name, sizes, "a")


@pytest.mark.parametrize(
    "settings", [{}, {"in_features": 3}, {"in_features": 3, "weights": {}}, {"weights": None}]
)
def test_a_module_of_no_known_kind_is_none(settings: dict[str, object]) -> None:
    assert Annotation(MODULE, "", "a", ((8, 32),), settings=settings).as_operator() is None


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("aten::copy_, seq = 7, op_id = 9, sizes = [[4], [4]]", "aten::copy_"),
        ("module layers.0.fc1 (Linear), sizes = [[8, 32]]", "layers.0.fc1 (Linear)"),
        ("module  (Net)", "the model (Net)"),
        ("{'Module': 'model.layers.0', 'Inputs': [[8]]}", "model.layers.0"),
        ("AddmmBackward0, seq = 5", "AddmmBackward0"),
        ("step 12", "step 12"),
        ("load batch, worker 3", "load batch, worker 3"),
        ("", ""),
    ],
)
def test_title(text: str, called: str) -> None:
    assert title(text) == called
