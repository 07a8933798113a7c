"""Tests of rules as documents."""
