"""Traces written as text tables, and what a rule must say about them.

Used by `nsysdoctor rules test` and by the cases that every rule ships.
"""

from __future__ import annotations

from nsysdoctor.cases.rule_cases import Case, folder_results, load_cases, run_case

__all__ = ["Case", "folder_results", "load_cases", "run_case"]
