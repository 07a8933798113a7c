"""Graphics cards with the figures that an export states for them, and their copy rates."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU model. Rates in bytes per second, clock in Hz, sizes in bytes."""

    name: str
    chip: str
    memory_bytes: int
    bandwidth: int
    clock: int
    sm_count: int
    l2_bytes: int
    compute: tuple[int, int]
    sm: tuple[int, int]
    copy_engines: int
    shared_block: int
    shared_sm: int
    warps_sm: int
    blocks_sm: int
    pinned_htod: int
    pinned_dtoh: int
    pageable_htod: int
    pageable_dtoh: int
    max_ipc: int = 4

    def pci(self, index: int) -> str:
        """A bus location for the n-th card of a machine."""
        return f"0000:{0x17 + 0x2C * index:02x}:00.0"


A100_80GB = Card(
    name="NVIDIA A100-SXM4-80GB",
    chip="GA100",
    memory_bytes=84_990_623_744,
    bandwidth=2_039_040_000_000,
    clock=1_410_000_000,
    sm_count=108,
    l2_bytes=41_943_040,
    compute=(8, 0),
    sm=(8, 2),
    copy_engines=5,
    shared_block=166_912,
    shared_sm=167_936,
    warps_sm=64,
    blocks_sm=32,
    pinned_htod=24_600_000_000,
    pinned_dtoh=22_900_000_000,
    pageable_htod=6_900_000_000,
    pageable_dtoh=5_200_000_000,
)

H100_80GB = Card(
    name="NVIDIA H100 80GB HBM3",
    chip="GH100",
    memory_bytes=84_929_347_584,
    bandwidth=3_352_320_000_000,
    clock=1_980_000_000,
    sm_count=132,
    l2_bytes=52_428_800,
    compute=(9, 0),
    sm=(9, 0),
    copy_engines=3,
    shared_block=232_448,
    shared_sm=233_472,
    warps_sm=64,
    blocks_sm=32,
    pinned_htod=52_000_000_000,
    pinned_dtoh=50_500_000_000,
    pageable_htod=9_800_000_000,
    pageable_dtoh=7_400_000_000,
    max_ipc=0,
)

V100_16GB = Card(
    name="Tesla V100-SXM2-16GB",
    chip="GV100",
    memory_bytes=16_945_512_448,
    bandwidth=898_048_000_000,
    clock=1_530_000_000,
    sm_count=80,
    l2_bytes=6_291_456,
    compute=(7, 0),
    sm=(7, 0),
    copy_engines=5,
    shared_block=98_304,
    shared_sm=98_304,
    warps_sm=64,
    blocks_sm=32,
    pinned_htod=12_100_000_000,
    pinned_dtoh=12_800_000_000,
    pageable_htod=5_400_000_000,
    pageable_dtoh=4_100_000_000,
)

RTX_3070_TI = Card(
    name="NVIDIA GeForce RTX 3070 Ti",
    chip="GA104",
    memory_bytes=8_589_410_304,
    bandwidth=608_064_000_000,
    clock=1_860_000_000,
    sm_count=48,
    l2_bytes=4_194_304,
    compute=(8, 6),
    sm=(8, 6),
    copy_engines=2,
    shared_block=101_376,
    shared_sm=102_400,
    warps_sm=48,
    blocks_sm=16,
    pinned_htod=12_300_000_000,
    pinned_dtoh=12_600_000_000,
    pageable_htod=6_100_000_000,
    pageable_dtoh=4_800_000_000,
)

A100_40GB = replace(
    A100_80GB,
    name="NVIDIA A100-SXM4-40GB",
    memory_bytes=42_297_524_224,
    bandwidth=1_555_200_000_000,
)
