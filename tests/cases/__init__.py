"""Tests of traces written as text tables."""
