"""Passes over events that no array operation can express: compiled for large traces only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

_COMPILED_SIZE = 200_000
"""Fewer events than this are done on lists before a compiler has started."""


def run_pass(
    function: Callable[..., None], size: int, inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
) -> None:
    """Runs a loop over `inputs` that fills `outputs`. Large inputs run compiled; small ones run on
    Python lists, so the function must do the same on both."""
    if size >= _COMPILED_SIZE:
        _compiled(function)(*inputs, *outputs)
        return
    answers = [array.tolist() for array in outputs]
    function(*(array.tolist() for array in inputs), *answers)
    for array, answer in zip(outputs, answers, strict=True):
        array[:] = answer


@cache
def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    import numba

    try:
        made: Callable[..., None] = numba.njit(cache=True, nogil=True)(function)
    except (RuntimeError, OSError):
        # No folder can be written to, neither the package's nor the user's: compiled each time.
        made = numba.njit(nogil=True)(function)
    return made
