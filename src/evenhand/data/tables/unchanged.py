"""Detect tables that change during a run.

For a file the bytes are compared, for a database the result of the query, in any order. A change that is undone before
the comparison is not noticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd

from evenhand.data.tables.readers import TableSource, is_database, local_file, read_table
from evenhand.errors import DataError, RunError


@dataclass(frozen=True)
class SeenTable:
    """A table's source, and the digest of its content."""

    source: TableSource
    digest: str

    @classmethod
    def of(cls, source: TableSource) -> Self:
        """Take the digest of a table now. Call it before reading, so that no change falls between."""
        return cls(source, _digest(source))


def require_unchanged(tables: Mapping[str, SeenTable]) -> None:
    """Raise an error if a table has changed; the keys name the owners."""
    for owner, seen in tables.items():
        where = f"the table of {owner} ({seen.source.describe()})"
        try:
            same = _digest(seen.source) == seen.digest
        except DataError as error:
            raise RunError(f"{where} cannot be read again to see whether it has changed: {error}") from error
        if not same:
            raise RunError(f"{where} changed while the run was on, so its result is void; train again in a new folder")


def _digest(source: TableSource) -> str:
    if is_database(source):
        return _rows_digest(read_table(replace(source, id=None, columns=None)))
    path = local_file(str(source.table))
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _rows_digest(frame: pd.DataFrame) -> str:
    """Return a digest that does not depend on the order of rows, which a database need not keep."""
    plain = {name: column.map(repr) if column.dtype == object else column for name, column in frame.items()}
    rows = np.sort(pd.util.hash_pandas_object(pd.DataFrame(plain), index=False).to_numpy())
    heading = "\n".join(f"{name}: {column.dtype}" for name, column in frame.items())
    return hashlib.sha256(heading.encode() + rows.tobytes()).hexdigest()
