"""Reports held against limits and a baseline: a verdict, and why.

Nothing here knows a trace; everything starts from reports.
"""

from __future__ import annotations

from nsysdoctor.gate.baseline import Baseline
from nsysdoctor.gate.judge import judge
from nsysdoctor.gate.limits import Limits
from nsysdoctor.gate.verdict import Verdict

__all__ = ["Baseline", "Limits", "Verdict", "judge"]
