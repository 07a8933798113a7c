"""Tests of a whole diagnosis, on real exports too."""
