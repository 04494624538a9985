"""The folder of a job's run: begun, gone on with, read again; passwords stay out of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from evenhand.data.tables.addresses import redact
from evenhand.errors import DataError, JobError, RunError
from evenhand.runtime import places
from evenhand.runtime.folder import RunFolder

JobFile = TypeVar("JobFile", bound=BaseModel)

# An address whose password is named, not written: it may be kept, and serves to score rows later.
_PASSWORD_NAMED: Final = re.compile(r"[^:]*://[^:/?#@]*:\$\{\w+\}@[^@]*")


def run_folder(job: BaseModel, base: Path, out: Path, resume: bool) -> AbstractContextManager[RunFolder]:
    """The folder of a job's new run, or of one that goes on."""
    return places.record_in(out, _kept(job), base, resume)


def has_finished(job: BaseModel, out: Path) -> bool:
    """Whether `out` holds the run of this job, finished and whole; the run of another job is an error."""
    return places.has_finished(out, _kept(job))


def own_job(folder: RunFolder, file: type[JobFile], parse: Callable[[dict[str, Any], str], JobFile]) -> JobFile:
    """The job that a run's folder keeps."""
    content = {key: value for key, value in folder.description.items() if key in file.model_fields}
    try:
        return parse(content, str(folder.path / "run.toml"))
    except JobError as error:
        raise RunError(f"the run folder does not hold a job: {error}") from error


def _kept(job: BaseModel) -> dict[str, Any]:
    """What a run folder keeps of a job file: all but passwords."""
    content = job.model_dump(exclude_unset=True)
    for section in (*content.get("party", ()), *content.get("client", ()), content.get("server", {})):
        without_password(section)
    return content


def without_password(section: dict[str, Any]) -> None:
    """Take a password that is written out of a section's database address."""
    if "database" in section and not _PASSWORD_NAMED.fullmatch(section["database"]):
        section["database"] = redact(section["database"])


def require_password(database: str | None) -> None:
    """Refuse an address out of a run folder that its password was taken from."""
    if database is not None and redact(database) == database and "***" in database:
        raise DataError(
            "the run folder does not keep the password of its database; say where the new rows are with a job "
            "file (--job) or a table (--table), or write the password as ${NAME} in the job file before training"
        )
