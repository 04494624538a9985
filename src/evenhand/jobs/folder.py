"""Run folders of jobs: create, resume and read them; they never hold passwords."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from evenhand.constraints.kinds import moved
from evenhand.data.tables.addresses import Address, shown_file
from evenhand.errors import DataError, EvenhandError, JobError, ResourceError, RunError
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.parsing import read_toml
from evenhand.jobs.schema import to_constraint
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical
from evenhand.printing import quoted
from evenhand.runtime.files import check_not_held, hold
from evenhand.runtime.folder import RunFolder, check_free, is_run

File = TypeVar("File", bound=BaseModel)
Run = TypeVar("Run")


@dataclass(frozen=True, eq=False)
class FinishedRun(Generic[Run]):
    """A run and its folder; `result` is the content of `result.json`."""

    run: Run
    folder: RunFolder
    result: dict[str, Any]


def own_job(folder: RunFolder, file: type[File], parse: Callable[[dict[str, Any], str], File], **changes: Any) -> File:
    """Return the job from a run folder, without some keys."""
    kept = {key: value for key, value in folder.description.items() if key in file.model_fields}
    content = kept | changes
    try:
        return parse(content, str(folder.path / "run.toml"))
    except JobError as error:
        raise RunError(f"the run folder does not hold a job: {error}") from error


def job_content(job: BaseModel) -> dict[str, Any]:
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


def with_epsilon(job: JobFile, epsilon: float | None, vary: str | None = None) -> JobFile:
    """Return the job with this ε in one constraint; None removes that constraint. All others stay as they are.

    Parameters
    ----------
    vary
        Kind of the constraint; None takes the first that has an ε.
    """
    given = list(job.job.constraint)
    place = moved([to_constraint(one) for one in given], vary)
    if place is None:
        raise JobError("the job has no constraint with an epsilon that could be varied; add one to [job]")
    given[place : place + 1] = [] if epsilon is None else [given[place] | {"epsilon": epsilon}]
    for one in given:
        to_constraint(one)
    return job.model_copy(update={"job": job.job.model_copy(update={"constraint": given})})


def check_place(path: Path, resume: bool) -> None:
    """Refuse a folder in which a run cannot be recorded; call it before reading tables."""
    check_not_held(path)
    _check_content(path, resume)


def has_finished(path: Path, content: Mapping[str, Any]) -> bool:
    """Return whether the folder holds this job's finished, complete run. Remove leftovers of killed runs."""
    if not is_run(path):
        return False
    folder = RunFolder.open(path)
    if not folder.finished:
        return False
    _check_same(folder, content)
    folder.check()
    folder.clean()
    return True


@contextlib.contextmanager
def record_in(path: Path, content: Mapping[str, Any], base: Path, resume: bool) -> Iterator[RunFolder]:
    """Lock the folder of a new or resumed run, so that no other process writes to it.

    A run that is refused before it records anything leaves no files.

    Parameters
    ----------
    content
        The job file's content. A resumed run must have started with the same.
    base
        Folder that relative paths in it start from.
    """
    check_place(path, resume)
    with _without_new_parents(path), hold(path):
        # Check again: another process may have written before the lock was taken.
        _check_content(path, resume)
        folder, fresh = RunFolder(path), not is_run(path)
        try:
            with _memory_told(path):
                if fresh:
                    folder = RunFolder.create(path, {"base": str(base.resolve()), **content})
                else:
                    _check_same(folder, content)
                    folder.clean()
                yield folder
        except EvenhandError:
            if fresh and not folder.recorded:
                folder.remove()
            raise


def _check_content(path: Path, resume: bool) -> None:
    if not (resume and is_run(path)):
        check_free(path, "resume it (--resume), or choose another folder")
        return
    folder = RunFolder.open(path)
    if folder.finished:
        raise RunError(f"the run in {path} has finished; there is nothing to resume")
    check_version(folder)


def check_version(folder: RunFolder) -> None:
    """Refuse to resume a run of another version."""
    if folder.version != (present := version("evenhand")):
        # A resumed run gives bit for bit the result of an uninterrupted one. Two versions may differ.
        raise RunError(
            f"the run in {folder.path} was started with evenhand {folder.version} and cannot be resumed with "
            f"{present}; "
            "start a new run in another folder"
        )


def _check_same(folder: RunFolder, content: Mapping[str, Any]) -> None:
    if not folder.describes(content):
        raise RunError(f"the run in {folder.path} was started with another job file; start a new run in another folder")


@contextlib.contextmanager
def _without_new_parents(path: Path) -> Iterator[None]:
    """Remove parent folders that were made for a run that left no files."""
    made = [parent for parent in path.absolute().parents if not parent.exists()]
    try:
        yield
    except EvenhandError:
        if not path.exists():
            with contextlib.suppress(OSError):
                for parent in made:
                    parent.rmdir()
        raise


@contextlib.contextmanager
def _memory_told(path: Path) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise ResourceError(
            f"there is too little memory to train ({error or 'no details'}); resume the run in {path} with --resume on "
            "a machine with more memory"
        ) from error
