"""A job as it would be with another bound, or with none."""

from __future__ import annotations

from evenhand.errors import JobError
from evenhand.jobs.file import JobFile
from evenhand.jobs.schema import to_constraint


def with_epsilon(job: JobFile, epsilon: float | None) -> JobFile:
    """The job with this ε in each of its constraints that has one; None is without any constraint."""
    varied = [one for one in job.job.constraint if "limit" not in one]
    if not varied:
        raise JobError("the job has no constraint with an epsilon that could be varied; add one to [job]")
    constraint = (
        []
        if epsilon is None
        else [one if one not in varied else one | {"epsilon": epsilon} for one in job.job.constraint]
    )
    for one in constraint:
        to_constraint(one)
    return job.model_copy(update={"job": job.job.model_copy(update={"constraint": constraint})})
