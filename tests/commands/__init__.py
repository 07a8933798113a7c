"""Tests of the commands as users type them."""
