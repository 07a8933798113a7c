"""Everything but the PyTorch side works where torch is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import SAMPLES

SAMPLE = SAMPLES / "pageable_copy.sqlite"
# None in sys.modules makes every import of that name fail, installed or not.
BLOCKED = "import sys; sys.modules['torch'] = None; "


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("from nsysdoctor.cli import main; main()", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", str(SAMPLE), "-q"),
        ("report", str(SAMPLE), "--format", "html", "-q"),
        ("gate", str(SAMPLE), "--min-utilization", "0.1"),
        ("rules", "list"),
        ("capture", "--print", "--", "python", "train.py"),
    ],
)
def test_commands_run(arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_measuring_a_gpu_says_what_it_needs() -> None:
    done = cli("calibrate")
    assert done.returncode == 2
    assert "torch" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_markers_are_imported_without_it() -> None:
    done = run("import nsysdoctor.torch as markers; print(markers.steps.__name__)")
    assert (done.returncode, done.stdout.strip()) == (0, "steps"), done.stderr
