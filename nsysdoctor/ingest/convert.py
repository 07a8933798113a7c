"""Turning an nsys report into an export with the nsys that is installed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from nsysdoctor.errors import UnreadableTraceError
from nsysdoctor.ingest.scratch import Scratch

REPORT_SUFFIXES = frozenset({".nsys-rep", ".qdrep"})


def exported(report: Path) -> tuple[Path, Scratch]:
    """Returns a temporary export of an nsys report, and the folder to keep while it is read.

    Raises UnreadableTraceError with the command to run when nsys is missing or fails.
    """
    nsys = shutil.which("nsys")
    hint = f"run: nsys export --type sqlite {shlex.quote(str(report))}"
    if nsys is None:
        raise UnreadableTraceError(f"{report} is an nsys report, not an export", hint)
    folder = Scratch()
    target = folder.path / "run.sqlite"
    command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(report.resolve())]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or not target.exists():
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UnreadableTraceError(
            f"{report} could not be exported by nsys" + (f" ({said[-1]})" if said else ""), hint
        )
    return target, folder
