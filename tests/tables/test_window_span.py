"""How long a steady window is: while the device works on what a step submitted it is no pause."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsysdoctor.diagnosis.diagnose import diagnose
from tests.make_scene import write_text

STEP = """\
      {at}us  70us  host  range "iter {{n}}{k}"
      {call}us  6us  host  cudaLaunchKernel -> +2us 7ms s7 kernel k grid=2000 block=256
"""


def bursts(steps: int, wait: str = "", count: int = 10, every_ms: int = 30) -> str:
    """A host that launches some steps at once and then waits outside of them."""
    body = "".join(STEP.format(at=80 * k, call=80 * k + 5, k=k) for k in range(steps))
    return f"repeat {count} every {every_ms}ms\n{body}{wait}"


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_host_that_runs_ahead_in_bursts_shortens_no_window(steps: int, tmp_path: Path) -> None:
    wait = "      +1us  ..s7  host  cudaStreamSynchronize s7\n"
    text = bursts(steps, wait, every_ms=7 * steps + 1)
    report = diagnose(write_text(text, tmp_path / "run.sqlite"))
    device = report.devices[0]
    assert report.window.basis == "steady"
    assert report.window.span_ns > 0.7 * device.span_ns
    assert report.window.span_ns <= device.span_ns
