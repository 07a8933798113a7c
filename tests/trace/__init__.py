"""Tests of a trace and its window."""
