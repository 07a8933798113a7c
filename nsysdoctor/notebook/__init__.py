"""Traces and reports in Python and notebooks: documented tables, frames, figures, pages.

`nsysdoctor.open("run.sqlite")` gives a `Run`; `run.report()` gives a `Diagnosis`.
"""

from __future__ import annotations

from nsysdoctor.notebook.run import Diagnosis, Run, open_run

__all__ = ["Diagnosis", "Run", "open_run"]
