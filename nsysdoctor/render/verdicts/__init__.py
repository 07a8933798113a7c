"""Verdicts, baselines, diffs and trends for people.

The sentences that they share are in `words`.
"""
