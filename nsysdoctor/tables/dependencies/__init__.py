"""What each call and operation had to wait for: streams, engines, events, other threads.

The constraint graph of the replay is built from these tables.
"""
