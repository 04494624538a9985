"""Packets as bytes, with a sum that tells when they were damaged under way."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from evenhand.errors import ProtocolError
from evenhand.protocol.encoding import LARGEST, decode, encoded_parts
from evenhand.runtime.links import Packet

# The sum, then: have, room, number, asks. Room for a message of any kind follows.
_SUM: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<QQqB")
_SIZE: Final = _SUM.size + _HEAD.size


def packet_bytes(packet: Packet) -> bytes:
    message = [] if packet.message is None else encoded_parts(packet.message)
    parts = [_HEAD.pack(packet.have, packet.room, packet.number, packet.asks), *message]
    total = 0
    for part in parts:
        total = zlib.crc32(part, total)
    return b"".join([_SUM.pack(total), *parts])


def packet_from(content: bytes, largest: int = LARGEST) -> Packet:
    """The packet again; what is not one, or was damaged, is a ProtocolError."""
    if not _SIZE <= len(content) <= _SIZE + largest:
        raise ProtocolError(f"a packet of {len(content):,} bytes was refused")
    view = memoryview(content)
    if _SUM.unpack_from(view)[0] != zlib.crc32(view[_SUM.size :]):
        raise ProtocolError("a packet was damaged under way; it was refused")
    have, room, number, asks = _HEAD.unpack_from(view, _SUM.size)
    message = decode(view[_SIZE:], largest) if len(view) > _SIZE else None
    if (number < 0) != (message is None) or number < -1 or asks > 1:
        raise ProtocolError("a packet's number does not fit its content; it was refused")
    return Packet(have, room, number, message, bool(asks))


def only_acknowledges(content: bytes) -> bool:
    """Whether a packet has neither message nor question; of what is no packet, no. Looks at its head only."""
    if len(content) != _SIZE:
        return False
    _, _, number, asks = _HEAD.unpack_from(content, _SUM.size)
    return number < 0 and not asks
