"""What each host thread did at every moment: on or off a CPU, in which call, in whose code.

Reads scheduler events, CPU samples, call stacks and MPI; what is recognised in a stack stands in
`signatures.yaml`.
"""
