"""The iterations of a program and the phases that the rest of its run falls into.

Found from NVTX ranges, else from the period of the launches.
"""
