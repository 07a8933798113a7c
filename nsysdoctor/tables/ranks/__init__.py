"""What one rank tells the others, and the clock and collectives that all have in common.

Small summaries; they are all that travels between the traces of a job.
"""
