"""Tests of the model that writes sample traces."""
