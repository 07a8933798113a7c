"""Tests of exported events."""
