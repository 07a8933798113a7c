"""Tests of the constraint graph and its replay."""
