"""A capture that lost its kernels is never judged by the utilization it does not show."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from nsysdoctor.diagnosis.diagnose import diagnose
from nsysdoctor.gate.judge import judge
from nsysdoctor.gate.limits import Limits, with_min_utilization
from sample_traces import record, write


def test_launches_without_any_kernel_cannot_be_judged(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    write(record("healthy_training"), path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    db.close()
    for least in (0.0, 0.9):
        verdict = judge([diagnose(path)], None, with_min_utilization(Limits(), least))
        assert verdict.exit_code == 2
        assert "not one kernel" in verdict.mismatches[0].found


def test_a_program_that_only_copies_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    write(record("serial_copy"), path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        db.execute(
            "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId IN "
            "(SELECT id FROM StringIds WHERE value LIKE 'cudaLaunch%')"
        )
    db.close()
    verdict = judge([diagnose(path)], None, with_min_utilization(Limits(), 0.5))
    assert verdict.exit_code == 1
