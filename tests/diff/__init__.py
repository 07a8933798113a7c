"""Tests of what a diff claims."""
