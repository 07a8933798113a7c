"""Runs kept over time in an SQLite file, and where their trend changed.

One row per run and metric.
"""
