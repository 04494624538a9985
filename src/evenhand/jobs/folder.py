"""The folder of a job's run: begun, gone on with, read again; passwords stay out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from evenhand.data.tables.addresses import redact
from evenhand.errors import DataError, EvenhandError, RunError
from evenhand.runtime.folder import RunFolder, check_free

# An address whose password is named, not written: it may be kept, and serves to score rows later.
_PASSWORD_NAMED: Final = re.compile(r"[^:]*://[^:/?#@]*:\$\{\w+\}@[^@]*")


def check_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that a run cannot be recorded in; worth asking before tables are read."""
    if not (resume and (out / "run.toml").is_file()):
        check_free(out, "resume it, or choose another folder")
        return
    folder = RunFolder.open(out)
    if folder.finished:
        raise RunError(f"the run in {out} has finished; there is nothing to resume")
    begun, present = folder.description.get("evenhand"), version("evenhand")
    if begun != present:
        # A resumed run ends where an uninterrupted one would have, to the last bit; no two versions promise that.
        raise RunError(
            f"the run in {out} was begun by evenhand {begun} and cannot be resumed by {present}; start it anew in "
            "another folder"
        )


@contextmanager
def run_folder(content: dict[str, Any], base: Path, out: Path, resume: bool) -> Iterator[RunFolder]:
    """The folder of a new run, or of one that goes on; `content` is the job file's, without passwords.

    A run that is refused before it has recorded anything leaves nothing behind.
    """
    fresh = not (out / "run.toml").exists()
    folder = _begin(content, base, out, resume)
    try:
        yield folder
    except EvenhandError:
        if fresh and not folder.read_lines("metrics.jsonl"):
            folder.remove()
        raise


def _begin(content: dict[str, Any], base: Path, out: Path, resume: bool) -> RunFolder:
    if not (resume and (out / "run.toml").is_file()):
        return RunFolder.create(out, {"evenhand": version("evenhand"), "base": str(base.resolve()), **content})
    folder = RunFolder.open(out)
    if not folder.describes(content):
        raise RunError(f"the run in {out} was begun with another job file; start a new run in another folder")
    return folder


def job_content(folder: RunFolder, file: type[BaseModel]) -> tuple[dict[str, Any], str]:
    """The job file's content out of a run's folder, and where it stands."""
    content = {key: value for key, value in folder.description.items() if key in file.model_fields}
    return content, str(folder.path / "run.toml")


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
