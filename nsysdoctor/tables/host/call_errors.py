"""CUDA calls that returned an error: which, with what, and whether that means anything."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from nsysdoctor.tables.activity.devices import thread_code
from nsysdoctor.tables.host.call_kinds import bare_name
from nsysdoctor.trace.recipe import table

COLUMNS = ("thread", "process", "start_ns", "end_ns", "correlation", "name", "code", "meant")


@cache
def error_signs() -> dict[str, Any]:
    """Returns what is known of error codes: `benign` patterns, `ends` and `names` by code."""
    import yaml

    text = files("nsysdoctor.tables.host").joinpath("call_errors.yaml").read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    signs: dict[str, Any] = yaml.load(text, Loader=loader)
    return signs


def error_text(code: int) -> str:
    """Returns the name of an error code and what it says, the number where it has none."""
    return str(error_signs()["names"].get(code, f"error {code}"))


@table
def call_errors(
    api_rows: pd.DataFrame, strings: pd.Series[str], threads: pd.DataFrame
) -> pd.DataFrame:
    """Returns the CUDA calls that returned an error, by start.

    Columns: thread, process (codes), start_ns, end_ns, correlation, name (suffix stripped), code,
    meant (bool: it is an answer rather than a failure, as of a query that says "not yet").
    """
    if "return_value" not in api_rows:
        return pd.DataFrame({c: np.empty(0, dtype=np.int64) for c in COLUMNS})
    failed = api_rows[(api_rows["return_value"] != 0).to_numpy()]
    thread = thread_code(threads, failed["global_tid"])
    names = [bare_name(str(strings.get(i, ""))) or "(unnamed call)" for i in failed["name_id"]]
    found = pd.DataFrame(
        {
            "thread": thread,
            "process": threads["process"].to_numpy()[thread],
            "start_ns": failed["start_ns"].to_numpy(),
            "end_ns": failed["end_ns"].to_numpy(),
            "correlation": failed["correlation"].to_numpy(),
            "name": pd.Series(names, dtype="str"),
            "code": failed["return_value"].to_numpy(),
        }
    )
    found["meant"] = _meant(found["name"], found["code"])
    return found.sort_values(
        ["start_ns", "end_ns", "thread", "correlation"], kind="stable", ignore_index=True
    )


def _meant(name: pd.Series[str], code: pd.Series[int]) -> np.ndarray:
    """Which errors are answers: by the code alone, or by what was asked."""
    told = np.isin(code, error_signs()["benign"]["always"])
    for entry in error_signs()["benign"]["calls"]:
        asked = name.str.contains(entry["calls"], regex=True).to_numpy(dtype=bool)
        told |= asked & (np.isin(code, entry["codes"]) if "codes" in entry else asked)
    return told & ~np.isin(code, error_signs()["ends"])
