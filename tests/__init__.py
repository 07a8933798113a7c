"""Tests, in folders that mirror the packages; at the top what several of them share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_traces"
TESTS = ROOT / "tests"
