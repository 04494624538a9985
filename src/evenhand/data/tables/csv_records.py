"""Count the records of a CSV file without its reader, and tell what is wrong with a file that cannot be read.

A record is a line. A cell in double quotes may hold line breaks, and ``""`` in it stands for one double quote. Lines
end in ``\\n``, ``\\r\\n`` or ``\\r``. Blank lines are not records.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.errors import DataError

_BLOCK: Final = 1 << 18
BOM: Final = b"\xef\xbb\xbf"
_QUOTE: Final = ord('"')
_LINE_ENDS: Final = (ord("\n"), ord("\r"))
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_QUOTED: Final = re.compile(rb'"(?:[^"]++|"")*+"')


@dataclass(frozen=True)
class Recoded:
    """A file in another encoding than UTF-8; its text is held in memory as UTF-8."""

    path: Path
    content: bytes

    @classmethod
    def of(cls, path: Path, encoding: str) -> Recoded:
        try:
            return cls(path, path.read_bytes().decode(encoding).encode())
        except (UnicodeError, LookupError) as error:
            raise DataError(
                f"{path} is not in the encoding {encoding!r}: {error}; name another with encoding, such as cp1252"
            ) from error

    def __str__(self) -> str:
        return str(self.path)

    def open(self, mode: str) -> IO[bytes]:
        return io.BytesIO(self.content)

    def read_bytes(self) -> bytes:
        return self.content


CsvFile: TypeAlias = Path | Recoded


@dataclass(frozen=True)
class Count:
    """The number of records in a file, including its header, and the bytes of the longest one.

    The count is right if `sound` is true: every double quote stands at the edge of a cell, or is doubled. Otherwise
    use :func:`records`.
    """

    records: int
    longest: int
    sound: bool


def count_records(path: CsvFile, delimiter: str) -> Count:
    """Count records at the speed of the disk: ends of lines with an even number of double quotes before them."""
    edges = np.zeros(256, dtype=bool)
    edges[[_QUOTE, *_LINE_ENDS, ord(delimiter)]] = True
    records, longest, sound = 0, 0, True
    start, last_end, quotes_before = 0, -1, 0
    with path.open("rb") as stream:
        for window in _windows(stream):
            block = window[1:-1]
            ends = np.flatnonzero((block == _LINE_ENDS[0]) | (block == _LINE_ENDS[1]))
            quotes = np.flatnonzero(block == _QUOTE)
            opens = (np.arange(quotes.size) + quotes_before) % 2 == 0
            # An opening quote follows the edge of a cell, and a closing one precedes it; or both are doubled.
            sound = sound and bool(edges[np.where(opens, window[quotes], window[quotes + 2])].all())
            ends = ends[(np.searchsorted(quotes, ends) + quotes_before) % 2 == 0] + start
            # Nothing lies between \r and \n, or on a blank line.
            lengths = np.diff(ends, prepend=last_end) - 1
            records += int(np.count_nonzero(lengths))
            if ends.size:
                longest, last_end = max(longest, int(lengths.max())), int(ends[-1])
            start += block.size
            quotes_before += quotes.size
    rest = start - last_end - 1
    return Count(records + (rest > 0), max(longest, rest), sound and quotes_before % 2 == 0)


def _windows(stream: IO[bytes]) -> Iterator[npt.NDArray[np.uint8]]:
    """Read the file in pieces, each with the byte before and after it; at the file's ends that is a line end."""
    if stream.read(len(BOM)) != BOM:
        stream.seek(0)
    held = b"\n"
    while block := stream.read(_BLOCK):
        window = held + block
        yield np.frombuffer(window, dtype=np.uint8)
        held = window[-2:]
    yield np.frombuffer(held + b"\n", dtype=np.uint8)


def records(path: CsvFile, delimiter: str) -> Iterator[tuple[int, list[bytes]]]:
    """Return the line each record begins on, and its cells as written. It is slow, for files with an error.

    A cell that begins with a double quote must end with one. Quotes elsewhere are plain characters.
    """
    content = path.read_bytes().removeprefix(BOM)
    sign = delimiter.encode()
    cell = re.compile(rb'("(?:[^"]++|"")*+"|[^"%b\r\n][^%b\r\n]*+|)(%b|\r\n|\r|\n|\Z)' % (sign, sign, re.escape(sign)))
    place, line, begun, cells = 0, 1, 1, list[bytes]()
    while place < len(content) or cells:
        match = cell.match(content, place)
        if match is None:
            raise DataError(_wrong_quotes(path, content, place, line, delimiter))
        cells.append(match[1])
        line += len(_LINE_END.findall(match[0]))
        place = match.end()
        if match[2] != sign:
            if cells != [b""]:
                yield begun, cells
            begun, cells = line, []


def require_sound(path: CsvFile, delimiter: str) -> int:
    """Count records one by one; raise an error that names the line if something is wrong."""
    _require_utf8(path)
    count, width = 0, 0
    for line, cells in records(path, delimiter):
        width = width or len(cells)
        if len(cells) != width:
            found = "1 cell" if len(cells) == 1 else f"{len(cells):,} cells"
            raise DataError(
                f"{path}, line {line:,}: {found} where the header has {width:,}\n"
                f"each row needs as many as the header; a cell with {delimiter!r} or a line break in it goes in double "
                "quotes"
            )
        count += 1
    return count


def first_skipped(path: CsvFile, delimiter: str, rows: Iterator[list[str | None]]) -> int:
    """Return the line of the first record that is not among the rows read."""
    for line, cells in records(path, delimiter):
        if [_text(cell) or None for cell in cells] != next(rows, None):
            return line
    return 0


def _text(cell: bytes) -> str:
    quoted = cell.startswith(b'"')
    return (cell[1:-1].replace(b'""', b'"') if quoted else cell).decode()


def _require_utf8(path: CsvFile) -> None:
    content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(content[: error.start])) + 1
        raise DataError(
            f"{path}, line {line:,}: the byte {content[error.start]:#04x} is not UTF-8\nsave the file as "
            'UTF-8, or say how it is written: encoding = "cp1252", for instance'
        ) from error


def _wrong_quotes(path: CsvFile, content: bytes, place: int, line: int, delimiter: str) -> str:
    if closed := _QUOTED.match(content, place):
        line += len(_LINE_END.findall(closed[0]))
        what = f"after the double quote that closes a cell comes neither {delimiter!r} nor the end of the line"
    else:
        what = "a cell opens with a double quote that is never closed"
    return f'{path}, line {line:,}: {what}\nwrite a double quote within a quoted cell twice, as in "5"" pipe"'
