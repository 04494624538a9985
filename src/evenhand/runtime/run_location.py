"""Choose where a run is recorded: in a free folder, or in that of the same run if no other process writes there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evenhand.errors import EvenhandError, ResourceError, RunError
from evenhand.runtime.files import check_not_held, hold
from evenhand.runtime.folder import RunFolder, check_free, is_run


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
