"""Array algebra that knows no trace: intervals, sorting, codes, sweeps, compiled passes.

Everything here is a pure function on numpy arrays.
"""

from __future__ import annotations

from nsysdoctor.arrays.codes import distinct, distinct_rows
from nsysdoctor.arrays.intervals import Ints, Spans, union
from nsysdoctor.arrays.order import Codes, time_order

__all__ = ["Codes", "Ints", "Spans", "distinct", "distinct_rows", "time_order", "union"]
