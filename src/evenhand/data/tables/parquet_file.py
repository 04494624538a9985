"""Tables in Parquet files, whole or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenhand.data.tables.raw import brief, require_distinct
from evenhand.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Rows decoded at a time; a row group that is larger is taken in pieces.
_BATCH: Final = 1 << 15
# Bytes of a column that are read at a time.
_BUFFER: Final = 1 << 18


class ParquetTable:
    """A Parquet file of which only the schema has been read.

    Categories are read as their values, and metadata that pandas leaves in a file are ignored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            self.names: list[str] = file.schema_arrow.names
            self._types = dict(zip(self.names, file.schema_arrow.types, strict=True))
            self._rows: int = file.metadata.num_rows
        if self._rows == 0:
            raise DataError(f"{path} gives no rows")
        require_distinct(self.names, str(path))

    def of_text(self, columns: Sequence[str]) -> list[str]:
        """Return those of the columns that hold text."""
        import pyarrow as pa

        return [
            name
            for name in columns
            if pa.types.is_string(self._types[name]) or pa.types.is_large_string(self._types[name])
        ]

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read some columns of all rows."""
        with self._open() as file:
            table = _plain(file.read(columns=list(columns))).select(columns)
        self._require_all(table.num_rows)
        return table

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns, some thousand rows at a time."""
        import pyarrow as pa

        rows = 0
        with self._open() as file:
            for batch in file.iter_batches(batch_size=_BATCH, columns=list(columns), use_threads=False):
                rows += batch.num_rows
                yield _plain(pa.Table.from_batches([batch])).select(columns)
        self._require_all(rows)

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Buffering ahead or reading at once would hold whole row groups of all columns.
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_BUFFER) as file:
                yield file
            # The caller has the decoded rows now; Arrow would keep the memory for the next table.
            pa.default_memory_pool().release_unused()
        except (pa.ArrowException, OSError, UnicodeError, MemoryError) as error:
            raise DataError(
                f"cannot read {self.path}: {brief(error)}\n"
                "if it is damaged, write it again; otherwise save it in a plainer form, such as CSV"
            ) from error

    def _require_all(self, rows: int) -> None:
        if rows != self._rows:
            raise DataError(
                f"{self.path} says that it has {self._rows:,} rows and gives {rows:,}\nit is damaged: write it again"
            )


def _plain(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    for k, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table.column(k).validate(full=True)
            table = table.set_column(k, column.name, table.column(k).cast(column.type.value_type))
    return table.replace_schema_metadata(None)
