"""Tests of the PyTorch side, and of its absence."""
