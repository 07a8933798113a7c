"""The documentation of rules: made from them, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nsysdoctor.rulebook.docs import main, rules_document
from nsysdoctor.rulebook.rule import load_rules
from tests import ROOT
from tests.make_scene import write_text
from tests.run_cli import run

DOCS = ROOT / "docs"
GUIDE = (DOCS / "own-rules.md").read_text(encoding="utf-8")


def test_the_page_of_all_rules_is_as_the_rules_are() -> None:
    made = rules_document(load_rules())
    assert (DOCS / "rules.md").read_text(encoding="utf-8") == made, (
        "make it anew: python -m nsysdoctor.rulebook.docs docs/rules.md"
    )


def test_the_page_is_written_or_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(tmp_path / "rules.md")])
    main([])
    assert capsys.readouterr().out == (tmp_path / "rules.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.name)
def test_every_rule_is_explained_with_a_cure(rule: object) -> None:
    name = rule.name  # type: ignore[attr-defined]
    ran = run("rules", "explain", name)
    assert ran.code == 0
    assert ran.out.startswith(f"# {name}\n")
    assert ran.out in rules_document([rule]).replace("\n##", "\n#")  # type: ignore[list-item]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """The guide's example as files, each block named by the comment in its first line."""
    for name, content in re.findall(r"```\w+\n# (ours/\S+)\n(.*?)```", GUIDE, re.DOTALL):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path / "ours"


def test_the_example_of_the_guide_is_sound_and_its_cases_hold(ours: Path) -> None:
    assert sorted(p.name for p in ours.rglob("*.*")) == [
        "many_tiny_kernels.py", "many_tiny_kernels.yaml", "many_tiny_kernels.yaml"
    ]  # fmt: skip
    assert run("rules", "check", ours).code == 0
    ran = run("rules", "test", ours)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "3 cases hold, 0 fail"


def test_the_example_is_asked_in_a_report(ours: Path, tmp_path: Path) -> None:
    path = write_text(
        """
        repeat 50 every 100us
          0  8us  host  cudaLaunchKernel -> +2us 2us s7 kernel scale
        """,
        tmp_path / "run.sqlite",
    )
    ran = run("report", path, "--rules", ours, "--select", "many_tiny_kernels")
    assert "50 kernels on GPU 0 run for less than 5.00 µs, 100.0 % of all" in " ".join(
        ran.out.split()
    )


def test_a_case_that_does_not_hold_fails_and_says_why(ours: Path) -> None:
    cases = ours / "tests" / "many_tiny_kernels.yaml"
    cases.write_text(cases.read_text().replace("count: 100", "count: 99"))
    ran = run("rules", "test", ours)
    assert ran.code == 1
    assert "FAILS  many_tiny_kernels: a loop of short kernels" in ran.out
    assert "count: expected 99, is 100" in ran.out
    assert ran.out.splitlines()[-1] == "2 cases hold, 1 fail"


def test_a_rule_without_cases_fails(ours: Path) -> None:
    (ours / "tests" / "many_tiny_kernels.yaml").unlink()
    ran = run("rules", "test", ours)
    assert ran.code == 1
    assert "it has no cases" in ran.out


def test_the_traces_of_cases_can_be_kept(ours: Path, tmp_path: Path) -> None:
    assert run("rules", "test", ours, "--keep", tmp_path / "kept").code == 0
    kept = sorted(p.name for p in (tmp_path / "kept").iterdir())
    assert kept == [f"many_tiny_kernels.{n}.sqlite" for n in (1, 2, 3)]
    assert run("report", tmp_path / "kept" / kept[0], "--select", "gpu_idle").code == 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("stray.yaml", "- {name: x, trace: '', expect: found}", "cases of no rule: stray"),
        ("many_tiny_kernels.yaml", "name: x", "no list of cases"),
        ("many_tiny_kernels.yaml", "- name: [", "no YAML"),
        ("many_tiny_kernels.yaml", "- {name: x, expect: found}", "case 1: trace"),
        ("many_tiny_kernels.yaml", "- {name: x, trace: '', expect: maybe}", "case 1: expect"),
        ("many_tiny_kernels.yaml", "- {name: x, trace: '', expect: found, lvl: low}", "lvl"),
    ],
)
def test_case_files_that_cannot_be_meant_are_refused(
    ours: Path, name: str, content: str, words: str
) -> None:
    (ours / "tests" / name).write_text(content)
    ran = run("rules", "test", ours)
    assert ran.code == 2
    assert words in ran.err
    assert len(ran.error_lines) == 2


def test_a_folder_without_rules_is_refused(tmp_path: Path) -> None:
    ran = run("rules", "test", tmp_path)
    assert ran.code == 2
    assert "holds no rules" in ran.err
