"""The measured roofs and copy rates of a GPU, kept in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nsysdoctor.errors import UsageError
from nsysdoctor.roofline.peaks import DevicePeaks

FORMAT, VERSION = "nsysdoctor-device", 1

SUSTAINED_RATIO = 0.96
"""A measured rate is what the device sustains; this much of its roof."""

_LARGE_BYTES = 1 << 24
_TENSOR_TYPES = ("tf32", "bf16", "fp16")


@dataclass(frozen=True)
class Spread:
    """One quantity measured several times: median, tenth and ninetieth percentile, count."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Transfer:
    """Rate of copies of one size between host and device, in bytes/s."""

    direction: str
    memory: str
    bytes: int
    rate: Spread


@dataclass(frozen=True)
class DeviceProfile:
    """What `nsysdoctor calibrate` measured on one GPU.

    `copy_bytes_per_s` and `triad_bytes_per_s` count what is read and written;
    `gemm_flops_per_s` maps fp32, tf32, bf16, fp16 to operations/s; `launch_ns` is the host's time
    per launch, `graph_node_ns` the device's time per kernel of a graph; `fusion_ns` maps
    unfused_fp32, unfused_bf16, fused_fp32, fused_bf16 to the time of residual + layer norm +
    dropout, without those that could not be compiled.
    """

    name: str
    compute_major: int
    compute_minor: int
    sm_count: int
    copy_bytes_per_s: Spread
    triad_bytes_per_s: Spread
    gemm_flops_per_s: Mapping[str, Spread]
    transfers: Sequence[Transfer]
    launch_ns: Spread
    graph_node_ns: Spread
    fusion_ns: Mapping[str, Spread]
    torch_version: str = ""
    format: str = FORMAT
    format_version: int = VERSION

    @property
    def memory_bytes_per_s(self) -> float:
        """The higher of the two bandwidths."""
        return max(self.copy_bytes_per_s.median, self.triad_bytes_per_s.median)

    def is_of(self, name: str) -> bool:
        """Returns whether a device of this name is of the measured model."""
        return _plain(name) == _plain(self.name)

    def peaks(self, published: DevicePeaks) -> DevicePeaks:
        """Returns the measured roofs, and the published ones of types that were not measured.

        A roof is what no kernel exceeds, a measured rate what one sustained, hence the margin.
        """
        simt, tensor = dict(published.simt_flops_per_s), dict(published.tensor_flops_per_s)
        for dtype, rate in self.gemm_flops_per_s.items():
            (tensor if dtype in _TENSOR_TYPES else simt)[dtype] = rate.median / SUSTAINED_RATIO
        return replace(
            published,
            memory_bytes_per_s=self.memory_bytes_per_s / SUSTAINED_RATIO,
            sm_count=self.sm_count or published.sm_count,
            simt_flops_per_s=simt,
            tensor_flops_per_s=tensor,
        )

    def pinned_rate(self, direction: str) -> Spread | None:
        """Returns the rate of large pinned copies in a direction (HtoD, DtoH), None where it was
        not measured."""
        known = [
            one
            for one in self.transfers
            if (one.direction, one.memory) == (direction, "pinned") and one.bytes >= _LARGE_BYTES
        ]
        return max(known, key=lambda one: one.bytes).rate if known else None

    def to_json(self) -> str:
        """Returns the profile as a file's text."""
        import json

        head = {"format": self.format, "format_version": self.format_version}
        return json.dumps(head | asdict(self), indent=2) + "\n"


def _plain(name: str) -> str:
    """The name without the maker in front, which only older exports have; nsys and torch agree on
    the rest."""
    return name.removeprefix("NVIDIA ").strip().lower()


def read_profile(path: Path) -> DeviceProfile:
    """Returns the profile in a file; raises UsageError when the file is missing or holds none."""
    hint = "make one with: nsysdoctor calibrate -o device.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}", hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text", hint) from error
    return parse_profile(text, str(path))


def parse_profile(text: str, origin: str = "the profile") -> DeviceProfile:
    """Returns the profile that a text holds; raises UsageError when it holds none."""
    from pydantic import TypeAdapter, ValidationError

    hint = "make one with: nsysdoctor calibrate -o device.json"
    try:
        found = TypeAdapter(DeviceProfile).validate_json(text)
    except ValidationError as error:
        first: Any = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{origin} is no device profile: {place + ': ' if place else ''}{first['msg']}", hint
        ) from error
    if (found.format, found.format_version) != (FORMAT, VERSION):
        raise UsageError(f"{origin} is no device profile of version {VERSION}", hint)
    _check(found, origin)
    return found


def _check(profile: DeviceProfile, origin: str) -> None:
    """Raises UsageError unless every measured figure is a positive number."""
    figures = {
        "copy_bytes_per_s": profile.copy_bytes_per_s,
        "triad_bytes_per_s": profile.triad_bytes_per_s,
        **{f"gemm_flops_per_s.{key}": rate for key, rate in profile.gemm_flops_per_s.items()},
        **{f"transfers.{n}": one.rate for n, one in enumerate(profile.transfers)},
        "launch_ns": profile.launch_ns,
        "graph_node_ns": profile.graph_node_ns,
        **{f"fusion_ns.{key}": took for key, took in profile.fusion_ns.items()},
    }
    for name, figure in figures.items():
        if not 0 < figure.low <= figure.median <= figure.high < float("inf"):
            raise UsageError(
                f"{origin}: {name} is not low <= median <= high, all above zero",
                "measure again with: nsysdoctor calibrate -o device.json",
            )
