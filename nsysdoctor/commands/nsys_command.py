"""The `nsys profile` line that records what the rules read, for the nsys that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nsysdoctor.errors import UsageError

DOWNLOAD = "https://developer.nvidia.com/nsight-systems"
_OPTION = re.compile(r"--[a-z][a-z0-9-]+")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Nsys:
    """An nsys on this machine: its path, its version ( if unknown), and the options it lists."""

    path: str
    version: str
    options: frozenset[str]


CURRENT = Nsys(
    "nsys",
    "",
    frozenset(
        {
            "--sample", "--cpuctxsw", "--cuda-graph-trace", "--capture-range",
            "--capture-range-end", "--pytorch", "--force-overwrite",
        }
    ),
)  # fmt: skip
"""What releases of the last years know, for showing a line where no nsys is installed."""


@dataclass(frozen=True)
class Extras:
    """What to record in addition: `range_only` only what lies between the program's start and stop
    of the CUDA profiler, `shapes` PyTorch's operators with shapes, `graph_nodes` the kernels inside
    graphs."""

    range_only: bool = False
    shapes: bool = False
    graph_nodes: bool = False


def installed_nsys() -> Nsys:
    """Returns the nsys on PATH; raises UsageError that says where to get it when there is none."""
    path = shutil.which("nsys")
    if path is None:
        raise UsageError(
            "nsys is not on PATH", f"install Nsight Systems from {DOWNLOAD}, or see --print"
        )
    version = re.search(r"\d{4}\.\d+(?:\.\d+)*", _output_of([path, "--version"]))
    options = _OPTION.findall(_output_of([path, "profile", "--help"]))
    return Nsys(path, version[0] if version else "", frozenset(options))


def _output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{command[0]} does not run: {error}", f"install Nsight Systems from {DOWNLOAD}"
        ) from error
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def profile_line(nsys: Nsys, extras: Extras, target: Path, command: Sequence[str]) -> list[str]:
    """Returns the command that records `command` into the report `target`, a path without suffix.

    Options that this nsys does not list are left out where the trace is as good without them.
    Raises UsageError when it lacks an option that was requested.
    """
    line = [nsys.path, "profile", "--trace=cuda,nvtx,osrt"]
    # Sampling slows the program down, and no rule reads it.
    line += [f"{name}=none" for name in ("--sample", "--cpuctxsw") if name in nsys.options]
    if extras.graph_nodes:
        line.append(f"{_known(nsys, '--cuda-graph-trace')}=node")
    if extras.shapes:
        line.append(f"{_known(nsys, '--pytorch')}=autograd-shapes-nvtx")
    if extras.range_only:
        line += _range_options(nsys)
    return [*line, "--force-overwrite=true", f"--output={target}", *command]


def _known(nsys: Nsys, option: str) -> str:
    if option in nsys.options:
        return option
    other = "; or mark the loop with nsysdoctor.torch.shapes" if option == "--pytorch" else ""
    raise UsageError(
        f"nsys {nsys.version or 'here'} has no {option}", f"use a newer nsys: {DOWNLOAD}{other}"
    )


def _range_options(nsys: Nsys) -> list[str]:
    """Options to record between the profiler's start and stop only, and to let the program
    continue."""
    chosen = [f"{_known(nsys, '--capture-range')}=cudaProfilerApi"]
    if "--capture-range-end" in nsys.options:
        return [*chosen, "--capture-range-end=stop"]
    return [*chosen, "--stop-on-range-end=true", "--kill=none"]


def recorded_report(target: Path) -> Path | None:
    """Returns the report that nsys wrote at `target`, None if it wrote none."""
    found = [target.with_name(target.name + suffix) for suffix in (".nsys-rep", ".qdrep")]
    return next((path for path in found if path.exists()), None)


def export_line(nsys: Nsys, report: Path, target: Path) -> list[str]:
    """Returns the command that exports a report as SQLite."""
    return [nsys.path, "export", "--type", "sqlite", "--force-overwrite", "true", "--output",
            str(target), str(report)]  # fmt: skip
