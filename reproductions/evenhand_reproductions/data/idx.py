"""Reader of idx files, the format MNIST is published in: a short header, then the bytes of one array."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Final, cast

import numpy as np
import numpy.typing as npt

from evenhand.errors import DataError

_PIECE: Final = 1 << 20
_UNSIGNED_BYTE: Final = 0x08
_OTHER_TYPES: Final = {0x09: "signed bytes", 0x0B: "shorts", 0x0C: "integers", 0x0D: "floats", 0x0E: "doubles"}


def read_idx(path: Path | str, dimensions: int | None = None) -> npt.NDArray[np.uint8]:
    """Read one idx file of unsigned bytes, plain or gzipped (``.gz``).

    The header holds two zero bytes, the type of the values, the number of dimensions, and each dimension as four
    bytes, the highest first. The values follow, and nothing after them.

    Parameters
    ----------
    path : the file.
    dimensions : how many dimensions the array must have (images: 3, labels: 1); any number when None.
    """
    path = Path(path)
    try:
        with cast("IO[bytes]", gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")) as stream:
            shape = _read_shape(stream, path, dimensions)
            count = math.prod(shape)
            # One byte past the promised end: enough to notice that there is more.
            content = _read(stream, count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error or type(error).__name__}; fetch it again") from error
    if len(content) != count:
        found = f"only {len(content):,} bytes follow" if len(content) < count else "more bytes follow"
        sizes = " × ".join(map(str, shape))
        raise DataError(f"{path} is not whole: its header promises {sizes} = {count:,} bytes, but {found}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _read(stream: IO[bytes], limit: int) -> bytes:
    """Read up to `limit` bytes piece by piece: a false header must not make room for what is not there."""
    content = bytearray()
    while len(content) < limit and (piece := stream.read(min(_PIECE, limit - len(content)))):
        content += piece
    return bytes(content)


def _read_shape(stream: IO[bytes], path: Path, dimensions: int | None) -> tuple[int, ...]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DataError(f"{path} is no idx file: it begins with {magic.hex(' ') or 'nothing'} instead of 00 00")
    kind, found = magic[2], magic[3]
    if kind != _UNSIGNED_BYTE:
        raise DataError(f"{path} holds {_OTHER_TYPES.get(kind, f'type 0x{kind:02x}')}; only unsigned bytes are read")
    if found == 0 or (dimensions is not None and found != dimensions):
        wanted = "at least one" if dimensions is None else dimensions
        raise DataError(f"{path} holds an array of {found} dimensions instead of {wanted}")
    sizes = stream.read(4 * found)
    if len(sizes) < 4 * found:
        raise DataError(f"{path} ends within its header")
    return struct.unpack(f">{found}I", sizes)
