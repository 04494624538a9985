"""Run folders of jobs: create, resume and read them; they never hold passwords."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from evenhand.data.tables.addresses import Address
from evenhand.data.tables.redaction import shown_file
from evenhand.errors import DataError, JobError, RunError
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.parsing import read_toml
from evenhand.jobs.schema import to_constraint
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.printing import quoted
from evenhand.runtime import run_location
from evenhand.runtime.folder import RunFolder

File = TypeVar("File", bound=BaseModel)
Run = TypeVar("Run")


@dataclass(frozen=True, eq=False)
class FinishedRun(Generic[Run]):
    """A run and its folder; `result` is the content of `result.json`."""

    run: Run
    folder: RunFolder
    result: dict[str, Any]


def run_folder(job: BaseModel, base: Path, out: Path, resume: bool) -> AbstractContextManager[RunFolder]:
    """Return the folder of a new or resumed run."""
    return run_location.record_in(out, _kept(job), base, resume)


def has_finished(job: BaseModel, out: Path) -> bool:
    """Return whether `out` holds a complete, finished run of this job; raise an error for another job's run."""
    return run_location.has_finished(out, _kept(job))


def own_job(folder: RunFolder, file: type[File], parse: Callable[[dict[str, Any], str], File], **changes: Any) -> File:
    """Return the job from a run folder, without some keys."""
    kept = {key: value for key, value in folder.description.items() if key in file.model_fields}
    content = kept | changes
    try:
        return parse(content, str(folder.path / "run.toml"))
    except JobError as error:
        raise RunError(f"the run folder does not hold a job: {error}") from error


def _kept(job: BaseModel) -> dict[str, Any]:
    """Return the content of a job file for the run folder, with passwords removed from addresses."""
    return job.model_dump(exclude_unset=True)


def require_password(database: Address | None) -> None:
    """Refuse an address from a run folder if its password was removed."""
    if database is not None and database.lacks_password:
        raise DataError(
            "run folders do not store database passwords; name the new rows with a job file (--job) or a table "
            "(--table), or write the password as ${NAME} in the job file before training"
        )


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
        raise JobError(f'{path}: [[client]] needs split = "horizontal" in [job]')
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
