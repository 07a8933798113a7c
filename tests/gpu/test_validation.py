"""The validation on a GPU, and what of it can be held without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.roofline.operator_text import MODULE, OPERATOR, read_text
from nsysdoctor.torch import shapes, step
from nsysdoctor.trace.trace import open_trace
from sample_traces import write
from sample_traces.hardware import A100_80GB
from sample_traces.recording import Recording
from tests.gpu.__main__ import gpu_torch
from tests.gpu.convert import export_of, recording_of
from tests.gpu.stories import STORIES, Size, Story
from tests.gpu.validate import Outcome, table_of, validate

SMALL = Size("cpu", 1 << 12, 16, 2, 8, 16, 8, 5)
PID, THREAD, AUTOGRAD = 4000, 4000, 4011


@pytest.mark.skipif(gpu_torch() is None, reason="torch sees no NVIDIA GPU here")
def test_savings_are_predicted_well(tmp_path: Path) -> None:
    torch = gpu_torch()
    outcomes = validate(torch, tmp_path)
    print(table_of(outcomes, torch.cuda.get_device_name(0)))
    assert [one.story for one in outcomes if not one.good] == []


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
@pytest.mark.parametrize("cured", [False, True])
def test_stories_run(story: Story, cured: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    body = story.make(torch, SMALL, cured)
    body()
    body()


def test_rules_of_the_stories_exist() -> None:
    from nsysdoctor.rulebook.rule import load_rules

    known = {rule.name for rule in load_rules()}
    assert {rule for story in STORIES for rule in story.rules} <= known


class Clock:
    """Events as torch's profiler writes them, on a clock of µs since its base."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.at = 5_120_116_560_000.0

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int, **told: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "ts": self.at + ts,
             "dur": dur, "args": told}
        )  # fmt: skip


def pageable_loop(steps: int = 12) -> list[dict[str, Any]]:
    """Steps that copy 16 MB from pageable memory, then run one kernel of 2 ms."""
    clock = Clock()
    for index in range(steps):
        t, low = 6000.0 * index, 10 * index
        clock.add("user_annotation", f"step {index}", t, 5990.0, THREAD)
        clock.add("cpu_op", "aten::copy_", t + 10, 3300.0, THREAD,
                  **{"External id": 7, "Input Dims": [[4194304], [4194304], []],
                     "Input type": ["float", "float", "Scalar"]})  # fmt: skip
        clock.add("cuda_runtime", "cudaMemcpyAsync", t + 20, 3200.0, THREAD, correlation=low + 1)
        clock.add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", t + 40, 3150.0, 7, device=0,
                  context=1, stream=7, correlation=low + 1, bytes=16_777_216)  # fmt: skip
        clock.add("cuda_runtime", "cudaLaunchKernel", t + 3400, 6.0, THREAD, correlation=low + 2)
        clock.add("kernel", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
                  t + 3410, 2000.0, 7, device=0, context=1, stream=7, correlation=low + 2,
                  grid=[64, 16, 1], block=[128, 1, 1],
                  **{"registers per thread": 230, "shared memory": 81920})  # fmt: skip
    return clock.events


def test_a_profile_becomes_an_export(tmp_path: Path) -> None:
    target = tmp_path / "run.sqlite"
    write(recording_of(pageable_loop()), target)
    report = diagnose(target)
    assert report.findings[0].rule == "pageable_copy"
    assert report.steps is not None
    assert report.steps.count == 12
    assert report.steps.basis == "nvtx"
    kernels = open_trace(target).table("kernels")
    assert (kernels["duration_ns"] == 2_000_000).all()
    assert (kernels["blocks"] == 1024).all()
    copies = open_trace(target).table("copies")
    assert (copies["bytes"] == 16_777_216).all()
    assert copies["pageable"].all()


def test_operators_bring_numbers_types_and_settings() -> None:
    clock = Clock()
    clock.add("cpu_op", "aten::cudnn_convolution", 0, 5, THREAD, **{
        "External id": 9, "Sequence number": 4,
        "Input Dims": [[1, 2, 10, 10], [4, 2, 3, 3], [], [], [], [], [], [], []],
        "Input type": ["c10::Half", "c10::Half", "ScalarList", "ScalarList", "ScalarList", "Scalar",
                       "Scalar", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"],
    })  # fmt: skip
    clock.add("cpu_op", "autograd::engine::evaluate_function: ConvolutionBackward0", 20, 5,
              AUTOGRAD, **{"External id": 11, "Sequence number": 4})  # fmt: skip
    forward, backward = recording_of(clock.events).ranges
    said, number = read_text(forward.text)
    assert number == 4
    assert said.sizes[:2] == ((1, 2, 10, 10), (4, 2, 3, 3))
    assert said.dtypes[:3] == ("float16", "float16", "")
    assert said.settings == {
        "padding": [1, 1], "stride": [2, 2], "dilation": [1, 1], "groups": 1,
    }  # fmt: skip
    assert read_text(backward.text)[1] == 4
    assert (forward.tid, backward.tid) == (THREAD, AUTOGRAD)


def test_events_of_other_kinds_are_left_out() -> None:
    events = [{"ph": "M", "name": "process_name"}, {"ph": "s", "cat": "fwdbwd", "ts": 1.0},
              {"ph": "X", "cat": "python_function", "name": "f", "ts": 1., "dur": 1.}]  # fmt: skip
    assert recording_of(events).ranges == []
    assert recording_of([]).ops == []


def test_what_torch_records_here_is_read(tmp_path: Path) -> None:
    """Without a GPU there are no kernels; ranges and their order are the same."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    chrome = tmp_path / "trace.json"
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with (
        torch.profiler.profile(activities=kinds, record_shapes=True) as profile,
        shapes(net),
    ):
        for _ in range(2):
            with step():
                net(torch.ones(2, 4)).sum().backward()
    profile.export_chrome_trace(str(chrome))
    found: Recording = recording_of(json.loads(chrome.read_text("utf-8"))["traceEvents"])
    said = [read_text(row.text) for row in found.ranges]
    assert sum(one.kind == MODULE and one.module == "0" for one, _ in said) == 2
    product = [one for one, _ in said if one.name == "aten::addmm"]
    assert len(product) == 2
    assert product[0].kind == OPERATOR
    assert product[0].sizes[:3] == ((3,), (2, 4), (4, 3))
    assert product[0].dtypes[:3] == ("float32",) * 3
    forward = {number for one, number in said if one.name == "aten::addmm"}
    backward = {number for one, number in said if one.name == "AddmmBackward0"}
    assert forward == backward
    export_of(chrome, tmp_path / "run.sqlite", A100_80GB)


def test_the_table_names_what_missed() -> None:
    good = Outcome("a", "one", "pageable_copy", 1, 0.30, 0.25, 0.35, 0.28, 0.01, 0.31, 9.0)
    far = Outcome("b", "two", "launch_bound", 2, 0.10, 0.05, 0.12, 0.5, 0.01, 0.5, 9.0)
    lost = Outcome("c", "three", reason="not found; first is gpu_idle")
    assert [one.good for one in (good, far, lost)] == [True, False, False]
    text = table_of([good, far, lost], "Some GPU")
    assert text.count("miss") == 2
    figures = ["30.0 %", "25.0 % to 35.0 %", "31.0 %", "28.0 %"]
    cells = ["one", "pageable_copy (no. 1)", *figures, "good"]
    assert "| " + " | ".join(cells) + " |" in text
    assert "not found; first is gpu_idle" in text
