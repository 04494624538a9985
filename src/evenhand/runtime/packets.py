"""Packets as bytes, with a checksum that detects damage in transit."""

from __future__ import annotations

import struct
import zlib
from typing import Final, TypeAlias

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.protocol.encoding import LARGEST, decode, encoded_parts
from evenhand.runtime.links import Packet, Stamp

Content: TypeAlias = bytes | bytearray | memoryview
# The checksum, then have, room, number, flags. A stamp may follow, and a message.
_SUM: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<QQqB")
_STAMP: Final = struct.Struct("<QQ16s")
_SIZE: Final = _SUM.size + _HEAD.size
_ASKS, _STAMPED = 1, 2
_WORDS: Final = 509
"""Words of eight bytes in a row of the table that a large packet's checksum uses. It is odd, so that the same change to
each word of a row does not cancel out."""


def packet_bytes(packet: Packet) -> Content:
    message = [] if packet.message is None else encoded_parts(packet.message)
    stamp = b"" if packet.stamp is None else _STAMP.pack(*packet.stamp)
    # One block of memory, into which everything is copied once.
    content = bytearray().join([bytes(_SUM.size), _head(packet), stamp, *message])
    _SUM.pack_into(content, 0, checksum(memoryview(content)[_SUM.size :]))
    return content


def _head(packet: Packet) -> bytes:
    flags = _ASKS * packet.asks + _STAMPED * (packet.stamp is not None)
    return _HEAD.pack(packet.have, packet.room, packet.number, flags)


def stamped_content(packet: Packet) -> bytes:
    """Return what the code of a packet's stamp is for."""
    assert packet.stamp is not None
    return _head(packet) + _STAMP.pack(packet.stamp.sent, packet.stamp.serial, b"")


def checksum(content: Content) -> int:
    """Return a CRC-32. For large contents it is over sums of words by column and by row, and the rest.

    That takes less than half the time. It detects words or rows that were swapped, and all damage that does not cancel
    out both ways, which needs four words at the corners of a rectangle. It does not protect against attackers; the
    transport does.
    """
    view = memoryview(content)
    words = len(view) // (8 * _WORDS) * _WORDS
    if not words:
        return zlib.crc32(view)
    table = np.frombuffer(view, "<u8", words).reshape(-1, _WORDS)
    found = 0
    for sums in (np.add.reduce(table, axis=0), np.bitwise_xor.reduce(table, axis=1)):
        found = zlib.crc32(sums.astype("<u8", copy=False), found)
    return zlib.crc32(view[8 * words :], found)


def packet_from(content: Content, largest: int = LARGEST) -> Packet:
    """Decode a packet; raise a ProtocolError if it is damaged or not a packet."""
    if not _SIZE <= len(content) <= _SIZE + _STAMP.size + largest:
        raise ProtocolError(f"refused a packet of {len(content):,} bytes")
    view = memoryview(content)
    if _SUM.unpack_from(view)[0] != checksum(view[_SUM.size :]):
        raise ProtocolError("refused a packet that was damaged in transit")
    have, room, number, flags = _HEAD.unpack_from(view, _SUM.size)
    start, stamp = _SIZE, None
    if flags & _STAMPED:
        start += _STAMP.size
        if len(view) < start:
            raise ProtocolError("refused a packet with half a stamp")
        stamp = Stamp(*_STAMP.unpack_from(view, _SIZE))
    message = decode(view[start:], largest) if len(view) > start else None
    if (number < 0) != (message is None) or number < -1 or flags > _ASKS + _STAMPED:
        raise ProtocolError("refused a packet with a number that does not fit its content")
    return Packet(have, room, number, message, bool(flags & _ASKS), stamp)


def only_acknowledges(content: Content) -> bool:
    """Return from its header whether a packet has neither a message nor a question."""
    if len(content) > _SIZE + _STAMP.size:
        return False
    _, _, number, flags = _HEAD.unpack_from(content, _SUM.size)
    return number < 0 and not flags & _ASKS


def number_in(content: Content) -> int:
    """Return from its header the number of a packet's message; −1 without one."""
    return int(_HEAD.unpack_from(content, _SUM.size)[2])
