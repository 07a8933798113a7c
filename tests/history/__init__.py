"""Tests of runs kept over time."""
