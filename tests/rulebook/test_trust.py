"""Whose rules run, what they can change, and that one that is wrong fails alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sample_traces import record, write
from tests.run_cli import Ran, run

WORDS = "title: T\ncategory: c\nmessage: '{count} odd'\nwhy: w\nfix: {any: f}\n"
HEAD = "import numpy as np\nimport pandas as pd\n"
HEAD += "from nsysdoctor.trace.recipe import table\n@table\n"
ROW = "pd.DataFrame({'subject': ['x'], 'count': [1]})"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trust") / "run.sqlite"
    write(record("sync_in_loop"), path)
    return path


def own_rule(folder: Path, body: str, name: str = "mine") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(WORDS)
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (folder / f"{name}.py").write_text(f"{HEAD}def {name}(ops):\n{lines}\n")
    return folder


def asked(trace: Path, folder: Path, *more: str) -> Ran:
    return run("report", trace, "--format", "json", "--rules", folder, *more)


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(0)", "raise SystemExit(1)", "raise MemoryError", "return None",
        "return 5", "return ops.iloc[:1]", f"return {ROW}.drop(columns='count')",
        f"return {ROW}.drop(columns='subject')", f"return {ROW}.assign(level='worst')",
        f"return {ROW}.assign(value=np.inf)", f"return {ROW}.assign(value=-np.inf)",
        f"return {ROW}.assign(count=-1)", f"return {ROW}.assign(count='many')",
        f"return {ROW}.assign(count=np.nan)", f"return {ROW}.assign(basis='guess')",
        f"return {ROW}.assign(device='one')", "import nothing_of_this_name",
        "def f(): return f()\nreturn f()", "return ops['no such column']",
    ],
)  # fmt: skip
def test_whatever_a_rule_returns_or_raises_is_its_failure_alone(
    body: str, trace: Path, tmp_path: Path
) -> None:
    more = ("--select", "mine", "--select", "gpu_idle")
    ran = asked(trace, own_rule(tmp_path / "ours", body), *more)
    assert ran.code == 0, ran.err
    states = {outcome["rule"]: outcome["state"] for outcome in ran.report["outcomes"]}
    assert states == {"gpu_idle": "found", "mine": "failed"}


@pytest.mark.parametrize(
    "body",
    [
        "ops.loc[:, 'end_ns'] = ops['start_ns']", "ops['end_ns'].to_numpy()[:] = 0",
        "ops.drop(ops.index, inplace=True)", "ops['end_ns'] = 0",
    ],
)
def test_a_rule_cannot_change_what_others_read(body: str, trace: Path, tmp_path: Path) -> None:
    calm = own_rule(tmp_path / "calm", "return ops.iloc[:0].assign(subject='', count=1)", "a_rule")
    wild = f"try:\n    {body}\nexcept ValueError:\n    pass\n"
    wild += "return ops.iloc[:0].assign(subject='', count=1)"
    first = asked(trace, calm).report
    second = asked(trace, own_rule(tmp_path / "wild", wild, "a_rule")).report
    assert second["findings"] == first["findings"]
    assert second["devices"] == first["devices"]


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "1 / 0", "def (", "import nothing_here"])
def test_a_rule_that_cannot_be_loaded_is_named(code: str, trace: Path, tmp_path: Path) -> None:
    folder = own_rule(tmp_path / "ours", "return ops")
    (folder / "mine.py").write_text(code)
    ran = asked(trace, folder)
    assert ran.code == 2
    assert "mine.py" in ran.error_lines[0]


# --- configurations


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_rule(tmp_path / "ours", f"return {ROW}")
    (tmp_path / "nsysdoctor.toml").write_text('rule_dirs = ["ours"]\n')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    return tmp_path


@pytest.mark.parametrize("command", ["report", "gate"])
def test_code_that_a_found_configuration_names_does_not_run(
    command: str, trace: Path, project: Path
) -> None:
    (project / "ours" / "mine.py").write_text("raise SystemExit(1)")
    ran = run(command, trace)
    assert ran.code == 2
    assert "run as code" in ran.err
    assert "--config" in ran.err


@pytest.mark.parametrize("how", ["--trust-config", "--config"])
def test_trusted_rules_run_from_the_folder_of_the_file_and_it_is_said(
    how: str, trace: Path, project: Path
) -> None:
    words = [how] if how == "--trust-config" else [how, project / "nsysdoctor.toml"]
    ran = run("report", trace, *words, "--select", "mine", "--format", "json")
    assert ran.code == 0, ran.err
    assert [f["rule"] for f in ran.report["findings"]] == ["mine"]
    assert str(project / "ours") in ran.err


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here")
def test_files_of_another_user_do_not_run(
    trace: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (project / "ours").iterdir():
        if os.getuid() == 0:
            os.chown(path, 4242, -1)
    monkeypatch.setattr(os, "getuid", lambda: 4243)
    ran = run("report", trace, "--trust-config")
    assert ran.code == 2
    assert "belongs to another user" in ran.err
