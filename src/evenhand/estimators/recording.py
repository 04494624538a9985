"""Checkpoints of a `fit`, in a folder that is there for as long as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenhand.runtime.folder import RunFolder
from evenhand.runtime.run_location import record_in


@contextmanager
def recorded_fit(path: str | Path | None, estimator: str) -> Iterator[RunFolder | None]:
    """The folder to keep checkpoints in; it is removed when the fit is done, and stays if it is interrupted."""
    if path is None:
        yield None
        return
    with record_in(Path(path), {"estimator": estimator}, Path.cwd(), resume=True) as folder:
        yield folder
        folder.remove()
