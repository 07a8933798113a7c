"""From a trace to its report: account, rules, prices, ranking.

The one place where tables, rules and replay come together.
"""

from __future__ import annotations

from nsysdoctor.diagnosis.diagnose import Options, diagnose, diagnose_trace

__all__ = ["Options", "diagnose", "diagnose_trace"]
