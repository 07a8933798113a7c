"""Every kernel with its work and the roof that binds it, and the patterns that kernels form.

These patterns are chains, attention, optimizer steps and repeated launches.
"""
