"""Markers for a PyTorch loop, and the measuring of a GPU's roofs.

    from nsysdoctor.torch import capture, shapes, steps

    capture(start=20, steps=30)
    with shapes(model):
        for batch in steps(loader):
            ...

Only this package imports torch, and only when one of its functions is called.
"""

from nsysdoctor.torch.marks import Range, Steps, attached, capture, step, steps
from nsysdoctor.torch.modules import Shapes, shapes

__all__ = ["Range", "Shapes", "Steps", "attached", "capture", "shapes", "step", "steps"]
