"""Captures that hold calls without their kernels, or kernels without their calls."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsysdoctor.arrays.intervals import Ints, covered_before, spans, union
from nsysdoctor.tables.activity.gpu_rows import KERNEL
from nsysdoctor.tables.dependencies.links import Links
from nsysdoctor.tables.host.call_kinds import Verb
from nsysdoctor.trace.recipe import table
from nsysdoctor.trace.window import Request
from nsysdoctor.units import ratio_text

_SAID = re.compile(
    r"(?i)not all cuda events|cuda.*\b(dropped|lost|discarded|overflow)|"
    r"\b(dropped|lost|discarded)\b.*\b(cuda|cupti|gpu)\b"
)


class Asked(NamedTuple):
    """The launch calls that a report is about, without those that a stream capture recorded into
    a graph.

    `count` tells how many each process made, `first_ns` when the first of all began; `lost` are
    those whose work the trace does not hold: process, start_ns, end_ns.
    """

    count: Ints
    first_ns: int
    lost: pd.DataFrame


@table
def asked_kernels(
    api: pd.DataFrame,
    api_names: pd.DataFrame,
    links: Links,
    processes: pd.DataFrame,
    call_errors: pd.DataFrame,
    request: Request,
) -> Asked:
    """Returns the launch calls that did not fail, and those whose work the trace does not hold."""
    asked = (api["verb"].to_numpy() == int(Verb.LAUNCH)) & api["top"].to_numpy()
    asked &= ~(_captured(api, api_names) | _failed(api, call_errors))
    if (shown := request.in_given_window(api)) is not None:
        asked &= shown
    count = np.bincount(api["process"].to_numpy()[asked], minlength=len(processes))
    first_ns = api["start_ns"].to_numpy().min(where=asked, initial=np.iinfo(np.int64).max)
    asked[links.call[links.call >= 0]] = False
    lost = api.loc[asked, ["process", "start_ns", "end_ns"]].reset_index(drop=True)
    return Asked(count, int(first_ns), lost)


def _failed(api: pd.DataFrame, call_errors: pd.DataFrame) -> np.ndarray:
    """Calls that returned an error: there is no kernel to be lost."""
    columns = ["thread", "start_ns"]
    found = pd.MultiIndex.from_frame(call_errors[columns])
    if not len(found):
        return np.zeros(len(api), dtype=bool)
    near = np.flatnonzero(np.isin(api["start_ns"].to_numpy(), call_errors["start_ns"].to_numpy()))
    failed = np.zeros(len(api), dtype=bool)
    failed[near] = pd.MultiIndex.from_frame(api[columns].iloc[near]).isin(found)
    return failed


def _captured(api: pd.DataFrame, api_names: pd.DataFrame) -> np.ndarray:
    """Calls of a process while it captures a stream into a graph, from before what was read on
    where only the end of that is known."""
    name, code = api_names["name"].astype(str), api["name"].to_numpy()
    opens = name.str.contains("StreamBeginCapture").to_numpy()[code]
    closes = name.str.contains("StreamEndCapture").to_numpy()[code]
    inside = np.zeros(len(api), dtype=bool)
    for process in np.unique(api["process"].to_numpy()[opens | closes]):
        mine = np.flatnonzero(api["process"].to_numpy() == process)
        start, end = (api[c].to_numpy()[mine] for c in ("start_ns", "end_ns"))
        begun, done = np.sort(start[opens[mine]]), np.sort(end[closes[mine]])
        if len(done) and (not len(begun) or done[0] < begun[0]):
            begun = np.append(start.min(), begun)
        index = np.searchsorted(done, begun)
        until = np.append(done, np.iinfo(np.int64).max)[index]
        merged = union(spans(begun, until))
        inside[mine] = covered_before(merged, start + 1) > covered_before(merged, start)
    return inside


@table
def incomplete_capture(
    ops: pd.DataFrame,
    links: Links,
    processes: pd.DataFrame,
    asked_kernels: Asked,
    request: Request,
    diagnostic_rows: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Returns a row per process with lost rows, or one where only the recorder says so: subject,
    device, count (rows lost), lost_ratio, lost_call_count, lost_kernel_count, from_ns, until_ns
    (since the start of the trace, or of the window asked for), summary, said, level."""
    start = min(int(ops["start_ns"].min()), asked_kernels.first_ns)
    said = _said(diagnostic_rows)
    kernel = ops["kind"].to_numpy() == KERNEL
    if isinstance(request.window, tuple):
        start = request.window[0]
        kernel &= request.in_given_window(ops)
    alone = ops[kernel & (links.call < 0) & (ops["node"].to_numpy() == 0)]
    rows = []
    for process, name in enumerate(_labels(processes)):
        asked = int(asked_kernels.count[process])
        lost = asked_kernels.lost[asked_kernels.lost["process"] == process]
        kernels = alone[alone["process"] == process]
        share = len(lost) / max(asked, 1)
        if asked and len(kernels):
            ran = int((kernel & (ops["process"].to_numpy() == process)).sum())
            share = max(share, len(kernels) / ran)
        if not share:
            continue
        both = pd.concat([lost[["start_ns", "end_ns"]], kernels[["start_ns", "end_ns"]]])
        rows.append(
            {
                "subject": name,
                "device": -1,
                "count": len(both),
                "lost_ratio": share,
                "lost_call_count": len(lost),
                "lost_kernel_count": len(kernels),
                "from_ns": max(int(both["start_ns"].min()) - start, 0),
                "until_ns": int(both["end_ns"].max()) - start,
                "summary": _summary(len(lost), len(kernels), share),
                "said": f"; {said}" if said else "",
                # It limits what the other findings can say; it is no waste of its own.
                "level": "info",
            }
        )
    if not rows and said:
        rows.append(_only_said(said))
    return pd.DataFrame(rows)


def _labels(processes: pd.DataFrame) -> list[str]:
    """The names of the processes, numbered where they do not tell them apart."""
    names = [name or "the process" for name in processes["name"].tolist()]
    return [
        f"{name} {names[:place].count(name) + 1}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _said(rows: pd.DataFrame | None) -> str:
    """What the recorder says about lost rows, "" if nothing."""
    if rows is None:
        return ""
    texts = sorted({str(t).strip().split("\n")[0] for t in rows["text"] if _SAID.search(str(t))})
    return f"the recorder says: {' '.join(texts)}" if texts else ""


def _summary(calls: int, kernels: int, share: float) -> str:
    return (
        f"{calls:,} launch calls have no kernel in the trace and {kernels:,} kernels have no call"
        f" ({ratio_text(share)} lost)"
    )


def _only_said(said: str) -> dict[str, object]:
    return {
        "subject": "the recorder", "device": -1, "count": 1, "lost_ratio": 0.0,
        "lost_call_count": 0, "lost_kernel_count": 0, "from_ns": 0, "until_ns": 0,
        "summary": said[:1].upper() + said[1:], "said": "",
        "level": "info",
    }  # fmt: skip


def evidence(incomplete_capture: pd.DataFrame, asked_kernels: Asked) -> pd.DataFrame:
    """Returns the stretch of the launch calls without kernels: row, start_ns, end_ns, what."""
    lost = asked_kernels.lost
    if not len(lost):
        return pd.DataFrame({"row": [], "start_ns": [], "end_ns": [], "what": []})
    return pd.DataFrame(
        {
            "row": [0],
            "start_ns": [int(lost["start_ns"].min())],
            "end_ns": [int(lost["end_ns"].max())],
            "what": ["calls without their kernels"],
        }
    )
