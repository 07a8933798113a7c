"""Tests of the tables that are derived from an export."""
