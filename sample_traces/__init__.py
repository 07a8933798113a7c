"""A model of CUDA programs that writes Nsight Systems exports with one planted fault each.

Every program exists with its fault and with the fault cured, so the time that the cure saves is
known and not estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sample_traces.export import write
from sample_traces.programs import (
    annotated,
    copies,
    distributed,
    driver,
    fusion,
    healthy,
    host_calls,
    host_side,
    launches,
    links,
    sharing,
    syncs,
    together,
)
from sample_traces.recording import Recording, by_process
from sample_traces.sample import Sample

__all__ = [
    "PROGRAMS",
    "Recording",
    "Sample",
    "by_process",
    "record",
    "steady_saving_ns",
    "true_saving_ns",
    "write",
]

_MODULES = (
    copies,
    links,
    syncs,
    host_side,
    host_calls,
    driver,
    launches,
    distributed,
    sharing,
    fusion,
    annotated,
    together,
    healthy,
)

PROGRAMS: Mapping[str, Sample] = {
    sample.name: sample for module in _MODULES for sample in module.SAMPLES
}


def record(
    name: str, *, cured: bool = False, seed: int | None = None, jitter_ratio: float = 0.0
) -> Recording:
    """Run a program and return what it leaves.

    ``jitter_ratio`` is the relative spread of every kernel and host cost; the same seed gives the
    same run. Raises ``KeyError`` for a name that is not in ``PROGRAMS``.
    """
    return PROGRAMS[name].build(cured).run(seed=seed, jitter_ratio=jitter_ratio)


@cache
def true_saving_ns(name: str) -> int:
    """Time in ns by which the cured program ends its last steady step earlier.

    Warm-up steps have the fault too, so they take part; see ``steady_saving_ns``.
    """
    return record(name).end_ns - record(name, cured=True).end_ns


@cache
def steady_saving_ns(name: str) -> int:
    """Time in ns by which the steady steps alone are shorter in the cured program."""
    return record(name).steady_ns - record(name, cured=True).steady_ns
