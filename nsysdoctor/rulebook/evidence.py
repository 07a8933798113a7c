"""Which of the places that a rule points to are shown: the longest few."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsysdoctor.report.ranking import EVIDENCE_LIMIT

__all__ = ["EVIDENCE_LIMIT", "longest_places"]


def longest_places(length_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Returns which places of one finding can be among those shown, by their lengths; nobody
    reads the words of the others."""
    if len(length_ns) <= EVIDENCE_LIMIT:
        return np.ones(len(length_ns), dtype=bool)
    return np.asarray(length_ns >= np.partition(length_ns, -EVIDENCE_LIMIT)[-EVIDENCE_LIMIT])
