"""Encode messages as bytes: a JSON header, then the raw arrays. No pickle, nothing executable.

`decode` accepts only what `encode` writes: nothing extra, nothing missing, finite numbers only. The receiving role
checks whether a message may arrive at all, and from which sender.
"""

from __future__ import annotations

import json
import math
import struct
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.errors import ProtocolError
from evenhand.protocol.messages import DTYPES, LONGEST, Message, all_finite

LARGEST: Final = 2**30
"""Maximum size of a message in bytes; larger ones are refused unread."""
_MARK: Final = b"evm1"
_HEAD: Final = struct.Struct("<4sI")
_LONGEST_HEADER: Final = 2**14
_MOST_FIELDS, _MOST_DIMENSIONS = 64, 8
_REMEMBERED: Final = 128
"""Number of cached headers; a limit, because headers may be long."""
_HEADER_KEYS: Final = {"sender", "receiver", "kind", "fields"}
_Field: TypeAlias = tuple[str, str, tuple[int, ...]]
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def encode(message: Message) -> bytes:
    """Encode a message; refuse one that `decode` would refuse."""
    return b"".join(encoded_parts(message))


def encoded_parts(message: Message) -> list[bytes | memoryview]:
    """Return the parts of a message without copying arrays, so that a transport copies them once."""
    fields: list[_Field] = []
    parts: list[bytes | memoryview] = []
    for name, array in message.body.items():
        if array.dtype not in _NAMES or not all_finite(array):
            raise ProtocolError(f"message {message.kind!r}: {name} cannot be sent: it is {array.dtype}, or not finite")
        fields.append((name, _NAMES[array.dtype], array.shape))
        # Little-endian on every machine.
        flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1)
        parts.append(flat.view(np.uint8).data)
    header = _header_bytes(message.sender, message.receiver, message.kind, tuple(fields))
    size = _HEAD.size + len(header) + sum(map(len, parts))
    if len(header) > _LONGEST_HEADER or size > LARGEST:
        raise ProtocolError(f"message {message.kind!r} has {size:,} bytes; the most is {LARGEST:,}")
    return [_HEAD.pack(_MARK, len(header)), header, *parts]


# Headers repeat from round to round.
@lru_cache(_REMEMBERED)
def _header_bytes(sender: str, receiver: str, kind: str, fields: tuple[_Field, ...]) -> bytes:
    content = {"sender": sender, "receiver": receiver, "kind": kind, "fields": fields}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def decode(content: bytes | memoryview, largest: int = LARGEST) -> Message:
    """Decode a message; raise a ProtocolError for anything else."""
    if len(content) > largest:
        raise ProtocolError(f"a message of {len(content):,} bytes was refused; the most is {largest:,}")
    content = memoryview(content)
    if len(content) < _HEAD.size:
        raise ProtocolError("a message was cut short; it was refused")
    mark, length = _HEAD.unpack_from(content)
    if mark != _MARK or length > min(_LONGEST_HEADER, len(content) - _HEAD.size):
        raise ProtocolError("what arrived is no message; it was refused")
    sender, receiver, kind, fields = _header(bytes(content[_HEAD.size : _HEAD.size + length]))
    body: dict[str, npt.NDArray[Any]] = {}
    place = _HEAD.size + length
    for name, dtype, shape in fields:
        end = place + DTYPES[dtype].itemsize * math.prod(shape)
        if end > len(content):
            raise ProtocolError(f"message {kind!r} was cut short at {name!r}; it was refused")
        # A copy is writable, aligned, and does not keep the whole message alive.
        found = np.frombuffer(content[place:end], dtype=DTYPES[dtype].newbyteorder("<")).astype(DTYPES[dtype])
        if not all_finite(found):
            raise ProtocolError(f"message {kind!r}: {name} holds numbers that are not finite")
        body[name], place = found.reshape(shape), end
    if place != len(content):
        raise ProtocolError(f"message {kind!r} has {len(content) - place:,} bytes too many; it was refused")
    return Message(sender, receiver, kind, body)


@lru_cache(_REMEMBERED)
def _header(text: bytes) -> tuple[str, str, str, list[_Field]]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the header of a message is not JSON; it was refused") from error
    if not _is_header(header):
        raise ProtocolError("the header of a message is not one; it was refused")
    return header["sender"], header["receiver"], header["kind"], header["fields"]


def _is_header(header: Any) -> bool:
    if not isinstance(header, dict) or header.keys() != _HEADER_KEYS:
        return False
    fields = header["fields"]
    if not isinstance(fields, list) or len(fields) > _MOST_FIELDS or not all(map(_is_field, fields)):
        return False
    names = [header["sender"], header["receiver"], header["kind"]]
    return len({field[0] for field in fields}) == len(fields) and all(map(_is_name, names))


def _is_field(field: Any) -> bool:
    if not isinstance(field, list) or len(field) != 3:
        return False
    name, dtype, shape = field
    return (
        _is_name(name)
        and isinstance(dtype, str)
        and dtype in DTYPES
        and isinstance(shape, list)
        and len(shape) <= _MOST_DIMENSIONS
        and all(type(size) is int and size >= 0 for size in shape)
        # Empty arrays too: numpy cannot make one of shape 0 × 2⁴⁰ × 2⁴⁰.
        and math.prod(max(size, 1) for size in shape) <= LONGEST
    )


def _is_name(name: Any) -> bool:
    """Return whether a text can be shown and written to a file."""
    return isinstance(name, str) and name.isprintable()
