"""Read tables in CSV files, without guesses about how they are written.

The delimiter is the first of ``, ; tab |`` that occurs in the header outside of double quotes. Text is UTF-8. Both can
be set otherwise. Double quotes enclose a cell and are doubled within it. An empty cell is a missing value; no word is.
The first record names the columns. Nothing else is special: no comments, no lines to skip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenhand.data.tables.csv_records import BOM, CsvFile, Recoded, count_records, first_skipped, require_sound
from evenhand.data.tables.numerals import Decimal
from evenhand.data.tables.raw import brief
from evenhand.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


# Codes, not numbers: 007, and 0x1F, which Arrow would read as 31.
_CODE: Final = r"^\s*-?0[0-9xX]"


# Numbers with a decimal comma.
_WITH_COMMA: Final = r"^\s*[-+]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?\s*$"


def typed(column: pa.ChunkedArray, *, exact: bool, decimal: Decimal = ".") -> pa.ChunkedArray:
    """Convert a column of text to its type.

    Parameters
    ----------
    column
        Text, with null for empty cells.
    exact
        For ids: convert only whole numbers and dates, and only if writing each gives the same text again. Other ids
        stay text, because 1.5 and 1.50 are two different ids.
    decimal
        The decimal sign.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    first = next((cell.as_py() for cell in column if cell.is_valid), None)
    if first is None:
        return column
    if decimal == "," and not exact:
        if _all_match(column, _WITH_COMMA):
            column = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
            first = first.replace(".", "").replace(",", ".")
        elif not _some_match(column, "[-:]"):
            # Neither numbers nor dates with a decimal comma: 1.5 is not one and a half here.
            return _true_and_false(column, first)
    whole, day = pa.int64(), pa.date32()
    for kind in (whole, pa.float64(), day, pa.timestamp("us"), pa.timestamp("us", "UTC")):
        # Skip a type that the first cell does not allow.
        if _cast(pa.chunked_array([[first.strip()]]), kind) is None:
            continue
        values = _cast(column, kind)
        if values is None and not exact:
            values = _cast(pc.utf8_trim_whitespace(column), kind)
        if values is None:
            continue
        if exact:
            return values if kind in (whole, day) and _rewritten(values).equals(column) else column
        is_code = kind == whole and not _rewritten(values).equals(column) and _some_match(column, _CODE)
        return column if is_code else values
    return column if exact else _true_and_false(column, first)


def _cast(column: pa.ChunkedArray, kind: Any) -> pa.ChunkedArray | None:
    import pyarrow as pa

    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return None


def _rewritten(values: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    return values.cast(pa.string())


def _some_match(column: pa.ChunkedArray, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _all_match(column: pa.ChunkedArray, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(column, pattern)).as_py())


def _true_and_false(column: pa.ChunkedArray, first: str) -> pa.ChunkedArray:
    """Convert text of only true and false to booleans, as other formats have them."""
    import pyarrow.compute as pc

    if first.lower() not in ("true", "false"):
        return column
    words = pc.utf8_lower(column)
    return pc.equal(words, "true") if set(words.unique().to_pylist()) <= {"true", "false", None} else column


_DELIMITERS: Final = (",", ";", "\t", "|")
_QUOTED_CELL: Final = re.compile(rb'(?:^|(?<=[,;\t|\r\n]))"(?:[^"]++|"")*+"')
_HEAD: Final = 1 << 16
_SMALLEST_BLOCK: Final = 1 << 20


def read_csv(
    path: Path, id: str | None = None, *, encoding: str = "utf-8", delimiter: str | None = None, decimal: Decimal = "."
) -> pa.Table:
    """Read a CSV file whole; every record is a row, or an error names its line.

    Parameters
    ----------
    path
        The file.
    id
        The column that identifies a row; it is read exactly as written, see :func:`typed`.
    encoding, delimiter, decimal
        How the file is written: any encoding that Python knows, the delimiter, the decimal sign.
    """
    import pyarrow as pa

    try:
        # Files in another encoding are held in memory.
        plain = encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig", "ascii")
        text = _read_all(path if plain else Recoded.of(path, encoding), delimiter)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    names, rows = _names(path, text), text.slice(1)
    return pa.table(
        [typed(rows.column(k), exact=name == id, decimal=decimal) for k, name in enumerate(names)], names=names
    )


def _read_all(path: CsvFile, given: str | None) -> pa.Table:
    """Read every cell as text, the header as the first row; refuse a file if a record is left out."""
    import pyarrow as pa

    delimiter, width = _dialect(path, given)
    count = count_records(path, delimiter)
    # If quotes stand in odd places, records are counted one by one.
    expected = count.records if count.sound else require_sound(path, delimiter)
    if expected == 0:
        raise DataError(f"{path} gives no rows")
    try:
        text = _read_text(path, delimiter, width, count.longest)
    except pa.ArrowException as error:
        require_sound(path, delimiter)
        raise DataError(f"cannot read {path}: {brief(error)}\nsave the table as Parquet") from error
    require_all(path, delimiter, text, expected)
    return text


def _dialect(path: CsvFile, given: str | None) -> tuple[str, int]:
    """Return the delimiter, and the number of cells in the header."""
    header = _header(path)
    delimiter = given or next((sign for sign in _DELIMITERS if sign in header), _DELIMITERS[0])
    return delimiter, header.count(delimiter) + 1


def _header(path: CsvFile) -> str:
    """Return the first record, with one letter in place of each quoted cell."""
    head = b""
    with path.open("rb") as stream:
        while True:
            more = stream.read(max(_HEAD, len(head)))
            head += more
            lines = _QUOTED_CELL.sub(b"x", head.removeprefix(BOM)).lstrip(b"\r\n").splitlines()
            if len(lines) > 1 or not more:
                return lines[0].decode("latin-1") if lines else ""


def _read_text(path: CsvFile, delimiter: str, width: int, longest: int) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(
        path if isinstance(path, Path) else path.open("rb"),
        # A record may begin in one block and end in the next, but no later.
        csv.ReadOptions(block_size=max(_SMALLEST_BLOCK, longest + 2), autogenerate_column_names=True),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        csv.ConvertOptions(
            column_types={f"f{k}": pa.string() for k in range(width)}, strings_can_be_null=True, null_values=[""]
        ),
    )


def require_all(path: CsvFile, delimiter: str, text: pa.Table, expected: int) -> None:
    """Refuse a table that lacks a record of its file."""
    if text.num_rows == expected:
        return
    counted = require_sound(path, delimiter)
    line = first_skipped(path, delimiter, _rows(text))
    raise DataError(
        f"{path}, line {line:,}: skipped by the reader, which gives {text.num_rows:,} of {counted:,} records\n"
        "write the line plainly, or save the table as Parquet"
    )


def _rows(text: pa.Table) -> Iterator[list[str | None]]:
    for batch in text.to_batches():
        yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _names(path: Path, text: pa.Table) -> list[str]:
    names = [column[0].as_py() for column in text.columns]
    if None in names:
        raise DataError(
            f"{path}: column {names.index(None) + 1} has no name in the header\n"
            "name it, or leave it out; pandas leaves it out with to_csv(..., index=False)"
        )
    return names
