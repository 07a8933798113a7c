"""Tests of array algebra."""
