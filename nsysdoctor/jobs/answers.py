"""What comes back from workers: results, and traces that were lost on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nsysdoctor.errors import (
    EmptyTraceError,
    NsysDoctorError,
    UnreadableTraceError,
    UsageError,
    unexpected,
)

Found = TypeVar("Found")

_LOOK_S, _PATIENCE_S = 2.0, 60.0
"""How often a cluster is looked at while it works, and how long it may be without a worker."""


class Lost(NamedTuple):
    """A trace of a job that could not be analysed, and why."""

    path: Path
    error: NsysDoctorError


def attempt(path: Path, make: Callable[[], Found]) -> Found | Lost:
    """Returns what `make` returns of a trace, or that the trace is lost.

    Raises UsageError and RuleError, which are about what was asked for and not about the trace,
    and BrokenProcessPool.
    """
    try:
        return make()
    except (UnreadableTraceError, EmptyTraceError) as error:
        return Lost(path, error)
    except (NsysDoctorError, BrokenProcessPool):
        raise
    except (Exception, SystemExit) as error:
        told = unexpected(error, f"{path} could not be analysed")
        wrapped = UnreadableTraceError(told.message, told.hint)
        wrapped.__cause__ = error
        return Lost(path, wrapped)


def in_workers(
    executor: Executor,
    work: Callable[..., Found],
    asked: Sequence[tuple[Path, tuple[Any, ...]]],
    done: Callable[[Path], None],
) -> list[Found | Lost]:
    """Returns what workers made of each trace, in order; `asked` holds their arguments after the
    path.

    A worker process that is killed takes all that was waiting with it: those traces are tried
    once more, each in a process of its own, and only one that ends that as well is lost.
    """
    waiting = [_submitted(executor, work, path, *rest) for path, rest in asked]
    found: list[Found | Lost] = []
    for future, (path, rest) in zip(waiting, asked, strict=True):
        answer = _of_worker(executor, future, work, path, rest)
        found.append(answer)
        done(path)
    return found


def _submitted(
    executor: Executor, work: Callable[..., Found], path: Path, *rest: Any
) -> Future[Found] | None:
    """None where the pool broke before it could take the trace."""
    try:
        return executor.submit(work, path, *rest)
    except BrokenProcessPool:
        return None


def _of_worker(
    executor: Executor,
    future: Future[Found] | None,
    work: Callable[..., Found],
    path: Path,
    rest: tuple[Any, ...],
) -> Found | Lost:
    try:
        if future is not None:
            return attempt(path, lambda: _result(executor, future))
    except BrokenProcessPool:
        pass
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        try:
            return attempt(path, alone.submit(work, path, *rest).result)
        except BrokenProcessPool:
            return Lost(path, UnreadableTraceError(
                f"the process that analysed {path} was killed",
                "it may have run out of memory: try fewer --jobs, or a --window",
            ))  # fmt: skip


def _result(executor: Executor, future: Future[Found]) -> Found:
    """Returns a worker's answer; raises UsageError when the cluster is gone that was to give it."""
    client = getattr(executor, "_client", None)
    if client is None:
        return future.result()
    last_seen = time.monotonic()
    while True:
        try:
            return future.result(timeout=_LOOK_S)
        except (NotYetError, CancelledError) as error:
            if isinstance(error, CancelledError) or future.cancelled():
                raise _gone("has dropped the work") from error
        if _has_workers(client):
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen > _PATIENCE_S:
            raise _gone("has had no worker for a minute")


def _has_workers(client: Any) -> bool:
    try:
        return client.status == "running" and bool(client.scheduler_info()["workers"])
    except (OSError, RuntimeError, ValueError, LookupError, AttributeError):
        return False


def _gone(what: str) -> UsageError:
    return UsageError(
        f"the dask cluster {what}", "see the logs of its scheduler and workers, then try again"
    )
