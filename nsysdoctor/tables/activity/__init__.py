"""What ran on each GPU, and on which GPU, process and thread.

Operations of all kinds in one table, with names and devices resolved.
"""
