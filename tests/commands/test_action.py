"""The GitHub Action: its shape, and its steps' shell run as GitHub would run it."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.report.model import Report
from tests import ROOT
from tests.gate_runs import empty, run, runs

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
SLOW = {"kernel_ns": 8_600_000, "idle_ns": 1_400_000}
EXPRESSION = re.compile(r"\$\{\{\s*([\w.\-]+)\s*\}\}")

SHIM = """#!/usr/bin/env bash
exec {python} -c "from nsysdoctor.cli import main; main()" "$@"
"""


class Runner:
    """What GitHub gives to a composite action: inputs, files for outputs, a PATH."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.folder = folder
        self.values = {f"inputs.{name}": str(spec.get("default", ""))
                       for name, spec in ACTION["inputs"].items()}  # fmt: skip
        self.values |= {f"inputs.{name.replace('_', '-')}": text for name, text in inputs.items()}
        self.files = {name: folder / name.lower() for name in
                      ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH")}  # fmt: skip
        for file in self.files.values():
            file.touch()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.put_on_path("nsysdoctor", SHIM.format(python=sys.executable))

    def put_on_path(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda match: self.values.get(match[1], ""), text)

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        step = STEPS[name]
        assert step["shell"] == "bash"
        env = {key: self.filled(str(value)) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "PYTHONPATH": str(ROOT),
                "RUNNER_TEMP": str(self.folder / "temp"),
                **{key: str(path) for key, path in self.files.items()},
                **env,
            },
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if "id" in step:
            for line in self.files["GITHUB_OUTPUT"].read_text().splitlines():
                key, _, value = line.partition("=")
                self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return done


def put(folder: Path, *reports: Report) -> str:
    names = []
    for number, report in enumerate(reports, start=1):
        names.append(f"run{number}.json")
        (folder / names[-1]).write_text(report.to_json(), encoding="utf-8")
    (folder / "perf.json").write_text(make_baseline(runs(3, 50)).to_json(), encoding="utf-8")
    return "\n".join(names)


def test_the_action_holds_the_schema_of_actions() -> None:
    name = "builtin_schemas/vendor/github-actions.json"
    file = importlib.resources.files("check_jsonschema").joinpath(name)
    schema = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(schema)(schema).validate(ACTION)


def test_the_shell_never_sees_an_input_as_code() -> None:
    """Inputs reach the scripts as environment variables; pasted in they could run commands."""
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


def test_every_expression_names_something_that_exists() -> None:
    known = {f"inputs.{name}" for name in ACTION["inputs"]}
    known |= {f"steps.gate.outputs.{name}" for name in ("exit-code", "verdict", "comment")}
    known |= {"github.token", "github.action_path", "github.event.pull_request.number"}
    used = set(EXPRESSION.findall((ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used <= known
    conditions = " ".join(str(step.get("if", "")) for step in STEPS.values())
    names = set(re.findall(r"(?:inputs|steps)\.[\w.\-]+", conditions))
    assert names <= known


@pytest.mark.parametrize(
    ("report", "code", "answer"),
    [
        (run(11), 0, "pass"),
        (run(12, **SLOW), 1, "fail"),
        (empty(run(13)), 2, "cannot_judge"),
    ],
    ids=["pass", "fail", "cannot judge"],
)
def test_the_job_ends_as_the_gate_does(
    tmp_path: Path, report: Report, code: int, answer: str
) -> None:
    runner = Runner(tmp_path, traces=put(tmp_path, report), baseline="perf.json")
    gate = runner.step("Gate")
    assert gate.returncode == 0, gate.stderr
    assert runner.values["steps.gate.outputs.exit-code"] == str(code)
    assert gate.stdout.splitlines()[-1].split("::")[2].startswith(answer.replace("_", " "))
    assert runner.step("Dashboard").returncode == 0
    assert runner.step("Verdict").returncode == code
    out = tmp_path / "nsysdoctor-out"
    kept = {"comment.md", "verdict.json", "junit.xml", "verdict.sarif"}
    kept |= {"candidate.json"} if code != 2 else set()
    assert {path.name for path in out.iterdir()} == kept
    assert json.loads((out / "verdict.json").read_text())["answer"] == answer
    summary = runner.files["GITHUB_STEP_SUMMARY"].read_text()
    assert summary.startswith("### nsysdoctor gate: ")


def test_several_runs_and_all_options(tmp_path: Path) -> None:
    (tmp_path / "my limits.toml").write_text("[gate.metrics.synchronization_count]\nmax = 0\n")
    names = put(tmp_path, *runs(3)).replace("\n", "  \n ")
    runner = Runner(
        tmp_path, traces=names, baseline="perf.json", min_utilization="0.5",
        config="my limits.toml", output="out put",
    )  # fmt: skip
    assert runner.step("Gate").returncode == 0
    verdict = json.loads((tmp_path / "out put" / "verdict.json").read_text())
    assert (verdict["runs"], verdict["answer"]) == (3, "fail")
    checks = {(line["metric"], line["check"], line["state"]) for line in verdict["lines"]}
    assert ("synchronization_count", "limit", "failed") in checks
    assert ("utilization_ratio", "limit", "passed") in checks


def test_a_bad_option_is_cannot_judge_not_a_pass(tmp_path: Path) -> None:
    runner = Runner(tmp_path, traces=put(tmp_path, run()), min_utilization="nan")
    runner.step("Gate")
    assert runner.step("Verdict").returncode == 2


def test_no_verdict_at_all_is_no_pass(tmp_path: Path) -> None:
    assert Runner(tmp_path, traces="").step("Verdict").returncode == 2


def test_inputs_are_words_not_commands(tmp_path: Path) -> None:
    nasty = "run1.json;touch${IFS}owned $(touch owned) `touch owned`"
    put(tmp_path, run())
    runner = Runner(tmp_path, traces=nasty, baseline="perf.json")
    runner.step("Gate")
    runner.step("Dashboard")
    assert not (tmp_path / "owned").exists()


@pytest.mark.sweep
def test_a_trace_gets_a_dashboard(tmp_path: Path) -> None:
    put(tmp_path, run())
    (tmp_path / "a run.sqlite").touch()
    runner = Runner(tmp_path, traces="healthy.sqlite", baseline="perf.json")
    (tmp_path / "healthy.sqlite").write_bytes(
        (ROOT / "sample_traces" / "healthy.sqlite").read_bytes()
    )
    runner.step("Gate")
    assert runner.step("Dashboard").returncode == 0
    page = (tmp_path / "nsysdoctor-out" / "healthy.html").read_text(encoding="utf-8")
    assert "<html" in page


def test_the_comment_is_posted_once_and_edited_later(tmp_path: Path) -> None:
    runner = Runner(tmp_path, traces=put(tmp_path, run(11)), baseline="perf.json")
    runner.values["github.event.pull_request.number"] = "7"
    runner.put_on_path("gh", '#!/usr/bin/env bash\nprintf "%s\\n" "$@" > gh.txt\n')
    runner.step("Gate")
    assert runner.step("Comment on the pull request").returncode == 0
    words = (tmp_path / "gh.txt").read_text().splitlines()
    assert words == [
        "pr", "comment", "7", "--edit-last", "--create-if-none", "--body-file",
        "nsysdoctor-out/comment.md",
    ]  # fmt: skip


def test_a_comment_that_cannot_be_posted_fails_no_job(tmp_path: Path) -> None:
    runner = Runner(tmp_path, traces=put(tmp_path, run(11)), baseline="perf.json")
    runner.values["github.event.pull_request.number"] = "7"
    runner.put_on_path("gh", "#!/usr/bin/env bash\nexit 1\n")
    runner.step("Gate")
    done = runner.step("Comment on the pull request")
    assert done.returncode == 0
    assert "the comment was not posted" in done.stdout


def test_a_bad_option_leaves_no_earlier_comment(tmp_path: Path) -> None:
    runner = Runner(tmp_path, traces=put(tmp_path, run(11)), baseline="perf.json")
    runner.step("Gate")
    runner.values["inputs.min-utilization"] = "nan"
    runner.step("Gate")
    text = (tmp_path / "nsysdoctor-out" / "comment.md").read_text()
    assert text.startswith("### nsysdoctor gate: cannot judge")


@pytest.mark.sweep
def test_traces_of_one_name_keep_a_dashboard_each(tmp_path: Path) -> None:
    put(tmp_path, run())
    sample = (ROOT / "sample_traces" / "healthy.sqlite").read_bytes()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.sqlite").write_bytes(sample)
    traces = "one/run.sqlite two/run.sqlite"
    runner = Runner(tmp_path, traces=traces, min_utilization="0.1")
    runner.step("Gate")
    assert runner.step("Dashboard").returncode == 0
    names = {path.name for path in (tmp_path / "nsysdoctor-out").iterdir()}
    assert {"run.html", "run-2.html", "run.report.json", "run-2.report.json"} <= names


@pytest.mark.parametrize(("install", "want"), [("", str(ROOT)), ("nsysdoctor==1", "nsysdoctor==1")])
def test_the_install_step_makes_an_environment_of_its_own(
    tmp_path: Path, install: str, want: str
) -> None:
    """A stand-in for python3 makes the environment; what pip would be told is looked at."""
    runner = Runner(tmp_path, traces="", install=install)
    runner.values["github.action_path"] = str(ROOT)
    inner = '#!/usr/bin/env bash\nprintf "%s\\n" "$@" > "$HOME/pip.txt"\n'
    runner.put_on_path(
        "python3",
        "#!/usr/bin/env bash\n"
        'mkdir -p "$3/bin"\n'
        f"cat > \"$3/bin/python\" <<'END'\n{inner}END\n"
        'chmod +x "$3/bin/python"\n',
    )
    done = runner.step("Install")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pip.txt").read_text().split() == ["-m", "pip", "install", "--quiet", want]
    assert runner.files["GITHUB_PATH"].read_text().strip() == f"{tmp_path}/temp/nsysdoctor/bin"
