"""What a CUDA call does, told from its name: launch, copy, synchronise, allocate …"""

from __future__ import annotations

import re
from enum import IntEnum


class Verb(IntEnum):
    """The kinds of CUDA calls that the accounting tells apart."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY_ASYNC = 3
    COPY = 4
    SET_ASYNC = 5
    SET = 6
    DEVICE_SYNC = 7
    STREAM_SYNC = 8
    EVENT_SYNC = 9
    STREAM_WAIT = 10
    EVENT_RECORD = 11
    QUERY = 12
    ALLOC = 13
    FREE = 14
    HOST_ALLOC = 15
    HOST_FREE = 16
    MODULE = 17
    PREFETCH = 18
    GRAPH_BUILD = 19


SYNCS = frozenset({Verb.DEVICE_SYNC, Verb.STREAM_SYNC, Verb.EVENT_SYNC})
ALLOCATIONS = frozenset({Verb.ALLOC, Verb.FREE, Verb.HOST_ALLOC, Verb.HOST_FREE})
SUBMITS = frozenset(
    {Verb.LAUNCH, Verb.GRAPH_LAUNCH, Verb.COPY_ASYNC, Verb.COPY, Verb.SET_ASYNC, Verb.SET}
)

# The runtime appends _vNNNN, per-thread-stream builds _ptsz or _ptds, the driver _v2.
_SUFFIX = re.compile(r"(_ptsz|_ptds|_v\d+)+$")

_PATTERNS: tuple[tuple[str, Verb], ...] = (
    (r"cu(da)?GraphLaunch", Verb.GRAPH_LAUNCH),
    (r"cu(da)?Launch(HostFunc)", Verb.OTHER),
    (r"cu(da)?Launch", Verb.LAUNCH),
    (r"cu(da)?Memcpy.*Async|cu(da)?MemcpyBatch", Verb.COPY_ASYNC),
    (r"cu(da)?Memcpy", Verb.COPY),
    (r"cu(da)?Memset.*Async", Verb.SET_ASYNC),
    (r"cu(da)?Memset", Verb.SET),
    (r"cuda(Device|Thread)Synchronize|cuCtxSynchronize", Verb.DEVICE_SYNC),
    (r"cu(da)?StreamSynchronize", Verb.STREAM_SYNC),
    (r"cu(da)?EventSynchronize", Verb.EVENT_SYNC),
    (r"cu(da)?StreamWait(Event|Value)", Verb.STREAM_WAIT),
    (r"cu(da)?EventRecord", Verb.EVENT_RECORD),
    (r"cu(da)?(Event|Stream)Query", Verb.QUERY),
    (r"cuda(HostAlloc|MallocHost|HostRegister)|cuMem(HostAlloc|AllocHost|HostRegister)",
     Verb.HOST_ALLOC),
    (r"cuda(FreeHost|HostUnregister)|cuMem(FreeHost|HostUnregister)", Verb.HOST_FREE),
    (r"cuda(Malloc|MallocAsync|MallocManaged|MallocPitch|Malloc3D|MallocFromPoolAsync)$"
     r"|cuMem(Alloc|AllocAsync|AllocManaged|AllocPitch|Create|Map)$", Verb.ALLOC),
    (r"cuda(Free|FreeAsync|FreeArray)$|cuMem(Free|FreeAsync|Release|Unmap)$|cudaDeviceReset",
     Verb.FREE),
    (r"cu(Module|Library)Load|cuda(LibraryLoad|ModuleLoad)|cuLink|cuModuleUnload|cuLibraryUnload",
     Verb.MODULE),
    (r"cu(da)?MemPrefetch", Verb.PREFETCH),
    (r"cu(da)?Graph(Instantiate|Create|Clone|ExecUpdate|Upload)|cu(da)?StreamEndCapture",
     Verb.GRAPH_BUILD),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), verb) for pattern, verb in _PATTERNS)


def bare_name(name: str) -> str:
    """Returns a call's name without version and stream-variant suffixes."""
    return _SUFFIX.sub("", name)


def verb_of(name: str) -> Verb:
    """Returns what the call of that name does; names with suffixes are fine."""
    bare = bare_name(name)
    return next((verb for pattern, verb in _COMPILED if pattern.match(bare)), Verb.OTHER)


# Host waits: the thread sleeps until another thread, a device or a timer wakes it.
_WAIT = re.compile(
    r"(pthread_cond_(timed|clock)?wait|pthread_(timed)?join(_np)?|sem_(timed|clock)?wait|"
    r"sem_wait|e?poll(_p?wait2?)?|ppoll|p?select|epoll_p?wait2?|(clock_)?nanosleep|u?sleep|"
    r"waitpid|wait4?|waitid|futex|recv(from|msg|mmsg)?|accept4?|read(v|64)?|pread(v|64)?|"
    r"pthread_mutex_(timed)?lock|pthread_rwlock_.*lock|pthread_barrier_wait|flock|fread|"
    r"sigwait.*|mq_.*receive|msgrcv|io_getevents)$"
)


def waits_for_others(name: str) -> bool:
    """Returns whether an OS call of that name lets its thread sleep until something happens."""
    return _WAIT.match(name) is not None
