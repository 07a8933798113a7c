"""Which rank and host a trace comes from, by its own records; the file name is never used."""

from __future__ import annotations

import re
from typing import NamedTuple

from nsysdoctor.arrays.numbers import bounded
from nsysdoctor.ingest.reader import Export

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*$")
_MPI_RANK = re.compile(r"MPI Rank (\d+)$")
# Of the captured environment only these numbers are read, and nothing else of it is kept.
_RANK_VARIABLES = (
    *("RANK", "WORLD_RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"),
    *("PMIX_RANK", "PMI_RANK", "PALS_RANKID", "JSM_NAMESPACE_RANK", "LSF_PM_TASKID"),
    *("FLUX_TASK_RANK", "ALPS_APP_PE", "SLURM_PROCID"),
)
"""Most telling first: a launcher of processes counts them within one that counts nodes."""

_NUMBER = re.compile(r"\s*([\"']?)(\d{1,9})\1\s*$")
_THREAD_NAME = 39
_LARGEST_RANK = 10**9


class Identity(NamedTuple):
    """The global rank and the host of a trace, None where it does not say."""

    rank: int | None
    host: str | None


def identity_of(export: Export) -> Identity:
    """Returns the rank and host that an export records."""
    return Identity(_rank(export), _host(export))


def _rank(export: Export) -> int | None:
    if "rank" in export.tables.get("MPI_RANKS", ()):
        rows = export.query("SELECT DISTINCT rank FROM MPI_RANKS LIMIT 99")
        ranks = {bounded(str(rank), _LARGEST_RANK) for (rank,) in rows}
        return ranks.pop() if len(ranks) == 1 else None
    named = _named_rank(export)
    return named if named is not None else _set_rank(export)


def _named_rank(export: Export) -> int | None:
    """nsys 2022 names threads "MPI Rank N" in NVTX_EVENTS."""
    columns = export.tables.get("NVTX_EVENTS", ())
    if not {"eventType", "text", "textId"} <= set(columns) or "StringIds" not in export.tables:
        return None
    rows = export.query(
        "SELECT coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s "
        f"ON s.id = n.textId WHERE n.eventType = {_THREAD_NAME}"
    )
    found = {m.group(1) for (text,) in rows if (m := _MPI_RANK.match(str(text)))}
    return bounded(found.pop(), _LARGEST_RANK) if len(found) == 1 else None


def _set_rank(export: Export) -> int | None:
    if not {"name", "value"} <= set(export.tables.get("META_DATA_CAPTURE", ())):
        return None
    for variable in _RANK_VARIABLES:
        # An underscore stands for any character in LIKE.
        rows = export.query(
            "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE' "
            f"AND substr(value, 1, {len(variable) + 1}) = '{variable}='"
        )
        told = (_NUMBER.match(str(value).partition("=")[2]) for (value,) in rows)
        found = {bounded(number.group(2), _LARGEST_RANK) for number in told if number}
        if len(found) == 1:
            return found.pop()
    return None


def _host(export: Export) -> str | None:
    if not {"name", "value"} <= set(export.tables.get("TARGET_INFO_SYSTEM_ENV", ())):
        return None
    rows = export.query("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'")
    names = {str(value) for (value,) in rows}
    name = names.pop() if len(names) == 1 else ""
    return name if _HOST.match(name) else None
