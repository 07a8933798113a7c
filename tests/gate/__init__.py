"""Tests of baselines, limits and verdicts."""
