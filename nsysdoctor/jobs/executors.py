"""Where the traces of a job are read: here, in processes, or on a dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from nsysdoctor.errors import UsageError

_PATIENCE_S = 30.0
"""How long a cluster may take to bring its first worker."""


@contextmanager
def executor_for(
    traces: int, jobs: int | None = None, dask: str | None = None
) -> Iterator[Executor | None]:
    """Yields an executor for that many traces, None when this process is enough.

    Raises UsageError when dask is requested and not installed, or no scheduler answers.
    """
    if dask is not None:
        with _cluster(dask) as executor:
            yield executor
        return
    count = min(traces, jobs or os.cpu_count() or 1)
    if count <= 1:
        yield None
        return
    # Processes are started afresh: a forked one inherits locks held by Arrow's threads.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as executor:
        try:
            yield executor
        finally:
            # All answers are had by now, or nobody waits for them any more.
            executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError(
            "--dask needs the package distributed", "pip install 'nsysdoctor[dask]'"
        ) from error
    try:
        client = Client(address, timeout="10s")  # type: ignore[no-untyped-call,unused-ignore]
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(
            f"no dask scheduler answers at {address}", "start one with: dask scheduler"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE_S)  # type: ignore[no-untyped-call,unused-ignore]
        except TimeoutError as error:
            raise UsageError(
                f"the dask cluster at {address} has no worker",
                f"start one with: dask worker {address}",
            ) from error
        yield client.get_executor()  # type: ignore[no-untyped-call,unused-ignore]
