"""Recording with nsys: the right line for the one installed, and what follows it."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nsysdoctor.commands.nsys_command import CURRENT, Extras, Nsys, profile_line
from nsysdoctor.errors import UsageError
from sample_traces import record, write

COMMAND = ["python", "train.py", "--lr", "3"]
BASE = ["profile", "--trace=cuda,nvtx,osrt"]
END = ["--force-overwrite=true", "--output=run", *COMMAND]


def nsys(*options: str) -> Nsys:
    return Nsys("nsys", "2022.1.3", frozenset(options))


@pytest.mark.parametrize(
    ("installed", "extras", "middle"),
    [
        (CURRENT, Extras(), ["--sample=none", "--cpuctxsw=none"]),
        (nsys("--sample"), Extras(), ["--sample=none"]),
        (nsys(), Extras(), []),
        (nsys("--cuda-graph-trace"), Extras(graph_nodes=True), ["--cuda-graph-trace=node"]),
        (nsys("--pytorch"), Extras(shapes=True), ["--pytorch=autograd-shapes-nvtx"]),
        (
            nsys("--capture-range", "--capture-range-end"), Extras(range_only=True),
            ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"],
        ),
        # before 2021.4
        (
            nsys("--capture-range", "--stop-on-range-end"), Extras(range_only=True),
            ["--capture-range=cudaProfilerApi", "--stop-on-range-end=true", "--kill=none"],
        ),
    ],
)  # fmt: skip
def test_line(installed: Nsys, extras: Extras, middle: list[str]) -> None:
    assert profile_line(installed, extras, Path("run"), COMMAND) == ["nsys", *BASE, *middle, *END]


@pytest.mark.parametrize(
    ("extras", "option", "instead"),
    [
        (Extras(shapes=True), "--pytorch", "nsysdoctor.torch.shapes"),
        (Extras(graph_nodes=True), "--cuda-graph-trace", "newer nsys"),
        (Extras(range_only=True), "--capture-range", "newer nsys"),
    ],
)
def test_an_nsys_too_old_for_a_wish_is_named(extras: Extras, option: str, instead: str) -> None:
    with pytest.raises(UsageError) as caught:
        profile_line(nsys(), extras, Path("run"), COMMAND)
    assert caught.value.message == f"nsys 2022.1.3 has no {option}"
    assert instead in caught.value.hint


HELP = """usage: nsys profile [<args>] [application]
        --sample=
           Possible values are 'cpu' or 'none'.
        --cpuctxsw=
        --capture-range=
        --capture-range-end=
"""


class Machine:
    """A folder with a PATH of its own, on which an nsys that only pretends may lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()

    def install_nsys(self, profile: str, export: str) -> None:
        """Shell code for `nsys profile` and `nsys export`; $target is what --output names."""
        script = self.bin / "nsys"
        script.write_text(
            "#!/bin/sh\n"
            f'echo "$@" >> {shlex.quote(str(self.folder))}/calls\n'
            'case "$1 $2" in\n'
            "  --version*) echo NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0;;\n"
            f"  'profile --help') cat <<'END'\n{HELP}END\n  ;;\n"
            "  profile*) target=$(echo \"$*\" | sed 's/.*--output=\\([^ ]*\\).*/\\1/')\n"
            f"    {profile};;\n"
            f'  export*) target="$7"; {export};;\n'
            "esac\n",
            encoding="utf-8",
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        tools = f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return subprocess.run(
            [sys.executable, "-c", "from nsysdoctor.cli import main; main()", *arguments],
            capture_output=True, text=True, check=False, cwd=self.folder,
            env={**os.environ, "PATH": tools, "COLUMNS": "100"},
        )  # fmt: skip

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    write(record("sync_in_loop"), tmp_path / "made.sqlite")
    return Machine(tmp_path)


GOOD = ('touch "$target.nsys-rep"', 'cp made.sqlite "$target"')


def test_a_program_is_recorded_exported_and_reported_on(machine: Machine) -> None:
    machine.install_nsys(*GOOD)
    done = machine.run("capture", "-o", "run", "--", "python", "train.py", "--lr", "3")
    assert done.returncode == 0, done.stderr
    assert "synchron" in done.stdout.lower()
    assert "nsysdoctor report run.sqlite -o report.html" in done.stderr
    assert (machine.folder / "run.sqlite").exists()
    profile = next(c for c in machine.calls() if c.startswith("profile --trace"))
    assert profile == (
        "profile --trace=cuda,nvtx,osrt --sample=none --cpuctxsw=none"
        " --force-overwrite=true --output=run python train.py --lr 3"
    )


def test_print_shows_the_line_and_runs_nothing(machine: Machine) -> None:
    machine.install_nsys("exit 9", "exit 9")
    done = machine.run("capture", "--print", "--range", "--", "python", "my train.py")
    assert done.returncode == 0
    assert shlex.split(done.stdout) == [
        str(machine.bin / "nsys"), "profile", "--trace=cuda,nvtx,osrt", "--sample=none",
        "--cpuctxsw=none", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
        "--force-overwrite=true", "--output=nsysdoctor-run", "python", "my train.py",
    ]  # fmt: skip
    assert not any(call.startswith("profile --trace") for call in machine.calls())


def test_without_nsys_the_message_says_where_to_get_it(machine: Machine) -> None:
    done = machine.run("capture", "--", "python", "train.py")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "nsysdoctor: nsys is not on PATH"
    assert "developer.nvidia.com/nsight-systems" in done.stderr
    shown = machine.run("capture", "--print", "--", "python", "train.py")
    assert shown.returncode == 0
    assert shown.stdout.startswith("nsys profile --trace=cuda,nvtx,osrt")
    assert "developer.nvidia.com/nsight-systems" in shown.stderr


def test_a_failing_program_is_reported_on_all_the_same(machine: Machine) -> None:
    machine.install_nsys(GOOD[0] + "; exit 3", GOOD[1])
    done = machine.run("capture", "-o", "run", "--", "false")
    assert done.returncode == 0, done.stderr
    assert "the program ended with status 3" in done.stderr


@pytest.mark.parametrize(
    ("profile", "export", "options", "said"),
    [
        ("exit 1", "true", [], "left no report"),
        ("true", "true", ["--range"], "the program must reach the steps that capture() names"),
        (GOOD[0], "exit 1", [], "nsys could not export run.nsys-rep"),
        (GOOD[0], "true", [], "nsys could not export run.nsys-rep"),
        (*GOOD, ["--shapes"], "nsys 2025.3.1.90 has no --pytorch"),
    ],
)
def test_what_goes_wrong_is_told(
    machine: Machine, profile: str, export: str, options: list[str], said: str
) -> None:
    machine.install_nsys(profile, export)
    done = machine.run("capture", "-o", "run", *options, "--", "true")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_earlier_trace_is_kept_unless_forced(machine: Machine) -> None:
    machine.install_nsys(*GOOD)
    earlier = machine.folder / "run.sqlite"
    earlier.write_text("precious", encoding="utf-8")
    done = machine.run("capture", "-o", "run", "--", "true")
    assert done.returncode == 2
    assert "run.sqlite exists" in done.stderr
    assert earlier.read_text(encoding="utf-8") == "precious"
    assert not any(call.startswith("profile --trace") for call in machine.calls())
    assert machine.run("capture", "-o", "run", "--force", "--", "true").returncode == 0


def test_without_a_command_the_help_is_named(machine: Machine) -> None:
    done = machine.run("capture", "--print")
    assert done.returncode == 2
    assert "capture --help" in done.stderr
