"""Many traces in one call: map over them, reduce over small summaries.

Traces are read here, in processes, or on a dask cluster.
"""

from __future__ import annotations

from nsysdoctor.jobs.job import Answer, JobOptions, diagnose_job

__all__ = ["Answer", "JobOptions", "diagnose_job"]
