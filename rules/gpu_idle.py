"""How long each device idles, and mainly why."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.intervals import sums
from nsysdoctor.recipe import table
from nsysdoctor.tables.states import CAUSES

_IDLE = np.array([f"idle: {cause.replace('_', ' ')}" for cause in CAUSES])


@table
def gpu_idle(
    time_budget: pd.DataFrame, gap_causes: pd.DataFrame, gaps: pd.DataFrame, *, min_ratio: float
) -> pd.DataFrame:
    """Returns a row per device that idles for at least `min_ratio` of its span: subject, device,
    count (gaps), idle_ns, span_ns, idle_ratio, main_cause, unknown_ratio, level (info)."""
    start, end, cause = (gap_causes[c].to_numpy() for c in ("start_ns", "end_ns", "cause"))
    rows = []
    for budget in time_budget.to_dict("records"):
        device, idle, span = budget["device"], budget["idle_ns"], budget["span_ns"]
        if not span or idle < min_ratio * span:
            continue
        mine = np.flatnonzero(gap_causes["device"].to_numpy() == device)
        by_cause = sums(cause[mine], end[mine] - start[mine], len(CAUSES))
        rows.append(
            {
                "subject": f"GPU {device}",
                "device": device,
                "count": int((gaps["device"].to_numpy() == device).sum()),
                "idle_ns": idle,
                "span_ns": span,
                "idle_ratio": idle / span,
                "main_cause": CAUSES[int(by_cause.argmax())].replace("_", " "),
                "unknown_ratio": float(by_cause[CAUSES.index("unknown")]) / idle,
                "level": "info",
            }
        )
    return pd.DataFrame(rows)


def evidence(gpu_idle: pd.DataFrame, gap_causes: pd.DataFrame, gaps: pd.DataFrame) -> pd.DataFrame:
    """Returns the gaps of each listed device, named by their largest cause."""
    row = np.full(len(gaps), -1, dtype=np.int32)
    for place, device in enumerate(gpu_idle["device"]):
        row[gaps["device"].to_numpy() == device] = place
    listed = np.flatnonzero(row >= 0)
    words, code = np.unique(_IDLE, return_inverse=True)
    return pd.DataFrame(
        {
            "row": row[listed],
            "start_ns": gaps["start_ns"].to_numpy()[listed],
            "end_ns": gaps["end_ns"].to_numpy()[listed],
            "what": pd.Categorical.from_codes(code[_main_cause(gap_causes)[listed]], words),
        },
        copy=False,
    )


def _main_cause(gap_causes: pd.DataFrame) -> np.ndarray:
    """The cause of the longest piece of each gap; of equally long ones the last of `CAUSES`."""
    gap, cause = gap_causes["gap"].to_numpy(), gap_causes["cause"].to_numpy()
    length = (gap_causes["end_ns"] - gap_causes["start_ns"]).to_numpy()
    first = np.searchsorted(gap, np.arange(int(gap.max(initial=-1)) + 1))
    longest = np.maximum.reduceat(length, first) if len(first) else length
    return np.maximum.reduceat(np.where(length == longest[gap], cause, -1), first)
