"""Optimizer steps that launch many small kernels where one pass would do."""

from __future__ import annotations

import pandas as pd

from nsysdoctor.replay.fused_kernels import fuse
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.tables.steps.steps import window_span_ns, work_in_window
from nsysdoctor.trace.recipe import table

_HOST_RATIO = 0.33
"""Of the host time of an optimizer that launches kernel by kernel this much may remain: a fused
one still walks over the parameters."""


@table
def in_loop(optimizer_steps: pd.DataFrame, kernels: Kernels, window: pd.DataFrame) -> pd.DataFrame:
    """Returns the update kernels of the window, with their times and `row` in the findings."""
    mine = kernels.at(optimizer_steps["kernel"].to_numpy())
    whole = optimizer_steps.assign(
        called_ns=mine["called_ns"], start_ns=mine["start_ns"], end_ns=mine["end_ns"],
        duration_ns=mine["duration_ns"],
    )  # fmt: skip
    first = whole.groupby("unit")[["start_ns", "called_ns"]].transform("min")
    inside = work_in_window(*(first[name].to_numpy() for name in first), window)
    found = whole[inside].reset_index(drop=True)
    found["row"] = found.groupby("device", sort=True).ngroup()
    return found


@table
def unfused_optimizer(in_loop: pd.DataFrame, window: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, step_count, work_ns, phase_ns,
    phase_ratio, parameter_bytes, fused_ns, basis."""
    span = window_span_ns(window)
    return pd.DataFrame([_row(mine, span) for _, mine in in_loop.groupby("row", sort=True)])


def _row(mine: pd.DataFrame, span_ns: int) -> dict[str, object]:
    units = mine.groupby("unit", sort=True)
    phase = int((units["end_ns"].max() - units["start_ns"].min()).sum())
    return {
        "subject": f"optimizer on GPU {int(mine['device'].iloc[0])}",
        "device": int(mine["device"].iloc[0]),
        "count": len(mine),
        "step_count": units.ngroups,
        "each_count": round(len(mine) / units.ngroups),
        "work_ns": int(mine["duration_ns"].sum()),
        "phase_ns": phase,
        "phase_ratio": min(phase / max(span_ns, 1), 1.0),
        "parameter_bytes": int(units["parameter_bytes"].first().median()),
        "fused_ns": int(units["fused_ns"].first().sum()),
        "basis": "geometry",
    }


def cure(
    unfused_optimizer: pd.DataFrame, in_loop: pd.DataFrame, kernels: Kernels
) -> list[pd.DataFrame]:
    """One pass over parameters, gradients and moments per step, launched once."""
    times = in_loop.drop_duplicates("unit").set_index("unit")
    return fuse(
        kernels.at(in_loop["kernel"].to_numpy()), in_loop["row"].to_numpy(),
        in_loop["unit"].to_numpy(), times, host_ratio=_HOST_RATIO,
    )  # fmt: skip


def evidence(unfused_optimizer: pd.DataFrame, in_loop: pd.DataFrame) -> pd.DataFrame:
    """Returns the kernels of optimizer steps: row, start_ns, end_ns, what."""
    units = in_loop.groupby("unit", sort=True)
    found = units.agg(row=("row", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    found["what"] = [f"update in {size} kernels" for size in units.size()]
    return found.reset_index(drop=True)
