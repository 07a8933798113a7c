"""A trace's tables for other programs: frames with readable names, and a Perfetto trace.

Nothing is analysed here.
"""
