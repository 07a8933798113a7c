"""Tests of the built-in rules, by cases written as text and by made programs."""
