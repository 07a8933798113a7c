"""`python -m tests.gpu`: run every story on this machine's GPU, print the table, write JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def gpu_torch() -> Any | None:
    """Returns torch where it sees a GPU, else None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def main() -> int:
    """Runs the stories; 0 when every fault was found and priced well, 1 else, 2 without a GPU."""
    from tests.gpu.stories import STORIES
    from tests.gpu.validate import table_of, told_of, validate

    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("validation.json"))
    parser.add_argument("--keep", type=Path, help="keep the traces in this folder")
    parser.add_argument("stories", nargs="*", help="names of stories; all by default")
    asked = parser.parse_args()
    torch = gpu_torch()
    if torch is None:
        print("torch sees no NVIDIA GPU here; run this on a machine with one", file=sys.stderr)
        return 2
    chosen = [story for story in STORIES if not asked.stories or story.name in asked.stories]
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        outcomes = validate(torch, folder, chosen)
    print(table_of(outcomes, str(torch.cuda.get_device_name(0))))
    asked.output.write_text(json.dumps(told_of(outcomes, torch), indent=2) + "\n", "utf-8")
    print(f"wrote {asked.output}")
    return 0 if all(one.good for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
