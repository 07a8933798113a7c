"""Tests of kernel names, work, peaks and the roof that binds."""
