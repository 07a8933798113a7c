"""Tests of the timeline's payload."""
