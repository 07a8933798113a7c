"""What an export may hold about the host beside calls: scheduling, samples, call stacks, MPI.

Each source is independent. A table that lacks a required column counts as missing, and a table is
read only when something needs it.
"""

from __future__ import annotations

from nsysdoctor.ingest.source import SPAN, THREAD, Column, Source

_SAMPLE_FLAG = "--sample=process-tree"
_MPI_FLAG = "--trace=mpi"

SCHED = Source(
    "sched",
    ("SCHED_EVENTS",),
    "--cpuctxsw=process-tree",
    (
        Column("start_ns", ("start",), None, "time"),
        THREAD,
        Column("cpu", ("cpu",), -1, width="int16"),
        Column("runs", ("isSchedIn",), None, width="int8"),
        Column("thread_state", ("threadState",), 0, width="int8"),
        Column("thread_block", ("threadBlock",), 0, width="int8"),
    ),
)

SAMPLE = Source(
    "sample",
    ("COMPOSITE_EVENTS",),
    _SAMPLE_FLAG,
    (
        Column("start_ns", ("start",), None, "time"),
        THREAD,
        Column("stack", ("id",), None, width="int32"),
        Column("weight", ("cpuCycles",), 1, width="int32"),
    ),
)


def _frames(name: str, table: str, flag: str) -> Source:
    """The frames of call stacks, of which depth 0 is the innermost."""
    return Source(
        name,
        (table,),
        flag,
        (
            Column("stack", ("id",), None, width="int32"),
            Column("depth", ("stackDepth",), None, width="int16"),
            Column("symbol_id", ("symbol",), None, width="int32"),
            Column("module_id", ("module",), -1, width="int32"),
            Column("unresolved", ("unresolved",), 0, width="int8"),
            Column("special", ("specialEntry",), 0, width="int8"),
        ),
    )


SAMPLE_FRAME = _frames("sample_frame", "SAMPLING_CALLCHAINS", _SAMPLE_FLAG)
OS_FRAME = _frames("os_frame", "OSRT_CALLCHAINS", "--trace=osrt --osrt-backtrace-depth=24")
CALL_FRAME = _frames(
    "call_frame", "CUDA_CALLCHAINS", "--cudabacktrace=all --sample=process-tree"
)


def _stacked(name: str, table: str, flag: str) -> Source:
    """The calls of a table that carry a call stack."""
    return Source(
        name,
        (table,),
        flag,
        (*SPAN, THREAD, Column("stack", ("callchainId",), None, width="int32")),
        where=("callchainId", "callchainId > 0"),
    )


OS_STACK = _stacked("os_stack", "OSRT_API", OS_FRAME.flag)
CALL_STACK = _stacked("call_stack", "CUPTI_ACTIVITY_KIND_RUNTIME", CALL_FRAME.flag)
"""Of either form: with the stack in the call's own row, or in a twin row of class 67."""


def _mpi(name: str, table: str) -> Source:
    return Source(
        name,
        (table,),
        _MPI_FLAG,
        (*SPAN, THREAD, Column("text_id", ("textId",), -1, width="int32")),
    )


MPI = tuple(
    _mpi(f"mpi_{name}", table)
    for name, table in (
        ("message", "MPI_P2P_EVENTS"),
        ("collective", "MPI_COLLECTIVES_EVENTS"),
        ("request", "MPI_START_WAIT_EVENTS"),
        ("other", "MPI_OTHER_EVENTS"),
    )
)

HOST_SOURCES = (SCHED, SAMPLE, SAMPLE_FRAME, OS_FRAME, CALL_FRAME, OS_STACK, CALL_STACK, *MPI)
HOST_SPANS = tuple(source.name for source in (OS_STACK, CALL_STACK, *MPI))
"""Those whose rows begin and end."""
