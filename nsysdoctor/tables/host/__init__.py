"""What each host thread did: calls, OS calls, pauses, ranges, and its state at every moment.

Includes what a CUDA call does, told from its name.
"""
