"""Tests of every output format."""
