"""Messages as bytes: back to the bit, or refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from evenhand.errors import ProtocolError
from evenhand.protocol.encoding import LARGEST, decode, encode
from evenhand.protocol.messages import Message


def message(**body: Any) -> Message:
    return Message("bank", "server", "note", {name: np.asarray(value) for name, value in body.items()})


def with_header(header: Any, rest: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return b"evm1" + struct.pack("<I", len(text)) + text + rest


HEADER = {"sender": "bank", "receiver": "server", "kind": "note", "fields": [["x", "f8", []]]}
ONE = struct.pack("<d", 1.0)


@pytest.mark.parametrize(
    "array",
    [
        np.array(-0.0),
        np.array([5e-324, 1.7e308, np.pi]),
        np.zeros((3, 0)),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(4, dtype="f4"),
        np.array([-(2**63), 2**63 - 1]),
        np.frombuffer("größer".encode(), np.uint8),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_every_bit_comes_back(array: np.ndarray) -> None:
    found = decode(encode(message(x=array)))
    assert (found.sender, found.receiver, found.kind) == ("bank", "server", "note")
    assert found["x"].dtype == array.dtype
    assert found["x"].shape == array.shape
    assert found["x"].tobytes() == array.tobytes()
    assert found["x"].flags.writeable


def test_bytes_beside_the_content_are_few() -> None:
    assert len(encode(message(x=np.ones(40_000)))) < 40_000 * 8 + 200


@pytest.mark.parametrize("value", [np.nan, np.inf, [1.0, -np.inf], np.array([np.nan], "f4")], ids=str)
def test_numbers_that_are_not_finite_are_neither_sent_nor_taken(value: Any) -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        encode(message(x=value))
    if np.ndim(value) == 0:
        with pytest.raises(ProtocolError, match="not finite"):
            decode(with_header(HEADER, struct.pack("<d", value)))


@pytest.mark.parametrize("value", ["text", [True], np.array([1], "i4"), np.array([None]), 1j], ids=str)
def test_other_types_are_not_sent(value: Any) -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        encode(message(x=value))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"evm1",
        b"evm2" + bytes(100),
        b"evm1" + struct.pack("<I", 2**32 - 1),
        b"evm1" + struct.pack("<I", 4) + b"{]  ",
        b"evm1" + struct.pack("<I", 16000) + b"[" * 16000,
        with_header([]),
        with_header(HEADER),
        with_header(HEADER, ONE + b"\0"),
        with_header(HEADER | {"more": 1}, ONE),
        with_header(HEADER | {"kind": 3}, ONE),
        with_header(HEADER | {"sender": "\ud800"}, ONE),
        with_header(HEADER | {"fields": [["x", "f8", []], ["x", "f8", []]]}, ONE + ONE),
        with_header(HEADER | {"fields": [["x", "O", []]]}, ONE),
        with_header(HEADER | {"fields": [["x", "f8", [-1]]]}, ONE),
        with_header(HEADER | {"fields": [["x", "f8", [True]]]}, ONE),
        with_header(HEADER | {"fields": [["x", "f8", [0, 2**40, 2**40]]]}),
        with_header(HEADER | {"fields": [["x", "f8", [2**40]]]}, ONE),
        with_header(HEADER | {"fields": [["x", "f8", [1] * 33]]}, ONE),
        with_header(HEADER | {"fields": [[str(i), "u1", []] for i in range(65)]}, bytes(65)),
    ],
)
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(content)


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    content = encode(message(x=np.ones(100)))
    assert decode(content, largest=len(content)).kind == "note"
    with pytest.raises(ProtocolError, match="the most is 100"):
        decode(content, largest=100)
    assert LARGEST <= 2**30
