"""The ledger of lost time: every nanosecond in which a device does not compute has an owner.

Each piece has one bucket of the time budget, one cause and one culprit: the most specific name
that the export proves for that instant.
"""
