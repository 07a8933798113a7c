"""Command line: list the programs, write one as an export, write the samples kept here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sample_traces import PROGRAMS, record, write
from sample_traces.layouts import LAYOUTS

SEED, JITTER_RATIO = 7, 0.015  # the kept samples vary a little, as measured runs do

# The exports that are kept beside the model: file name, program, cured.
KEPT = (
    ("pageable_copy", "pageable_copy", False),
    ("pageable_copy_cured", "pageable_copy", True),
    ("sync_in_loop", "sync_in_loop", False),
    ("input_starvation", "input_starvation", False),
    ("launch_bound", "launch_bound", False),
    ("unfused_chain", "unfused_chain", False),
    ("annotated_chain", "annotated_chain", False),
    ("exposed_communication", "exposed_communication", False),
    ("two_gpu", "two_gpu", False),
    ("graph_only", "graph_inference", False),
    ("healthy", "healthy_training", False),
)


def write_samples(folder: str | Path) -> list[Path]:
    """Write the kept samples into a folder and return their paths."""
    paths = []
    for stem, name, cured in KEPT:
        path = Path(folder) / f"{stem}.sqlite"
        write(record(name, cured=cured, seed=SEED, jitter_ratio=JITTER_RATIO), path)
        paths.append(path)
    return paths


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sample_traces", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name, expected finding and title of every program")
    one = commands.add_parser("write", help="run one program and write its export")
    one.add_argument("name", choices=sorted(PROGRAMS), metavar="NAME")
    one.add_argument("-o", "--output", required=True, metavar="FILE")
    one.add_argument("--cured", action="store_true", help="with the fault cured")
    one.add_argument("--layout", choices=tuple(LAYOUTS), default="2025")
    one.add_argument("--seed", type=int, default=None)
    one.add_argument("--jitter", type=float, default=0.0, metavar="R", help="relative spread")
    kept = commands.add_parser("samples", help="write the samples kept in the repository")
    kept.add_argument("folder", metavar="DIR")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    asked = _parser().parse_args(arguments)
    if asked.command == "list":
        for sample in PROGRAMS.values():
            print(f"{sample.name:34} {sample.rule or '-':28} {sample.title}")
    elif asked.command == "write":
        recording = record(
            asked.name, cured=asked.cured, seed=asked.seed, jitter_ratio=asked.jitter
        )
        write(recording, asked.output, layout=asked.layout)
    else:
        for path in write_samples(asked.folder):
            print(f"{path} {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
