"""Who recorded a trace, and what to tell a user who recorded too little."""

from __future__ import annotations

from dataclasses import dataclass

from nsysdoctor.ingest.source import Source


@dataclass(frozen=True)
class Recorder:
    """A recorder: its name, and how to record GPU work with it."""

    name: str
    record_gpu: str

    def hint(self, source: Source) -> str:
        """Returns what to do to have a source's rows."""
        if self is TORCH:
            flag = f": nsys profile {source.flag}" if source.flag else ""
            return f"torch's profiler does not record it; record with Nsight Systems{flag}"
        return f"record with {source.flag}" if source.flag else "export with a newer nsys"


NSYS = Recorder(
    "nsys", "record with: nsys profile --trace=cuda,nvtx,osrt -o run python train.py"
)
TORCH = Recorder(
    "torch", "record with: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
)
