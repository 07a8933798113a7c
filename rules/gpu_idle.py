"""How long each device idles, and mainly why."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.tables.account.idle_parts import IdleParts
from nsysdoctor.tables.host.thread_states import CAUSES
from nsysdoctor.trace.recipe import table

_IDLE = np.array([f"idle: {cause.replace('_', ' ')}" for cause in CAUSES])


@table
def gpu_idle(
    time_budget: pd.DataFrame, idle_parts: IdleParts, gaps: pd.DataFrame, *, min_ratio: float
) -> pd.DataFrame:
    """Returns a row per device that idles for at least `min_ratio` of its span: subject, device,
    count (gaps), idle_ns, span_ns, idle_ratio, main_cause, unknown_ratio, level (info)."""
    told = idle_parts.by_cause
    rows = []
    for budget in time_budget.to_dict("records"):
        device, idle, span = budget["device"], budget["idle_ns"], budget["span_ns"]
        if not span or idle < min_ratio * span:
            continue
        by_cause = told.loc[told["device"] == device, "idle_ns"].to_numpy()
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


def evidence(gpu_idle: pd.DataFrame, idle_parts: IdleParts, gaps: pd.DataFrame) -> pd.DataFrame:
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
            "what": pd.Categorical.from_codes(code[idle_parts.main_cause[listed]], words),
        },
        copy=False,
    )
