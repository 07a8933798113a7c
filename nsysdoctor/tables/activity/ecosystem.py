"""What kind of program the trace shows, so that cures speak its language."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import pandas as pd

from nsysdoctor.ingest.cut import Capture
from nsysdoctor.trace.recipe import table

OTHERWISE = "cuda"


class Signs(NamedTuple):
    """What tells one ecosystem: patterns for names of kernels and texts of ranges, or none."""

    ecosystem: str
    kernels: str | None
    ranges: str | None


@cache
def ecosystem_signs() -> tuple[Signs, ...]:
    """Returns the signs of all ecosystems, the ones that decide first in front."""
    import yaml

    text = files("nsysdoctor.tables.activity").joinpath("ecosystems.yaml").read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(text, Loader=loader)
    return tuple(Signs(e["ecosystem"], e.get("kernels"), e.get("ranges")) for e in entries)


def ecosystem_of(kernels: pd.Series[str], ranges: pd.Series[str]) -> str:
    """Returns the ecosystem that names of kernels and texts of ranges show, `cuda` for none."""
    for signs in ecosystem_signs():
        for pattern, texts in ((signs.kernels, kernels), (signs.ranges, ranges)):
            if pattern is not None and texts.str.contains(pattern, regex=True).any():
                return signs.ecosystem
    return OTHERWISE


@table
def ecosystem(
    names: pd.DataFrame,
    capture: Capture | None,
    strings: pd.Series[str],
    range_names: pd.DataFrame | None = None,
) -> str:
    """Returns the ecosystem (see ecosystems.yaml), told from kernel and range names; from the
    kernels of the whole capture, since a part of a program may look like another."""
    full = names.loc[names["kind"] == 0, "full"].astype(str)
    if capture is not None:
        ids = capture.kernels["full_id"].unique()
        full = pd.concat([full, strings.reindex(ids).fillna("").astype(str)])
    texts = range_names["text"].astype(str) if range_names is not None else full.iloc[:0]
    return ecosystem_of(full, texts)
