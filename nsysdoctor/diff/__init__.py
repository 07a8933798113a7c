"""Two reports set side by side: what changed per device, step, kernel and finding.

Uses the statistics of the gate.
"""
