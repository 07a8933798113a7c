"""The tables behind the kernel rules: kernels, attention, updates and chains."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysdoctor.diagnosis.diagnose import Options, diagnose
from nsysdoctor.report.model import Report
from nsysdoctor.roofline.geometry_work import limit_bytes
from nsysdoctor.roofline.kernel_work import is_log_softmax, operation_of, writes_of
from nsysdoctor.rulebook.rule import built_in_folder, load_rule
from nsysdoctor.tables.kernels.chains import chains
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.trace import Trace, open_trace
from sample_traces import PROGRAMS, kernels, record, write
from sample_traces.hardware import A100_80GB
from tests.make_scene import trace_of

RULES = (
    "unfused_memory_bound_chain", "unfused_attention", "unfused_optimizer",
    "fp32_memory_traffic", "fp32_gemm", "layout_transform", "underfilled_grid", "register_spill",
)  # fmt: skip
PRICED = [name for name, sample in PROGRAMS.items() if sample.rule in RULES[:6]]
CORPUS = os.environ.get("NSYSDOCTOR_CORPUS")
needs_corpus = pytest.mark.skipif(CORPUS is None, reason="set NSYSDOCTOR_CORPUS")


def judged(path: Path, rules: tuple[str, ...] = RULES) -> Report:
    loaded = [load_rule(built_in_folder() / f"{name}.yaml") for name in rules]
    return diagnose(path, Options(rules=loaded))


def written(name: str, folder: Path, *, cured: bool = False) -> Path:
    path = folder / f"{name}{cured}.sqlite"
    if not path.exists():
        write(record(name, cured=cured), path, layout="2025")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


# ---------------------------------------------------------------- words and writes

NAMES = {
    "add": kernels.pointwise(A100_80GB, "add", 1 << 20).name,
    "mul": kernels.pointwise(A100_80GB, "scale", 1 << 20).name,
    "gelu": kernels.pointwise(A100_80GB, "gelu", 1 << 20, kernels.BF16).name,
    "relu_backward": kernels.pointwise(A100_80GB, "threshold_backward", 1 << 20).name,
    "silu": kernels.pointwise(A100_80GB, "silu", 1 << 20).name,
    "rsqrt": kernels.pointwise(A100_80GB, "rsqrt", 1 << 20).name,
    "copy": kernels.cast_to_bf16(A100_80GB, 1 << 20).name,
    "masked_fill": kernels.masked_fill(A100_80GB, 1 << 20).name,
    "layer_norm": kernels.layer_norm(A100_80GB, 64, 1024).name,
    "softmax": kernels.softmax(A100_80GB, 64, 1024).name,
    "dropout": kernels.dropout(A100_80GB, 1 << 20).name,
    "sum": kernels.reduction(A100_80GB, 1 << 20).name,
}


@pytest.mark.parametrize("word", NAMES)
def test_a_kernel_is_called_after_what_it_computes(word: str) -> None:
    from nsysdoctor.roofline.kernel_names import short_name

    assert operation_of(NAMES[word], short_name(NAMES[word])) == word


def test_gradients_are_told_from_what_they_are_gradients_of() -> None:
    name = NAMES["silu"].replace("silu_kernel", "silu_backward_kernel")
    assert operation_of(name, "vectorized_elementwise_kernel") == "silu_backward"


@pytest.mark.parametrize(
    ("flag", "expected"), [("(bool)0", False), ("(bool)1", True), ("true", True), ("false", False)]
)
def test_a_log_softmax_shows_in_the_arguments(flag: str, expected: bool) -> None:
    name = f"void softmax_warp_forward<float, float, float, (int)10, {flag}, (bool)0>(T2 *)"
    assert is_log_softmax(name) is expected
    assert is_log_softmax("void cunn_SoftMaxForward<(int)4, float, LogSoftMaxForwardEpilogue>()")
    assert not is_log_softmax("void cunn_SoftMaxForward<(int)4, float, SoftMaxForwardEpilogue>()")


def test_written_share_follows_the_arrays_in_the_name() -> None:
    assert writes_of(NAMES["add"], "elementwise").ratio == pytest.approx(1 / 3)
    assert writes_of(NAMES["gelu"], "elementwise").ratio == pytest.approx(1 / 2)
    assert writes_of(NAMES["softmax"], "softmax").ratio == pytest.approx(1 / 2)
    strided = writes_of(NAMES["masked_fill"], "elementwise")
    assert (strided.per_thread, strided.out_bytes) == (2, 4)
    assert writes_of(NAMES["sum"], "reduction").ratio == 0


# ---------------------------------------------------------------- chains by hand

ADD = "at::native::CUDAFunctor_add<float>"
TEXT = f"""
kernel add = void at::native::vectorized_elementwise_kernel<(int)4, {ADD}, std::array<char *, (unsigned long)3>>(int, T2, T3)
kernel sigmoid = {kernels.pointwise(A100_80GB, "sigmoid", 1 << 20).name}
kernel gemm = ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn
repeat 20 every 1ms
  0    990us host range "step {{n}}"
  5us  6us host cudaLaunchKernel -> +2us 300us s7 kernel gemm grid=512 block=256
  +5us 6us host cudaLaunchKernel -> +1us 140us s7 kernel add grid=40960 block=128
  +5us 6us host cudaLaunchKernel -> +1us 93us s7 kernel sigmoid grid=40960 block=128
  +1us ..s7 host cudaStreamSynchronize s7
"""  # noqa: E501


def test_a_chain_moves_outer_inputs_and_outputs_at_its_own_bandwidth() -> None:
    found = trace_of(TEXT).table("chains")
    count = 40_960 * 128 * 4 * 4  # elements x 4 bytes = one array
    assert len(found) == 20
    chain = found.iloc[5]
    assert chain["kernel_count"] == 2
    assert chain["bytes"] == 5 * count
    # add reads two arrays; what lies between is neither written nor read; sigmoid writes one
    assert chain["outer_bytes"] == 3 * count
    assert chain["work_ns"] == 233_000
    assert chain["fused_ns"] == pytest.approx(233_000 * 3 / 5, abs=2)
    # at worst the result of add is needed elsewhere and still written
    assert chain["slow_ns"] == pytest.approx(233_000 * 4 / 5, abs=2)
    assert chain["known_ratio"] == 1
    assert chain["fp32_ratio"] == 1


def test_kernels_of_unknown_size_make_the_price_a_range() -> None:
    norm = kernels.layer_norm(A100_80GB, 64, 1024).name
    text = TEXT.replace("kernel sigmoid = ", f"kernel norm = {norm}\nkernel sigmoid = ").replace(
        "kernel sigmoid grid", "kernel norm grid"
    )
    chain = trace_of(text).table("chains").iloc[5]
    assert 0 < chain["known_ratio"] < 1
    assert chain["fast_ns"] < chain["fused_ns"] < chain["slow_ns"] <= chain["work_ns"]


def test_a_norm_written_out_reads_its_input_once_at_best() -> None:
    names = {
        "pow": kernels.pointwise(A100_80GB, "scale", 1 << 20).name,
        "mean": kernels.reduction(A100_80GB, 1 << 20).name,
        "rsqrt": kernels.pointwise(A100_80GB, "rsqrt", 1 << 20).name,
        "mul": kernels.pointwise(A100_80GB, "gelu", 1 << 20).name,
    }
    chain = "".join(
        f"  +5us 6us host cudaLaunchKernel -> +1us {us}us s7 kernel {name} grid={grid} block=128\n"
        for name, us, grid in (("pow", 93, 40_960), ("mean", 47, 1_024), ("rsqrt", 2, 4),
                               ("mul", 93, 40_960))
    )  # fmt: skip
    head = "".join(f"kernel {name} = {full}\n" for name, full in names.items())
    text = head + TEXT.replace(TEXT[TEXT.index("  +5us") : TEXT.index("  +1us ..s7")], chain)
    found = trace_of(text).table("chains").iloc[5]
    array = 40_960 * 128 * 4 * 4
    # the square and the mean's input stay inside; the last kernel reads the input again
    assert found["outer_bytes"] == pytest.approx(3 * array, rel=0.02)
    assert 0.5 * found["fused_ns"] < found["fast_ns"] < 0.68 * found["fused_ns"]


def test_no_kernel_belongs_to_two_fusions(folder: Path) -> None:
    for name in ("unfused_attention", "unfused_optimizer", "unfused_chain"):
        trace = open_trace(written(name, folder))
        taken = [
            trace.table(table)["kernel"].to_numpy()
            for table in ("attention_kernels", "optimizer_steps", "chain_kernels")
        ]
        together = np.concatenate(taken)
        assert len(together) > 0
        assert len(np.unique(together)) == len(together)


# ---------------------------------------------------------------- programs

@pytest.mark.parametrize("name", PRICED)
def test_cures_save_what_the_program_with_the_cure_saves(name: str, folder: Path) -> None:
    from sample_traces import steady_saving_ns

    sample, report = PROGRAMS[name], judged(written(name, folder))
    first, true = report.findings[0], steady_saving_ns(name)
    assert first.rule == sample.rule
    assert first.level != "info"
    low, saving, high = (
        int(getattr(first, f) or 0) for f in ("saving_low_ns", "saving_ns", "saving_high_ns")
    )
    if sample.low_high:
        assert low <= true <= high
    assert saving == pytest.approx(true, rel=0.15, abs=0.02 * report.window.span_ns)


@pytest.mark.parametrize("name", PRICED)
def test_cured_programs_have_nothing_left(name: str, folder: Path) -> None:
    report = judged(written(name, folder, cured=True))
    assert [f.rule for f in report.findings if f.level != "info"] == []


CONTROLS = [n for n, s in PROGRAMS.items() if s.rule is None and set(s.quiet) & set(RULES)]


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_and_healthy_programs_stay_quiet(name: str, folder: Path) -> None:
    report = judged(written(name, folder))
    assert [f.rule for f in report.findings if f.level != "info"] == []
    assert {o.state for o in report.outcomes} <= {"found", "passed", "skipped"}


def test_cures_of_one_kernel_add_up_to_no_more_than_its_time(folder: Path) -> None:
    report = judged(written("attention_fallback", folder))
    savings = [f.saving_ns or 0 for f in report.findings]
    assert {"unfused_attention", "fp32_gemm"} <= {f.rule for f in report.findings}
    assert max(savings) <= report.combined_saving_ns < sum(savings)


# ---------------------------------------------------------------- properties

def plain_report(path: Path) -> dict[str, object]:
    data = json.loads(judged(path).to_json())
    for outcome in data["outcomes"]:
        outcome.pop("seconds")
    data.pop("traces")
    return dict(data)


def shuffled(source: Path, target: Path, seed: int) -> Path:
    """A copy of an export whose rows stand in another order."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
        names = [row[0] for row in new.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        random = np.random.default_rng(seed)
        for name in names:
            rows = new.execute(f'SELECT * FROM "{name}"').fetchall()
            if len(rows) < 2 or name in ("StringIds", "META_DATA_EXPORT"):
                continue
            new.execute(f'DELETE FROM "{name}"')
            marks = ", ".join("?" * len(rows[0]))
            order = random.permutation(len(rows))
            new.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [rows[i] for i in order])
        new.commit()
    return target


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["unfused_attention", "unfused_optimizer", "fp32_memory_traffic"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_the_order_of_rows_in_the_export_does_not_matter(
    name: str, folder: Path, seed: int
) -> None:
    path = written(name, folder)
    other = shuffled(path, folder / f"{name}-shuffled.sqlite", seed)
    assert plain_report(other) == plain_report(path)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1), st.integers(1_000, 10**7),
                       st.booleans()), min_size=2, max_size=12)
)  # fmt: skip
def test_a_fused_kernel_takes_between_its_shortest_part_and_all_of_them(
    rows: list[tuple[int, float, int, bool]],
) -> None:
    moved, share, length, known = (list(column) for column in zip(*rows, strict=True))
    size = len(rows)
    start = np.concatenate([[0], np.cumsum(length)[:-1]])
    kinds = pd.DataFrame(
        {
            "device": 0, "name": np.arange(size) % 3, "category": "elementwise", "dtype": "fp32",
            "written_ratio": share, "written_most_bytes": np.nan,
        }
    )  # fmt: skip
    place = np.arange(size)
    each = {"op": place, "configuration": place, "bytes": np.where(known, moved, np.nan),
            "api": np.full(size, -1)}  # fmt: skip
    these = Kernels(kinds, each, pd.DataFrame({"start_ns": start, "end_ns": start + length}))
    part = pd.DataFrame({"chain": np.zeros(size, dtype=np.int32), "kernel": place})
    chain = chains(part, these, {0: 1e12}).iloc[0]
    assert chain["work_ns"] == sum(length)
    assert min(length) <= chain["fused_ns"] <= sum(length)
    assert chain["fast_ns"] <= chain["fused_ns"] <= chain["slow_ns"] <= sum(length)
    assert chain["outer_bytes"] >= -1e-3 * chain["bytes"]


# ---------------------------------------------------------------- the report

def test_the_report_lists_kernels_with_bound_basis_and_rate(folder: Path) -> None:
    report = judged(written("gelu_mul", folder))
    rows = {row.short: row for row in report.kernels if row.category == "elementwise"}
    row = rows["vectorized_elementwise_kernel"]
    assert (row.bound, row.basis) == ("memory", "geometry")
    assert row.rate_bytes_per_s is not None
    assert 0.8 < row.rate_bytes_per_s / A100_80GB.bandwidth < 0.96
    assert row.peak_ratio == pytest.approx(row.rate_bytes_per_s / A100_80GB.bandwidth)
    product = next(row for row in report.kernels if row.category == "gemm")
    assert (product.bound, product.basis, product.rate_bytes_per_s) == (
        "compute", "inferred", None,
    )  # fmt: skip


def test_unclassified_kernels_are_named_with_their_share(folder: Path) -> None:
    from io import StringIO

    from rich.console import Console

    from nsysdoctor.render.terminal import render_terminal

    report = judged(written("one_thread", folder))
    assert report.kernels[0].category == "other"
    out = StringIO()
    render_terminal(report, Console(file=out, width=120), verbose=True)
    assert "Not recognised, 100.0 % of the kernel time: walk (100.0 %)" in out.getvalue()


# ---------------------------------------------------------------- real exports

def real(name: str) -> Path:
    return Path(str(CORPUS)) / name


@pytest.mark.corpus
@needs_corpus
def test_fp32_products_come_first_on_an_a100_and_unfused_work_next() -> None:
    report = judged(real("2024.6.2_a100-sxm4-80gb_1.sqlite"))
    shown = [f.rule for f in report.findings if f.level != "info"]
    assert shown[0] == "fp32_gemm"
    assert set(shown[1:3]) == {"unfused_attention", "unfused_memory_bound_chain"}
    assert 0.85 < float(report.findings[0].facts["share_ratio"] or 0) < 0.95


@pytest.mark.corpus
@needs_corpus
def test_chains_of_a_transformer_stay_below_the_bandwidth_of_its_card() -> None:
    report = judged(real("2025.1.3_rtx-3070-ti_1.sqlite"))
    fusible = [f for f in report.findings if f.rule == "unfused_memory_bound_chain"]
    assert fusible[0].basis == "geometry"
    for finding in fusible:
        assert 0 < float(finding.facts["outer_bytes"] or 0) < float(finding.facts["bytes"] or 0)
        assert 3e11 < float(finding.facts["rate_bytes_per_s"] or 0) < 608e9
    rules = {f.rule for f in report.findings}
    assert {"unfused_attention", "unfused_optimizer", "fp32_gemm"} <= rules


def corpus() -> list[Path]:
    return sorted(Path(CORPUS).glob("*.sqlite")) if CORPUS else []


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("path", corpus(), ids=[path.stem for path in corpus()])
def test_no_real_trace_shows_more_than_its_roofs(path: Path) -> None:
    trace: Trace = open_trace(path)
    table = trace.optional("kernels")
    if table is None or not len(table):
        return
    limit = limit_bytes(table["duration_ns"], table["peak_bytes_per_s"])
    assert not (table["bytes"] > limit).any()
    assert not (table["written_bytes"] > 1.000001 * table["bytes"]).any()
    report = judged(path)
    assert {o.state for o in report.outcomes} <= {"found", "passed", "skipped"}
    for row in report.kernels:
        assert row.peak_ratio is None or 0 <= row.peak_ratio <= 1
        assert 0 <= row.share_ratio <= 1
    for finding in report.findings:
        for name, value in finding.facts.items():
            if name.endswith("_ratio"):
                assert value is None or 0 <= float(value) <= 1.000001, (finding.rule, name)
