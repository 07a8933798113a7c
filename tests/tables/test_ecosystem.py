"""What kind of program names show, and which words a cure speaks to it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pandas as pd
import pytest
import yaml

from nsysdoctor.rulebook.rule import ECOSYSTEMS, Words, load_rules
from nsysdoctor.tables.activity.ecosystem import ecosystem_of, ecosystem_signs

NONE = pd.Series([], dtype=str)
TEXT = files("nsysdoctor.tables.activity").joinpath("ecosystems.yaml").read_text("utf-8")
ENTRIES: list[dict[str, Any]] = yaml.safe_load(TEXT)
KERNELS = [(e["ecosystem"], text) for e in ENTRIES for text in e["examples"].get("kernels", ())]
RANGES = [(e["ecosystem"], text) for e in ENTRIES for text in e["examples"].get("ranges", ())]


@pytest.mark.parametrize(("ecosystem", "text"), KERNELS)
def test_a_kernel_name_shows_its_ecosystem(ecosystem: str, text: str) -> None:
    assert ecosystem_of(pd.Series(["vectorAdd(float *)", text]), NONE) == ecosystem


@pytest.mark.parametrize(("ecosystem", "text"), RANGES)
def test_a_range_shows_its_ecosystem(ecosystem: str, text: str) -> None:
    assert ecosystem_of(NONE, pd.Series(["step 1", text])) == ecosystem


@pytest.mark.parametrize(
    "kernel",
    ["vectorAdd(const float *, float *, int)", "ampere_sgemm_128x64_tn", "saxpy(double *)",
     "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm *)", "void trsm_right_kernel<double>(int)",
     "fp8_mqa_logits_kernel", "void Kokkos::Impl::cuda_parallel_launch_local_memory<int>(int)"],
)  # fmt: skip
def test_plain_kernels_are_cuda(kernel: str) -> None:
    assert ecosystem_of(pd.Series([kernel]), NONE) == "cuda"


def test_every_ecosystem_is_one_that_rules_may_speak() -> None:
    assert {signs.ecosystem for signs in ecosystem_signs()} <= set(ECOSYSTEMS)


def words(**more: Any) -> Words:
    """The words of a rule with cures for a few ecosystems."""
    fix = {"pytorch": "p", "cuda": "c", "openacc": "o", "cupy": "y"}
    return Words(title="t", category="copies", message="m", why="w", fix=fix, **more)


@pytest.mark.parametrize(
    ("ecosystem", "text"),
    [("pytorch", "p"), ("openmp", "o"), ("numba", "y"), ("rapids", "y"), ("julia", "c"),
     ("fortran", "c"), ("jax", "c")],
)  # fmt: skip
def test_a_cure_is_in_the_nearest_language(ecosystem: str, text: str) -> None:
    assert words().cure_for(ecosystem)[0] == text


def test_a_variant_goes_before_the_rule_s_own_cure() -> None:
    some = words(variants={"DtoH": {"cuda": "down"}})
    assert some.cure_for("cuda", "DtoH") == ("down", "cuda")
    assert some.cure_for("pytorch", "DtoH") == ("down", "cuda")
    assert some.cure_for("pytorch", "HtoD") == ("p", "pytorch")


def test_an_example_is_in_the_language_of_the_cure() -> None:
    flat = words(example={"bad": "x", "good": "y"})
    assert flat.example_for("pytorch") == {"bad": "x", "good": "y"}
    assert flat.example_for("cuda") == {}
    own = words(example={"cuda": {"bad": "a", "good": "b"}})
    assert own.example_for("cuda") == {"bad": "a", "good": "b"}
    assert own.example_for("pytorch") == {}


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.name)
def test_no_program_gets_an_example_in_another_language(rule: Any) -> None:
    for ecosystem in ECOSYSTEMS:
        _, spoken = rule.words.cure_for(ecosystem)
        if "torch." in str(rule.words.example_for(spoken)):
            assert spoken == "pytorch"
