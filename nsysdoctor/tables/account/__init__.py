"""Where each device's time went: budget, gaps and their causes, copies, metrics.

Every nanosecond of a span is in one bucket; the causes of gaps add up to the idle time.
"""
