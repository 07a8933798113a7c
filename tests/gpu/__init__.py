"""Predicted savings against measured ones, on a machine with an NVIDIA GPU.

    python -m tests.gpu -o validation.json
"""
