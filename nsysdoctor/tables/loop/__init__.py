"""What the steady loop spends host time and copies on: pauses, driver calls, launch runs.

The rules about the host read these tables.
"""
