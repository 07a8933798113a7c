"""Verdicts, baselines, diffs and trends for people.

The sentences they share stand in `words`.
"""
