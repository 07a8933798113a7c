"""Copies between devices that the driver takes down to the host and up again."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.tables.loop.loop_copies import link_bytes_per_s
from nsysdoctor.trace.recipe import table

_NVLINK_BYTES_PER_S = ((9, 350e9), (8, 230e9), (7, 45e9), (6, 35e9))
"""What a pair of GPUs of an NVLink machine reaches, by compute capability: on switched machines all
links of a GPU, before that the two that join a pair."""

_NVLINK = re.compile(r"SXM|HGX|DGX|GH200|GB200|B200|B300", re.IGNORECASE)
_NO_PEERS = re.compile(r"GeForce RTX (?:40|50)|GeForce GTX 16|Laptop", re.IGNORECASE)
"""Cards whose driver offers no peer access: there only fewer bytes help."""

_LEAST_NS = 1_000


@table
def staged(
    copies: pd.DataFrame, loop_copies: np.ndarray, staged_peers: np.ndarray, devices: pd.DataFrame
) -> pd.DataFrame:
    """Returns the pieces of staged copies of the steps.

    Columns as in `copies`, and `source` and `target` (devices, -1 where the call shows one end
    only), `rate`, `slow_rate`, `fast_rate` (of a direct copy, bytes/s; 0: not possible).
    """
    found = copies[staged_peers & loop_copies].copy()
    down = found["direction"] == "DtoH"
    for name, there in (("source", down), ("target", ~down)):
        ends = found["device"].where(there).groupby(found["api"]).transform("max")
        found[name] = ends.fillna(-1).astype("int64")
    peers = copies[copies["direction"] == "PtoP"]
    rates = _direct_rates(devices, peers)
    return found.merge(rates, "left", "device").sort_values("op", ignore_index=True)


def _direct_rates(devices: pd.DataFrame, peers: pd.DataFrame) -> pd.DataFrame:
    """What a direct copy reaches from or to each device: device, rate, slow_rate, fast_rate.

    Over PCIe a direct copy crosses the link once; where the GPUs may have NVLink the range runs
    from one to the other. Direct copies of this trace tell it better.
    """
    rows = []
    for card in devices.to_dict("records"):
        device, name, major = int(card["device"]), str(card["name"]), int(card["compute_major"])
        link = link_bytes_per_s(major)
        wide = next((rate for least, rate in _NVLINK_BYTES_PER_S if major >= least), link)
        seen = peers.loc[peers["bytes"] >= 1 << 20, "rate_bytes_per_s"]
        if len(seen) >= 3:
            rates = tuple(np.percentile(seen, (50, 25, 75)))
        elif _NO_PEERS.search(name):
            rates = (0.0, 0.0, 0.0)
        elif _NVLINK.search(name):
            rates = (wide, link, wide * 1.2)
        else:
            rates = (link, link * 0.6, max(link, wide))
        rows.append((device, *rates))
    return pd.DataFrame(rows, columns=["device", "rate", "slow_rate", "fast_rate"])


@table
def peer_copy_staged(staged: pd.DataFrame) -> pd.DataFrame:
    """Returns a row for all copies between devices that are staged: subject, device (of the first
    target), count (of calls), piece_count, bytes, rate_bytes_per_s, work_ns (of the pieces),
    pairs (words), level, variant."""
    if not len(staged):
        return pd.DataFrame()
    calls = staged.groupby("api", sort=True)
    length = int((calls["end_ns"].max() - calls["start_ns"].min()).sum())
    by_way = staged.groupby(["api", "direction"], sort=True)["bytes"].sum()
    size = int(by_way.groupby("api").max().sum())
    pairs = staged[["source", "target"]].drop_duplicates().sort_values(["source", "target"])
    told = [f"GPU {s} to {t}" for s, t in pairs.itertuples(index=False) if min(s, t) >= 0]
    possible = bool((staged["rate"] > 0).any())
    return pd.DataFrame(
        [
            {
                "subject": "between GPUs" if len(told) != 1 else told[0],
                "device": -1,
                "count": len(calls),
                "piece_count": len(staged),
                "bytes": size,
                "rate_bytes_per_s": size * 1e9 / max(length, 1),
                "work_ns": int((staged["end_ns"] - staged["start_ns"]).sum()),
                "pairs": ", ".join(told[:4]) or "between GPUs",
                "level": "" if possible else "info",
                "variant": "possible" if possible else "no_peers",
                "basis": "inferred",
            }
        ]
    )


def cure(peer_copy_staged: pd.DataFrame, staged: pd.DataFrame) -> list[pd.DataFrame]:
    """One direct copy: the bytes leave at its rate and nothing is left to take up."""
    staged = staged[staged["rate"] > 0]
    took = (staged["end_ns"] - staged["start_ns"]).to_numpy()
    down = (staged["direction"] == "DtoH").to_numpy()
    # A call of which only the way up is known moves its bytes there.
    alone = (staged["source"] < 0).to_numpy()
    moves = down | alone

    def direct(column: str) -> np.ndarray:
        moved = np.where(moves, staged["bytes"].to_numpy() * 1e9 / staged[column].to_numpy(), 0)
        return np.asarray(np.minimum(took, moved + _LEAST_NS), dtype=np.int64)

    return [
        edits(
            Change.OP_NS, np.zeros(len(staged), dtype=np.int64), staged["op"].to_numpy(),
            direct("rate"), slow_ns=direct("slow_rate"), fast_ns=direct("fast_rate"),
        )
    ]  # fmt: skip


def evidence(peer_copy_staged: pd.DataFrame, staged: pd.DataFrame) -> pd.DataFrame:
    """Returns the staged copies, one per call: row, start_ns, end_ns, what."""
    found = staged.groupby("api", sort=True).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), pieces=("op", "size"),
        source=("source", "max"), target=("target", "max"),
    )  # fmt: skip
    what = [f"GPU {s} to GPU {t} in {n} pieces by way of the host" for s, t, n in
            zip(found["source"], found["target"], found["pieces"], strict=True)]  # fmt: skip
    return found.assign(row=0, what=what)[["row", "start_ns", "end_ns", "what"]].reset_index(
        drop=True
    )
