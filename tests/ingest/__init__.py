"""Tests of reading exports, whole ones and broken ones."""
