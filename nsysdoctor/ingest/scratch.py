"""A folder of our own that vanishes with the object that uses it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class Scratch:
    """A temporary folder, away from any trace; removed when this object is freed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="nsysdoctor-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
