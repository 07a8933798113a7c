"""A report: what was analysed, how the time was spent, what was found. Plain data, no trace.

Also the numbers that a gate can hold: what each means and which way is better.
"""

from __future__ import annotations

from nsysdoctor.report.metrics import METRICS, MetricKind
from nsysdoctor.report.model import Finding, Report

__all__ = ["METRICS", "Finding", "MetricKind", "Report"]
