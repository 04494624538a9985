"""Infer the type of a CSV column: whole numbers, decimals, booleans, dates, or text.

A column gets a type only if every cell of it allows, so that no cell is changed or lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenhand.data.tables.numerals import Decimal

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
