"""Samples and scheduler events that a line about a host thread stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsysdoctor.cases.scene_text import TIMES_NS, Event, quantity

Rows = list[tuple[str, dict[str, Any]]]

_OTHER_THREAD = 900
"""The number that a thread which takes a CPU is given, beyond those that a scene names."""


def off_rows(event: Event, base: dict[str, Any]) -> Rows:
    """Returns the events of a thread that leaves its CPU (`cpu=3`) and comes back.

    `state=1` is the state in which it leaves, where the export tells; with `taken=yes` another
    thread of the process has the CPU meanwhile.
    """
    place = {"cpu": int(event.options.get("cpu", 0)), "thread_state": 0}
    own = place | {"global_tid": base["global_tid"]}
    left = own | {"thread_state": int(event.options.get("state", 0))}
    found = [
        left | {"start_ns": event.start_ns, "runs": 0},
        own | {"start_ns": event.end_ns, "runs": 1},
    ]
    if event.options.get("taken") == "yes":
        other = place | {"global_tid": base["global_tid"] + _OTHER_THREAD}
        found += [
            other | {"start_ns": event.start_ns, "runs": 1},
            other | {"start_ns": event.end_ns, "runs": 0},
        ]
    return [("sched", row) for row in found]


def sample_rows(
    event: Event, base: dict[str, Any], text: Callable[[str], int], known: int
) -> Rows:
    """Returns a sample every millisecond (`every=2ms`) of a stack, innermost frame first, each
    written `symbol@module`."""
    step = quantity(event.options.get("every", "1ms"), TIMES_NS)
    rows: Rows = []
    for number, time in enumerate(range(event.start_ns, event.end_ns, step), known + 1):
        sample = {"start_ns": time, "stack": number, "weight": 1}
        rows.append(("sample", sample | {"global_tid": base["global_tid"]}))
        for depth, frame in enumerate(event.words):
            symbol, _, module = frame.partition("@")
            row = {"stack": number, "depth": depth, "symbol_id": text(symbol)}
            unresolved = int(symbol.startswith("0x"))
            more = {"module_id": text(module), "unresolved": unresolved}
            rows.append(("sample_frame", row | more))
    return rows
