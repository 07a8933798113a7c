"""Tests of several traces as one job."""
