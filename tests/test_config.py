"""nsysdoctor.toml and [tool.nsysdoctor]: what is accepted and what is refused."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

from nsysdoctor.config import Config, check_config, find_config, load_config, parse_config
from nsysdoctor.errors import UsageError
from nsysdoctor.gate.limits import bound_of
from nsysdoctor.report.metrics import CAUSES, METRICS
from nsysdoctor.report.model import LEVELS
from tests import ROOT

GOOD = """
select = ["pageable_copy"]
rule_dirs = ["ours"]
params.pageable_copy.min_bytes = 4096

[gate]
baseline = "perf.json"
min_steps = 10

[gate.metrics]
utilization_ratio = {min = 0.8, max_regression = 0.02, floor = 0.01}
synchronization_count = {max = 2, level = "warn"}

[gate.rules]
pageable_copy = "error"
input_starvation = "off"

[gate.devices."H100".metrics.utilization_ratio]
min = 0.9

[[gate.waivers]]
rule = "pageable_copy"
subject = "DtoH*"
reason = "the log line needs it"
expires = 2031-01-31
"""


def write(folder: Path, text: str, name: str = "nsysdoctor.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_setting_is_read(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    assert config.select == ["pageable_copy"]
    assert config.rule_dirs == ["ours"]
    assert config.params == {"pageable_copy": {"min_bytes": 4096}}
    gate = config.gate
    assert (gate.baseline, gate.min_steps, gate.min_runs) == ("perf.json", 10, 3)
    assert gate.rules == {"pageable_copy": "error", "input_starvation": "off"}
    assert gate.waivers[0].expires == date(2031, 1, 31)
    bound = bound_of(gate, "utilization_ratio", "NVIDIA H100 80GB HBM3")
    assert (bound.min, bound.ratio, bound.floor, bound.level) == (0.9, 0.02, 0.01, "error")
    assert bound_of(gate, "utilization_ratio", "NVIDIA T4").min == 0.8
    assert bound_of(gate, "synchronization_count", "").level == "warn"


def test_the_example_of_the_manual_is_read_whole() -> None:
    manual = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    block = manual.split("```toml\n")[1].split("```")[0]
    config = parse_config(tomllib.loads(block))
    assert config.gate.waivers[0].subject == "DtoH*"
    assert set(config.gate.metrics) == {"utilization_ratio", "synchronization_count", "step_ns"}


def test_the_manual_names_every_metric_and_cause() -> None:
    manual = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", manual))
    named |= {f"idle_{cause}_ns" for cause in CAUSES if cause in named}
    findings = {f"{level}_finding_count" for level in LEVELS}
    assert set(METRICS) - named <= findings
    assert "`high_finding_count`" in manual


def test_a_limit_raises_only_what_it_limits() -> None:
    limits = parse_config({"gate": {"metrics": {"idle_ns": {"max": 5e6}}}}).gate
    bound = bound_of(limits, "idle_ns", "")
    assert (bound.level, bound.change_level) == ("error", "warn")
    limits = parse_config({"gate": {"metrics": {"idle_ns": {"max_regression": 0.1}}}}).gate
    assert bound_of(limits, "idle_ns", "").change_level == "error"


def test_pyproject_holds_the_same_under_tool(tmp_path: Path) -> None:
    text = "[tool.nsysdoctor.gate.metrics.step_ns]\nmax = 5e6\n[tool.other]\nselekt = 1\n"
    path = write(tmp_path, text, "pyproject.toml")
    assert load_config(path).gate.metrics["step_ns"].max == 5e6


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "")) == Config()


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = write(tmp_path, "")
    write(tmp_path / "a", "[project]\nname = 'x'\n", "pyproject.toml")
    assert find_config(inner) == outer
    mine = write(tmp_path / "a", "[tool.nsysdoctor]\n", "pyproject.toml")
    assert find_config(inner) == mine
    assert find_config(tmp_path) == outer


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("gates = {}", "did you mean gate?"),
        ("selct = []", "did you mean select?"),
        ("[gate]\nmin_step = 3", "did you mean min_steps?"),
        ("[gate.metrics.utilisation_ratio]\nmin = 0.5", "did you mean utilization_ratio?"),
        ("[gate.metrics.step_ns]\nmax_regresion = 0.5", "did you mean max_regression?"),
        ("[gate.devices.H100.metrics.step]\nmax = 1", "did you mean step_ns?"),
        ("[gate.devices.H100]\nmetric = {}", "did you mean metrics?"),
        ("[[gate.waivers]]\nrule = 'a'\nreson = 'b'", "did you mean reason?"),
    ],
)
def test_a_typo_gets_a_suggestion(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(write(tmp_path, text))
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        "[gate.metrics.utilization_ratio]\nmin = nan",
        "[gate.metrics.utilization_ratio]\nmin = inf",
        "[gate.metrics.utilization_ratio]\nmin = -0.1",
        "[gate.metrics.utilization_ratio]\nmin = 80",
        "[gate.metrics.utilization_ratio]\nmin = 0.9\nmax = 0.8",
        "[gate.metrics.utilization_ratio]\nmin = 'high'",
        "[gate.metrics.utilization_ratio]\nlevel = 'fatal'",
        "[gate.devices.H100.metrics.step_ns]\nfloor = nan",
        "[gate.rules]\npageable_copy = 'fail'",
        "[gate]\nmin_steps = 0",
        "[gate]\nmin_runs = 1",
        "[[gate.waivers]]\nrule = 'pageable_copy'",
        "[[gate.waivers]]\nrule = 'pageable_copy'\nreason = ' '",
        "[[gate.waivers]]\nrule = 'pageable_copy'\nreason = 'x'\nexpires = 'soon'",
        "select = 'pageable_copy'",
        "gate = 3",
        "not toml",
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(tmp_path / "absent.toml")
    assert "absent.toml" in caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        {"select": ["pagable_copy"]},
        {"ignore": ["pagable_copy"]},
        {"params": {"pagable_copy": {"min_bytes": 1}}},
        {"gate": {"rules": {"pagable_copy": "off"}}},
        {"gate": {"waivers": [{"rule": "pagable_copy", "reason": "x"}]}},
    ],
)
def test_a_rule_that_does_not_exist_gets_a_suggestion(data: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        check_config(parse_config(data), ["pageable_copy", "sync_in_loop"])
    assert caught.value.hint == "did you mean pageable_copy?"
