"""What numbers in an export mean, for whoever reads them and whoever makes tables of them."""

from __future__ import annotations

UNIFIED_MEMORY = (11, 12, 13)
"""copyKind of page migrations: they carry no device, stream or correlation of their own."""

FAR_NS = 1 << 62
"""A time as far from 0 as this is none."""

PROCESS_MASK = ~0xFFFFFF
"""globalTid & PROCESS_MASK = globalPid: the thread id fills the low 24 bits."""
