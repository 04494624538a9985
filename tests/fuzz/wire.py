"""Bytes of every kind for what decodes messages and packets: taken, and then as they were written, or refused."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable

import numpy as np
from support.damage import damaged

from evenhand.errors import ProtocolError
from evenhand.protocol.encoding import decode, encode
from evenhand.protocol.messages import Message
from evenhand.runtime.links import Packet
from evenhand.runtime.packets import checksum, packet_bytes, packet_from

_NAMES = ("a", "server", "Krankenhaus Süd", "x" * 64)
_ODD = (-1, 0, 1, 7, 2**30, 2**31, 2**63, 2**70, 1.5, True, None, "f8", "O", "m8[s]", [], {}, [[]], "\ud800", "a\nb")


def random_message(rng: random.Random) -> Message:
    body = {}
    for place in range(rng.randint(0, 4)):
        shape = tuple(rng.randint(0, 4) for _ in range(rng.randint(0, 3)))
        dtype = rng.choice(["f8", "f4", "i8", "u1"])
        body[f"field {place}"] = np.asarray(np.random.default_rng(rng.randrange(2**32)).integers(0, 9, shape), dtype)
    return Message(rng.choice(_NAMES), rng.choice(_NAMES), rng.choice(["note", "ν"]), body)


def same(one: Message, other: Message) -> bool:
    def parts(message: Message) -> list[object]:
        body = [(name, array.dtype, array.shape, array.tobytes()) for name, array in message.body.items()]
        return [message.sender, message.receiver, message.kind, body]

    return parts(one) == parts(other)


def fuzz_message(rng: random.Random) -> bool:
    """Messages as they are, damaged, or with a header that says something else."""
    message = random_message(rng)
    content = encode(message)
    kind = rng.choice(["whole", "damaged", "header", "noise"])
    if kind == "damaged":
        content = damaged(content, rng)
    elif kind == "header":
        content = _other_header(content, rng)
    elif kind == "noise":
        content = rng.randbytes(rng.randint(0, 200))
    try:
        found = decode(content)
    except ProtocolError:
        assert kind != "whole"
        return False
    # Whatever is taken is a message that could have been sent: written again, it is read again.
    assert same(decode(encode(found)), found)
    assert kind != "whole" or same(found, message)
    return True


def _other_header(content: bytes, rng: random.Random) -> bytes:
    (length,) = struct.unpack_from("<I", content, 4)
    header = json.loads(content[8 : 8 + length])
    if header["fields"] and rng.random() < 0.7:
        field = rng.choice(header["fields"])
        field[rng.randrange(3)] = rng.choice(_ODD)
        if rng.random() < 0.3 and isinstance(field[2], list):
            field[2] = [rng.choice(_ODD) for _ in range(rng.randint(0, 40))]
    else:
        header[rng.choice([*header, "more"])] = rng.choice(_ODD)
    text = json.dumps(header).encode()
    return content[:4] + struct.pack("<I", len(text)) + text + content[8 + length :]


def fuzz_packet(rng: random.Random) -> bool:
    """Packets as they are, damaged, or with a sum that was put right again by somebody with bad intentions."""
    message = random_message(rng) if rng.random() < 0.7 else None
    number = -1 if message is None else rng.randrange(2**40)
    packet = Packet(rng.randrange(2**40), rng.randrange(2**40), number, message, rng.random() < 0.5)
    content = packet_bytes(packet)
    whole = rng.random() < 0.3
    if not whole:
        content = damaged(content, rng)
        if len(content) > 4 and rng.random() < 0.7:
            content = struct.pack("<I", checksum(content[4:])) + content[4:]
    try:
        found = packet_from(content)
    except ProtocolError:
        assert not whole
        return False
    assert packet_bytes(found)[4:29] == content[4:29]
    assert not whole or found[:3] == packet[:3]
    return True


TARGETS: dict[str, Callable[[random.Random], bool]] = {"message": fuzz_message, "packet": fuzz_packet}
