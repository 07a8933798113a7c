"""Rules: loading them, evaluating one on a trace's tables, and the findings it gives.

A rule is a YAML file of words and limits and a Python file that measures.
"""

from __future__ import annotations

from nsysdoctor.rulebook.evaluate import evaluate
from nsysdoctor.rulebook.findings import make_finding
from nsysdoctor.rulebook.rule import Rule, load_rules, select_rules

__all__ = ["Rule", "evaluate", "load_rules", "make_finding", "select_rules"]
