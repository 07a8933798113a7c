"""Matrix products and convolutions in FP32 on units that have faster neighbours."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsysdoctor.arrays.codes import labels
from nsysdoctor.errors import MissingTableError
from nsysdoctor.replay.edits import Change, edits
from nsysdoctor.roofline.peaks import DevicePeaks, has_tensor_dtype
from nsysdoctor.tables.kernels.kernel_columns import Kernels
from nsysdoctor.trace.recipe import table

_USUAL, _LEAST, _MOST = 0.65, 0.25, 0.8
"""Shares of the ratio of peaks that products gain when they move to tensor cores: small, narrow
or batched ones gain least, and ordinary units run nearer to their own peak."""
_WORTH = 1.25
_FLOOR_NS = 3_000


@table
def gains(devices: pd.DataFrame, peaks: dict[int, DevicePeaks]) -> pd.DataFrame:
    """Returns device, to (type), middle, least, most: how much faster products run there.

    Only devices whose tensor cores work on TF32 or BF16.
    """
    if not (devices["compute_major"] > 0).any():
        raise MissingTableError(
            "the export does not tell the compute capability of its GPUs",
            "export with a newer nsys",
        )
    rows = []
    for card in devices.to_dict("records"):
        capability = int(card["compute_major"]), int(card["compute_minor"])
        name, roof = str(card["name"]), peaks[int(card["device"])]
        single = roof.flops_per_s("fp32", "simt")
        ratios = {
            kind: (roof.flops_per_s(kind, "tensor") or 0.0) / single if single else 0.0
            for kind in ("tf32", "bf16")
            if has_tensor_dtype(*capability, kind, name)
        }
        if ratios:
            rows.append({"device": int(card["device"]), **_gain(ratios)})
    return pd.DataFrame(rows, columns=["device", "to", "middle", "least", "most"])


def _gain(ratios: dict[str, float]) -> dict[str, object]:
    """TF32 where it is worth it, since it needs no other storage; else BF16."""
    tf32, bf16 = ratios.get("tf32", 0.0), ratios.get("bf16", 0.0)
    chosen = "tf32" if _USUAL * tf32 >= _WORTH or not bf16 else "bf16"
    middle = max(_USUAL * ratios[chosen], 1.0)
    return {
        "to": chosen.upper(),
        "middle": middle,
        "least": min(max(_LEAST * max(tf32, bf16 / 2), 1.0), middle),
        "most": max(_MOST * max(tf32, bf16), middle),
    }


@table
def products(
    kernels: Kernels, gains: pd.DataFrame, kernels_inside: np.ndarray, inside_ns: pd.Series[int]
) -> pd.DataFrame:
    """Returns the FP32 products and convolutions on ordinary units in the window."""
    kinds = kernels.configurations
    wanted = kinds["category"].isin(["gemm", "conv"]) & (kinds["dtype"] == "fp32")
    wanted &= kinds["math"] == "simt"
    mine = kernels.at(kernels.spread(wanted) & kernels_inside)
    found = mine.frame("op", "device", "name", "start_ns", "end_ns", "duration_ns")
    found = found.merge(gains, "inner", "device")
    return found.assign(whole_ns=found["device"].map(inside_ns))


@table
def fp32_gemm(products: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per device: subject, device, count, work_ns, share_ratio, example_kernel,
    to, basis."""
    return pd.DataFrame(
        [_row(mine, names) for _, mine in products.groupby("device", sort=True)]
    )


def _row(mine: pd.DataFrame, names: pd.DataFrame) -> dict[str, object]:
    device, work = int(mine["device"].iloc[0]), int(mine["duration_ns"].sum())
    by_name = mine.groupby("name", sort=True)["duration_ns"].sum()
    return {
        "subject": f"FP32 products on GPU {device}",
        "device": device,
        "count": len(mine),
        "work_ns": work,
        "share_ratio": work / max(int(mine["whole_ns"].iloc[0]), 1),
        "kernel": " ".join(str(names["short"].iloc[int(by_name.idxmax())]).split())[:80],
        "to": str(mine["to"].iloc[0]),
        "basis": "inferred",
    }


def cure(fp32_gemm: pd.DataFrame, products: pd.DataFrame) -> pd.DataFrame:
    """The same products on tensor cores."""
    length = products["duration_ns"].to_numpy()
    floor = np.minimum(length, _FLOOR_NS)

    def at(column: str) -> np.ndarray:
        return np.maximum(length / products[column].to_numpy(dtype=np.float64), floor)

    return edits(
        Change.OP_NS, np.unique(products["device"], return_inverse=True)[1], products["op"],
        at("middle"), slow_ns=at("least"), fast_ns=at("most"),
    )  # fmt: skip


def evidence(
    fp32_gemm: pd.DataFrame, products: pd.DataFrame, names: pd.DataFrame
) -> pd.DataFrame:
    """Returns the products: row, start_ns, end_ns, what."""
    return pd.DataFrame(
        {
            "row": np.unique(products["device"], return_inverse=True)[1],
            "start_ns": products["start_ns"].to_numpy(),
            "end_ns": products["end_ns"].to_numpy(),
            "what": labels(names["short"], products["name"].to_numpy()),
        }
    )
