"""Holding reports against limits and against each other: gate, baseline, diff, history.

Nothing here knows a trace; everything starts from reports.
"""
