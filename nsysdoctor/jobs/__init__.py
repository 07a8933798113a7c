"""Analyses many traces in one call: each on its own, then all together from small summaries.

Traces are read in this process, in several processes, or on a dask cluster.
"""

from __future__ import annotations

from nsysdoctor.jobs.job import Answer, JobOptions, diagnose_job

__all__ = ["Answer", "JobOptions", "diagnose_job"]
