"""Measured roofs: how they are taken, kept in a file, and stand in for published ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsysdoctor.commands.calibrate import lines
from nsysdoctor.diagnosis.diagnose import Options, diagnose
from nsysdoctor.errors import UsageError
from nsysdoctor.roofline.peaks import DevicePeaks
from nsysdoctor.roofline.profile import (
    SUSTAINED_RATIO,
    DeviceProfile,
    Spread,
    Transfer,
    parse_profile,
    read_profile,
)
from nsysdoctor.torch.measure import rate_of, spread_of
from nsysdoctor.trace.trace import open_trace
from nsysdoctor.trace.window import Request
from sample_traces import record, write

A100 = "NVIDIA A100-SXM4-80GB"


def around(value: float) -> Spread:
    return Spread(value, 0.95 * value, 1.05 * value, 15)


def profile(name: str = A100) -> DeviceProfile:
    return DeviceProfile(
        name=name, compute_major=8, compute_minor=0, sm_count=108,
        copy_bytes_per_s=around(1.70e12), triad_bytes_per_s=around(1.75e12),
        gemm_flops_per_s={
            "fp32": around(18e12), "tf32": around(120e12), "bf16": around(240e12),
        },
        transfers=[
            Transfer("HtoD", "pinned", 1 << 14, around(2e9)),
            Transfer("HtoD", "pinned", 1 << 24, around(20e9)),
            Transfer("HtoD", "pinned", 1 << 28, around(21e9)),
            Transfer("HtoD", "pageable", 1 << 28, around(5e9)),
        ],
        launch_ns=around(4200.0), graph_node_ns=around(1300.0),
        fusion_ns={"unfused_fp32": around(1e6), "fused_fp32": around(4e5)},
    )  # fmt: skip


def test_a_profile_is_read_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(profile().to_json(), encoding="utf-8")
    found = read_profile(path)
    assert found == profile()
    assert json.loads(found.to_json())["format"] == "nsysdoctor-device"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda told: told.pop("name"), "name"),
        (lambda told: told.update(sm_count="many"), "sm_count"),
        (lambda told: told["copy_bytes_per_s"].update(median=-1.0), "copy_bytes_per_s"),
        (lambda told: told["copy_bytes_per_s"].update(low=float("nan")), "copy_bytes_per_s"),
        (lambda told: told["transfers"][0]["rate"].update(high=0), "transfers.0"),
        (lambda told: told.update(format="nsysdoctor-report"), "no device profile of version 1"),
        (lambda told: told.update(format_version=2), "no device profile of version 1"),
    ],
)
def test_a_wrong_profile_is_refused(edit: Callable[[Any], object], said: str) -> None:
    told = json.loads(profile().to_json())
    edit(told)
    with pytest.raises(UsageError) as caught:
        parse_profile(json.dumps(told), "p.json")
    assert said in caught.value.message
    assert "p.json" in caught.value.message
    assert "nsysdoctor calibrate" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"format": "nsysdoctor-device"}'])
def test_what_is_no_profile_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no device profile"):
        parse_profile(text)


def test_a_missing_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_profile(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_profile(tmp_path)


def test_measured_roofs_stand_in_for_published_ones() -> None:
    simt, tensor = {"fp32": 19e12, "fp64": 9e12}, {"bf16": 312e12, "int8": 6e14}
    published = DevicePeaks(2e12, 108, simt, tensor)
    found = profile().peaks(published)
    assert found.memory_bytes_per_s == pytest.approx(1.75e12 / SUSTAINED_RATIO)
    assert found.flops_per_s("fp32", "simt") == pytest.approx(18e12 / SUSTAINED_RATIO)
    assert found.flops_per_s("bf16", "tensor") == pytest.approx(240e12 / SUSTAINED_RATIO)
    assert found.flops_per_s("tf32", "tensor") == pytest.approx(120e12 / SUSTAINED_RATIO)
    # not measured
    assert found.flops_per_s("fp64", "simt") == 9e12
    assert found.flops_per_s("int8", "tensor") == 6e14


def test_the_largest_pinned_copies_tell_the_rate() -> None:
    told = profile().pinned_rate("HtoD")
    assert told is not None
    assert told.median == 21e9
    assert profile().pinned_rate("DtoH") is None


@pytest.mark.parametrize("name", [A100, "A100-SXM4-80GB", "NVIDIA a100-sxm4-80gb"])
def test_a_model_is_known_by_its_name(name: str) -> None:
    assert profile(name).is_of(A100)
    assert not profile(name).is_of("NVIDIA A100-SXM4-40GB")


@pytest.fixture(scope="module")
def pageable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profiled") / "run.sqlite"
    write(record("pageable_copy"), path)
    return path


def test_a_profile_reaches_roofs_and_copy_rates(pageable: Path) -> None:
    plain = open_trace(pageable)
    told = open_trace(pageable, Request(profile=profile()))
    assert told.table("peaks")[0].memory_bytes_per_s == pytest.approx(1.75e12 / SUSTAINED_RATIO)
    assert plain.table("peaks")[0].memory_bytes_per_s == 2_039_040_000_000
    rates = told.table("pinned_rates").set_index("direction")
    assert rates.loc["HtoD", "bytes_per_s"] == 21e9
    assert rates.loc["HtoD", "measured"]
    # no pinned download was measured: the usual link stays
    assert not rates.loc["DtoH", "measured"]


def test_slower_pinned_memory_saves_less(pageable: Path) -> None:
    slow = replace(
        profile(), transfers=[Transfer("HtoD", "pinned", 1 << 28, around(6e9))]
    )
    plain = diagnose(pageable).findings[0]
    told = diagnose(pageable, Options(Request(profile=slow))).findings[0]
    assert plain.rule == told.rule == "pageable_copy"
    assert plain.saving_ns is not None
    assert told.saving_ns is not None
    assert told.saving_ns < 0.9 * plain.saving_ns


def test_the_profile_of_another_model_is_told_and_left_aside(pageable: Path) -> None:
    other = profile("NVIDIA H100 80GB HBM3")
    trace = open_trace(pageable, Request(profile=other))
    assert trace.table("peaks")[0].memory_bytes_per_s == 2_039_040_000_000
    notes = [note.text for note in diagnose(pageable, Options(Request(profile=other))).notes]
    assert f"the profile of NVIDIA H100 80GB HBM3 says nothing about {A100}" in notes


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from nsysdoctor.cli import main; main()", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_report_takes_a_profile(pageable: Path, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(profile().to_json(), encoding="utf-8")
    done = command("report", str(pageable), "--device-profile", str(path), "--format", "json")
    assert done.returncode == 0, done.stderr
    notes = [note["text"] for note in json.loads(done.stdout)["notes"]]
    assert f"roofs and copy rates of {A100} are measured ones" in notes
    lost = command("report", str(pageable), "--device-profile", str(tmp_path / "no.json"))
    assert lost.returncode == 2
    assert len(lost.stderr.splitlines()) == 2


def test_without_a_gpu_calibrate_says_so(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi") and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
        pytest.skip("this machine has a GPU")
    target = tmp_path / "device.json"
    done = command("calibrate", "-o", str(target))
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert "torch" in first
    assert second.startswith("  hint: ")
    assert not target.exists()


def test_spreads_are_of_the_figures() -> None:
    assert spread_of([float(n) for n in range(1, 12)]) == Spread(6.0, 2.0, 10.0, 11)
    assert spread_of([4.0, 2.0]) == Spread(3.0, 2.0, 4.0, 2)
    # 8 bytes in 2 ns are 4 GB/s; the slowest time is the lowest rate
    assert rate_of(8.0, Spread(2.0, 1.0, 4.0, 9)) == Spread(4e9, 2e9, 8e9, 9)


class PretendTorch:
    """The torch at hand, with its CPU in the place of a GPU."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.cuda = _PretendCuda(real)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name not in ("zeros", "ones", "randn"):
            return found

        def made(*sizes: int, **settings: Any) -> Any:
            kept = {k: v for k, v in settings.items() if k not in ("device", "pin_memory")}
            return found(*sizes, **kept)

        return made


class _PretendCuda:
    def __init__(self, real: Any) -> None:
        self._real = real

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = time.perf_counter()

        def elapsed_time(self, other: Any) -> float:
            return 1e3 * float(other.at - self.at)

    class CUDAGraph:
        def replay(self) -> None:
            time.sleep(1e-5)

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def get_device_properties(_: int) -> Any:
        return SimpleNamespace(name="Pretend", major=8, minor=0, multi_processor_count=4)

    @staticmethod
    def mem_get_info() -> tuple[int, int]:
        return 1 << 23, 1 << 24

    @staticmethod
    def synchronize() -> None:
        return None

    @staticmethod
    def device(_: int) -> Any:
        import contextlib

        return contextlib.nullcontext()

    graph = device


def test_everything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from nsysdoctor.torch import measure

    monkeypatch.setattr(measure, "real_torch", lambda: PretendTorch(torch))
    for name, value in {
        "REPEATS": 3, "_AT_LEAST_NS": 20_000, "_PRODUCT_SIZES": (16, 32),
        "_TRANSFER_BYTES": (1 << 10, 1 << 12), "_LAUNCHES": 20, "_ROWS": 8, "_WIDTH": 16,
    }.items():  # fmt: skip
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setattr(measure, "_compiled", lambda *_: None)
    said: list[str] = []
    found = measure.measure(0, said.append)
    assert len(said) == 5
    assert set(found.gemm_flops_per_s) == {"fp32", "fp16", "tf32", "bf16"}
    assert len(found.transfers) == 2 * 2 * 2
    assert set(found.fusion_ns) == {"unfused_fp32", "unfused_bf16"}
    # what was measured is a valid profile, and can be shown
    assert parse_profile(found.to_json()) == found
    assert any("matrix product, bf16" in line for line in lines(found))
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("device", [1, 7])
def test_a_gpu_that_is_not_there_is_refused(device: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from nsysdoctor.torch import measure

    monkeypatch.setattr(measure, "real_torch", lambda: PretendTorch(torch))
    with pytest.raises(UsageError, match=f"there is no GPU {device}, torch sees 1"):
        measure.measure(device)
