"""Job files of either split."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from evenhand.data.tables.redaction import shown_file
from evenhand.errors import JobError
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.schema import read_toml, to_constraint
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.printing import quoted

JobFile: TypeAlias = VerticalJobFile | HorizontalJobFile


def read_job(path: Path) -> JobFile:
    """Read and check a job file; every problem is a JobError that names file and key."""
    content = read_toml(path)
    section = content.get("job")
    if isinstance(section, dict) and section.get("split") == "horizontal":
        return parse_horizontal(content, str(path))
    if isinstance(section, dict) and section.get("split", "vertical") != "vertical":
        split = section["split"]
        said = quoted(shown_file(split) if isinstance(split, str) else split)
        raise JobError(f"{path}: key job.split is {said}; choose 'vertical' or 'horizontal'")
    if "client" in content:
        raise JobError(f'{path}: [[client]] goes with split = "horizontal" in [job]')
    return parse_vertical(content, str(path))


def with_epsilon(job: JobFile, epsilon: float | None) -> JobFile:
    """Return the job with this ε in each constraint that has an ε; None removes all constraints."""
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
