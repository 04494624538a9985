"""Replace the passive parties' messages by their sum, under masks that cancel.

The server's solver sees two parties. One is the label holder, at whose side it works, and which sends in the clear. The
other is `together`, which stands for all passive parties. Their messages arrive as one message of `together`, the sum.
What the solver sends to `together` goes to each of them. Per-row numbers take one word with `ROW_BITS` binary places.
All others take two words, because inner products can be very large and very small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import ROW_BITS, decode, decode_wide, encode, encode_wide
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.scoring import PARTIAL_SCORES
from evenhand.vertical.learners.messages import VOCABULARY as LEARNERS
from evenhand.vertical.messages import VOCABULARY
from evenhand.vertical.protected.layer import Layer, readdressed
from evenhand.vertical.protected.messages import MASKS, SCORE_SHARES, SHARES

SUMMED: Final[Mapping[str, Schema]] = {
    one.kind: one for one in (*VOCABULARY, *LEARNERS, *SHARES, *SCORE_SHARES, PARTIAL_SCORES) if one.coverage.summed
}
"""Kinds of messages that are summed."""
_PIECE: Final = 1 << 15
"""Number of per-row values that are converted to fixed point at a time."""


class MessagePacking:
    """Packs one kind of message into words: all its real numbers, in the order of its fields.

    A message that consists of words modulo 2⁶⁴ already, in a field of this name, is added as it is.
    """

    def __init__(self, schema: Schema, sizes: Mapping[str, int], parties: int) -> None:
        self._schema, self._parties = schema, parties
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._by_row: set[str] = set()
        for name, field in schema.fields.items():
            if field.dtype == "f8":
                self._shapes[name] = tuple(sizes[n] if isinstance(n, str) else n or 0 for n in field.shape)
                if {"rows", "scores"} & set(field.shape):
                    self._by_row.add(name)
        self.integers = [name for name, field in schema.fields.items() if field.dtype == "i8" and not field.shape]
        self.raw = "words" in schema.fields
        self._sizes = {
            name: int(np.prod(shape, dtype=np.int64)) * (1 if name in self._by_row else 2)
            for name, shape in self._shapes.items()
        }
        self.size = sum(self._sizes.values())

    def add(self, message: Message, onto: Words) -> None:
        """Add a message's numbers to masks, which gives the words to send. Per-row numbers are not copied."""
        if self.raw:
            onto += message["words"].view(np.uint64)
            return
        start = 0
        for name, shape in self._shapes.items():
            part = onto[start : start + self._sizes[name]]
            start += self._sizes[name]
            if name not in self._by_row:
                part += encode_wide(message[name], self._parties).ravel()
                continue
            # Line by line, because lines need not be contiguous in memory.
            for line, words in zip(message[name].reshape(-1, shape[-1]), part.reshape(-1, shape[-1]), strict=True):
                for first in range(0, len(line), _PIECE):
                    piece = slice(first, first + _PIECE)
                    words[piece] += encode(line[piece], ROW_BITS, self._parties)

    def unpack(self, words: Words, integers: NDArray[Any], sender: str) -> Message:
        """Return the message whose numbers are the sums."""
        body: dict[str, Any] = dict(zip(self.integers, integers, strict=True))
        if self.raw:
            return self._schema.message(sender, SERVER, **body, words=words.view(np.int64))
        start = 0
        for name, shape in self._shapes.items():
            part = words[start : start + self._sizes[name]]
            start += self._sizes[name]
            if name in self._by_row:
                body[name] = decode(part.reshape(shape), ROW_BITS)
            else:
                body[name] = decode_wide(part.reshape(2, *shape), self._parties)
        return self._schema.message(sender, SERVER, **body)


class MaskedParty(Layer):
    """Sends behind masks that the passive parties have in common. The label holder sends in the clear.

    Parameters
    ----------
    members
        The passive parties, in the order of the terms.
    session
        The party's secrets in this attempt. A resumed run has another session, so no mask is used twice.
    context
        Digest of the terms.
    own
        The one kind of message that carries masked words: scores after training have one of their own, so that they
        can arrive while others still train.
    """

    state_fields: ClassVar = {"number": int}

    def __init__(
        self, inner: Role, members: Sequence[str], session: Session, context: str, own: Vocabulary = MASKS
    ) -> None:
        super().__init__(inner, own)
        self.members = tuple(members)
        self._tag = session.tag
        self._masks = session.masks(f"sums {context}", members) if self._masking else None
        self.number = 0

    @property
    def _masking(self) -> bool:
        return self.name in self.members

    def take(self, message: Message) -> Sends:
        raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r}")

    def outwards(self, messages: Sends) -> Sends:
        return [self._masked(one) if self._masking and self._is_summed(one) else one for one in messages]

    @staticmethod
    def _is_summed(message: Message) -> bool:
        return message.receiver == SERVER and message.kind in SUMMED

    def _masked(self, message: Message) -> Message:
        if self._masks is None:
            raise ProtocolError(f"{self.name} has no masks left for {message.kind!r}; it is not sent")
        packing = MessagePacking(SUMMED[message.kind], self.inner.sizes, len(self.members))
        # All parties send in the same order, so equal numbers belong together.
        size = len(message["words"]) if packing.raw else packing.size
        words = self._masks.mask(f"{message.kind} {self.number}", size)
        packing.add(message, words)
        integers = np.array([message.integer(name) for name in packing.integers], dtype=np.int64)
        body = {"session": self._tag, "number": self.number, "integers": integers, "words": words.view(np.int64)}
        self.number += 1
        (schema,) = self._own
        return schema.message(self.name, SERVER, kind=as_bytes(message.kind), **body).hiding([message])

    def ended(self) -> Sends:
        self._masks = None
        return ()


class _Sum:
    """Partial sum of one message that all members send."""

    state_fields: ClassVar = {"kind": str, "integers": NDArray[Any], "total": Words, "came": int}

    def __init__(self, kind: str, integers: NDArray[Any]) -> None:
        self.kind, self.integers = kind, integers
        self.total: Words = np.zeros(0, dtype=np.uint64)
        self.came = 0


class TogetherServer(Layer):
    """Sums masked messages, and represents `together` to the inner server."""

    state_fields: ClassVar = {"_sums": dict[int, _Sum], "_told": dict[str, int]}

    def __init__(
        self, inner: Role, members: Sequence[str], together: str, session: Session, own: Vocabulary = MASKS
    ) -> None:
        super().__init__(inner, own)
        self.members, self.together, self._tag = tuple(members), together, session.tag
        self._sums: dict[int, _Sum] = {}
        self._told: dict[str, int] = dict.fromkeys(members, 0)

    def check(self, message: Message) -> None:
        super().check(message)
        if not self._own.has(message.kind):
            return
        if message.sender not in self.members:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r}; it is refused")
        if message.integer("session") != self._tag:
            raise ProtocolError(f"{message.sender} masks with keys of another attempt; its message is refused")
        self._check_masked(message)

    def _check_masked(self, message: Message) -> None:
        kind, number = message.text("kind"), message.integer("number")
        if kind not in SUMMED or number != self._told[message.sender]:
            raise ProtocolError(f"{message.sender} sends {kind!r} out of turn; it is refused")
        packing = MessagePacking(SUMMED[kind], self.inner.sizes, len(self.members))
        known = self._sums.get(number)
        size = packing.size if not packing.raw else len(known.total if known is not None else message["words"])
        if len(message["words"]) != size or len(message["integers"]) != len(packing.integers):
            raise ProtocolError(f"{message.sender}: a masked {kind!r} has {len(message['words'])} words; refused")
        if known is not None and (known.kind != kind or (known.integers != message["integers"]).any()):
            raise ProtocolError(f"{message.sender} sends another {kind!r} than those before; it is refused")

    def take(self, message: Message) -> Sends:
        number = message.integer("number")
        found = self._sums.setdefault(number, _Sum(message.text("kind"), message["integers"]))
        words = message["words"].view(np.uint64)
        if found.came:
            found.total += words
        else:
            found.total = words.copy()
        found.came += 1
        self._told[message.sender] += 1
        if found.came < len(self.members):
            return ()
        del self._sums[number]
        packing = MessagePacking(SUMMED[found.kind], self.inner.sizes, len(self.members))
        return self.found(packing.unpack(found.total, found.integers, self.together))

    def outwards(self, messages: Sends) -> Sends:
        sends: list[Message] = []
        for one in messages:
            sends += readdressed(one, self.members) if one.receiver == self.together else [one]
        return sends
