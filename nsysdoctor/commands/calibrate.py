"""`nsysdoctor calibrate`: measure what a GPU can do and write it down."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nsysdoctor.roofline.profile import DeviceProfile, Spread


def calibrate(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write the profile.")
    ] = Path("device.json"),
    device: Annotated[int, typer.Option(help="Number of the GPU.", min=0)] = 0,
    force: Annotated[bool, typer.Option(help="Overwrite files of other programs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")] = False,
) -> None:
    """Measure this machine's roofs and copy rates with torch, for `report --device-profile`."""
    from nsysdoctor.commands.outputs import check_target, write_whole
    from nsysdoctor.torch.measure import measure, usable_torch

    usable_torch(device)
    check_target(output, [], force)

    def say(part: str) -> None:
        if not quiet:
            print(f"measuring {part}", file=sys.stderr)

    found = measure(device, say)
    write_whole(output, found.to_json(), force)
    for line in lines(found):
        print(line)
    if not quiet:
        print(f"wrote {output}", file=sys.stderr)


def lines(profile: DeviceProfile) -> list[str]:
    """Returns what was measured, a line each: name, median and spread."""
    from nsysdoctor.units import bytes_text, flops_text, ns_text, rate_text

    def row(name: str, figure: Spread, text: str) -> str:
        wide = (figure.high - figure.low) / figure.median / 2
        return f"{name:<38}{text:>14}  +- {wide:.1%}"

    copy, triad = profile.copy_bytes_per_s, profile.triad_bytes_per_s
    found = [
        f"{profile.name}, {profile.sm_count} SMs, compute capability "
        f"{profile.compute_major}.{profile.compute_minor}",
        row("memory, copy", copy, rate_text(copy.median)),
        row("memory, triad", triad, rate_text(triad.median)),
    ]
    for kind, rate in profile.gemm_flops_per_s.items():
        found.append(row(f"matrix product, {kind}", rate, flops_text(rate.median)))
    for one in profile.transfers:
        name = f"{one.direction}, {one.memory}, {bytes_text(one.bytes)}"
        found.append(row(name, one.rate, rate_text(one.rate.median)))
    found.append(row("launch, host", profile.launch_ns, ns_text(round(profile.launch_ns.median))))
    node = profile.graph_node_ns
    found.append(row("kernel of a graph, device", node, ns_text(round(node.median))))
    for kind, took in profile.fusion_ns.items():
        name = f"residual + norm + dropout, {kind.replace('_', ' ')}"
        found.append(row(name, took, ns_text(round(took.median))))
    return found
