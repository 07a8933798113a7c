"""CUDA calls that returned an error: work that never ran, and errors that ended the program."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.tables.host.call_errors import error_signs, error_text
from nsysdoctor.tables.host.call_kinds import SUBMITS, Verb, verb_of
from nsysdoctor.tables.steps.steps import in_window
from nsysdoctor.trace.recipe import table
from nsysdoctor.units import ratio_text

_MOST = 0.5
_NO_MEMORY = 2
_NO_CODE = (8, 35, 98, 200, 209, 218, 222)
_BAD_SHAPE = (1, 9, 701, 720)


@table
def failures(
    call_errors: pd.DataFrame, window: pd.DataFrame, thread_labels: list[str]
) -> pd.DataFrame:
    """Returns the calls that failed, nested ones only where their caller did not: the columns of
    `call_errors`, key (of the finding that tells it), verb, label (of the thread), ends (bool:
    nothing works after it), work (bool: it was to submit something)."""
    found = call_errors[~call_errors["meant"].to_numpy(dtype=bool)].reset_index(drop=True)
    if window["basis"].iloc[0] == "given":
        found = found[in_window(found["start_ns"].to_numpy(), window)].reset_index(drop=True)
    found = found[_outermost(found)].reset_index(drop=True)
    verb = np.array([int(verb_of(name)) for name in found["name"]], dtype=np.int64)
    ends = np.isin(found["code"], error_signs()["ends"])
    # What every later call returns is one failure.
    key = np.where(ends, "", found["name"].astype(object)) + "/" + found["code"].astype(str)
    return found.assign(
        key=key,
        verb=verb,
        label=[thread_labels[t] for t in found["thread"]],
        ends=ends,
        work=np.isin(verb, [int(v) for v in SUBMITS]),
    )


def _outermost(found: pd.DataFrame) -> np.ndarray:
    """Errors that were not passed on by a failed call around them."""
    outer = np.ones(len(found), dtype=bool)
    for _, rows in found.groupby("thread", sort=True).indices.items():
        order = rows[np.lexsort((-found["end_ns"].to_numpy()[rows],
                                 found["start_ns"].to_numpy()[rows]))]  # fmt: skip
        end = found["end_ns"].to_numpy()[order]
        reach = np.maximum.accumulate(end)
        outer[order[1:]] = found["start_ns"].to_numpy()[order[1:]] >= reach[:-1]
    return outer


@table
def failed_calls(
    failures: pd.DataFrame, api: pd.DataFrame, api_names: pd.DataFrame, window: pd.DataFrame
) -> pd.DataFrame:
    """Returns a row per call name and error, one per error after which nothing works: subject,
    device, thread, name (of the first call), count, of_count (calls of that name), failed_ratio,
    code, error, calls, effect, variant, level."""
    names = api_names["name"].astype(str).to_numpy()
    called = api["name"].to_numpy()
    if window["basis"].iloc[0] == "given":
        called = called[in_window(api["start_ns"].to_numpy(), window)]
    made = pd.Series(np.bincount(called, minlength=len(names))).groupby(names).sum()
    rows = []
    for key, mine in failures.groupby("key", sort=True):
        name, code = mine[["name", "code"]].iloc[0]
        ends, work = bool(mine["ends"].any()), bool(mine["work"].any())
        total = len(mine) if ends else max(int(made.get(name, 0)), len(mine))
        share = len(mine) / total
        rows.append(
            {
                "subject": f"{name}: {error_text(int(code)).split(':')[0]}",
                "device": -1,
                "thread": str(mine["label"].mode().iloc[0]),
                "name": name,
                "count": len(mine),
                "of_count": total,
                "failed_ratio": share,
                "code": int(code),
                "error": error_text(int(code)),
                "calls": _calls(str(name), len(mine), total, ends),
                "_key": key,
                "effect": _effect(ends, mine, share),
                "variant": _variant(ends, int(code), mine),
                "level": "high" if ends or work else "info",
            }
        )
    return pd.DataFrame(rows)


def _calls(name: str, failed: int, total: int, ends: bool) -> str:
    if ends:
        return f"{failed:,} calls, first of all {name}," if failed > 1 else f"A call of {name}"
    if failed < total:
        return f"{failed:,} of {total:,} calls of {name}"
    return f"Every call of {name} ({failed:,})" if failed > 1 else f"The only call of {name}"


def _effect(ends: bool, mine: pd.DataFrame, share: float) -> str:
    """What follows from the errors, as a sentence."""
    if ends:
        return "No CUDA call of the process works after such an error; its results are lost."
    launches = (mine["verb"] == int(Verb.LAUNCH)).any()
    if launches and share > _MOST:
        return (
            f"{ratio_text(share)} of the kernels never ran: utilization and savings in this report"
            " are those of a program that does not work."
        )
    if mine["work"].any():
        return "That work never ran, so results may be wrong."
    return "The program went on."


def _variant(ends: bool, code: int, mine: pd.DataFrame) -> str:
    if ends:
        return "crash"
    if code in _NO_CODE:
        return "no_code"
    if code == _NO_MEMORY:
        return "memory"
    return "shape" if code in _BAD_SHAPE and mine["work"].any() else ""


def evidence(failed_calls: pd.DataFrame, failures: pd.DataFrame) -> pd.DataFrame:
    """Returns the failed calls: row, start_ns, end_ns, what."""
    row = {key: place for place, key in enumerate(failed_calls["_key"])}
    return pd.DataFrame(
        {
            "row": failures["key"].map(row),
            "start_ns": failures["start_ns"],
            "end_ns": failures["end_ns"],
            "what": failures["name"] + " failed",
        }
    )
