"""Packets as bytes, with a sum that tells when they were damaged under way."""

from __future__ import annotations

import struct
import zlib
from typing import Final, TypeAlias

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.protocol.encoding import LARGEST, decode, encoded_parts
from evenhand.runtime.links import Packet

Content: TypeAlias = bytes | bytearray | memoryview
# The sum, then: have, room, number, asks. Room for a message of any kind follows.
_SUM: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<QQqB")
_SIZE: Final = _SUM.size + _HEAD.size
_WORDS: Final = 509
"""Of eight bytes each: a row of what a large packet is summed up in. Odd, so that what was done to each word of a row
does not cancel out."""


def packet_bytes(packet: Packet) -> Content:
    message = [] if packet.message is None else encoded_parts(packet.message)
    head = _HEAD.pack(packet.have, packet.room, packet.number, packet.asks)
    # One piece of memory, into which everything is copied once.
    content = bytearray().join([bytes(_SUM.size), head, *message])
    _SUM.pack_into(content, 0, checksum(memoryview(content)[_SUM.size :]))
    return content


def checksum(content: Content) -> int:
    """CRC-32; of large contents that of the sums of their words by column and by row, and of what is left over.

    That takes less than half of the time. Words or rows that have changed places are told, as is damage unless it
    cancels out both ways, for which four words at the corners of a rectangle are needed; who meddles is the transport's
    to keep out.
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
    """The packet again; what is not one, or was damaged, is a ProtocolError."""
    if not _SIZE <= len(content) <= _SIZE + largest:
        raise ProtocolError(f"a packet of {len(content):,} bytes was refused")
    view = memoryview(content)
    if _SUM.unpack_from(view)[0] != checksum(view[_SUM.size :]):
        raise ProtocolError("a packet was damaged under way; it was refused")
    have, room, number, asks = _HEAD.unpack_from(view, _SUM.size)
    message = decode(view[_SIZE:], largest) if len(view) > _SIZE else None
    if (number < 0) != (message is None) or number < -1 or asks > 1:
        raise ProtocolError("a packet's number does not fit its content; it was refused")
    return Packet(have, room, number, message, bool(asks))


def only_acknowledges(content: Content) -> bool:
    """Whether a packet has neither message nor question; of what is no packet, no. Looks at its head only."""
    if len(content) != _SIZE:
        return False
    _, _, number, asks = _HEAD.unpack_from(content, _SUM.size)
    return number < 0 and not asks
