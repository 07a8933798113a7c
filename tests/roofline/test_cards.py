"""The bandwidth of a card: recorded where that can be, else its data sheet's."""

from __future__ import annotations

import pytest

from nsysdoctor.roofline.cards import memory_bandwidth_of, published_bandwidth

GB = 10**9


@pytest.mark.parametrize(
    ("name", "recorded", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", 2039 * GB + 40_000_000, 2039 * GB + 40_000_000),
        ("NVIDIA GH200 120GB", 4022_784_000_000, 4022_784_000_000),
        ("NVIDIA B200", 7672 * GB, 7672 * GB),
        ("NVIDIA GB10", 546 * GB, 273 * GB),
        ("NVIDIA Thor", 0xF0000000 * 1000, 273 * GB),
        ("NVIDIA H200", 0, 4800 * GB),
        ("Some Later Card", 0xF0000000 * 1000, 0),
        ("Some Later Card", 9000 * GB, 9000 * GB),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", 576 * GB, 576 * GB),
        ("NVIDIA GeForce RTX 3070 Ti Laptop GPU", 448 * GB, 448 * GB),
    ],
)
def test_a_bandwidth_that_can_be(name: str, recorded: int, expected: int) -> None:
    assert memory_bandwidth_of(name, recorded) == expected


def test_names_are_told_apart() -> None:
    assert published_bandwidth("NVIDIA A100-SXM4-40GB") == 1555 * GB
    assert published_bandwidth("NVIDIA A10") == 600 * GB
    assert published_bandwidth("NVIDIA H100 80GB HBM3") == 3350 * GB
    assert published_bandwidth("NVIDIA L4") == 300 * GB
    assert published_bandwidth("GPU 0") == 0
