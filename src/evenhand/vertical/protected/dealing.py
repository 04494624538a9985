"""Compute X_kᵀν by Beaver triples from a third party without data, modulo 2⁶⁴.

Party k and the dealer share a seed. From it both draw A_k, of the shape of X_k, and c_k for every round. The server and
the dealer share a seed for b. The dealer sends the server d_k = A_kᵀb − c_k. The party sends X_k − A_k once. In a round
the server sends ν − b, and (X_k − A_k)ᵀb + d_k. By Xᵀν = Xᵀ(ν − b) + (X − A)ᵀb + Aᵀb the party gets its product.

Every message is uniform to its receiver, and every number is used once. Seeds are those of the session
(`privacy/key_exchange.py`), so a carrier of the dealer's messages learns nothing and cannot take the dealer's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_products import ProductGrid, times
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.pairwise import Words, stream
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.vertical.protected.messages import (
    CORRECTIONS,
    HIDDEN_COLUMNS,
    HIDDEN_DERIVATIVE,
    JOINING,
    NEXT_TRIPLE,
    TRIPLES,
)
from evenhand.vertical.protected.products import ProductParty, ProductServer

NO_MORE: Final = -1
"""Number of a triple that means: no more triples are needed."""


def _columns_mask(seed: bytes, columns: int, rows: int) -> Words:
    """Return A_k, (m, n)."""
    return stream(seed, "columns", columns * rows).reshape(columns, rows)


def _answer_mask(seed: bytes, number: int, columns: int) -> Words:
    """Return c_k."""
    return stream(seed, f"answer {number}", columns)


def _nu_mask(seed: bytes, number: int, rows: int) -> Words:
    """Return b."""
    return stream(seed, f"derivative {number}", rows)


class DealerRole(Role):
    """Deals matching random numbers. It has no data, and knows only the numbers of rows, columns and rounds."""

    vocabulary = TRIPLES
    state_fields: ClassVar = {
        "_columns": dict[str, int],
        "_asked": int | None,
    }

    def __init__(self, name: str, rows: int, members: Sequence[str], session: Session, context: str) -> None:
        super().__init__(name, {"rows": rows})
        self.rows, self.members = rows, tuple(members)
        self._seeds = {peer: session.seed(peer, f"triples {context}") for peer in (SERVER, *members)}
        self._columns: dict[str, int] = {}
        self._masks: dict[str, Words] = {}
        self._asked: int | None = None

    def handle(self, message: Message) -> Sends:
        sender = message.sender
        if message.kind == JOINING.kind and sender in self.members and sender not in self._columns:
            self._columns[sender] = message.integer("columns")
            return self._answer()
        if message.kind == NEXT_TRIPLE.kind and sender == SERVER and self._asked is None:
            if message.integer("number") != NO_MORE:
                self._asked = message.integer("number")
                return self._answer()
            self.done = True
            self._seeds, self._masks, self._columns = {}, {}, {}
            return ()
        raise ProtocolError(f"the dealer takes no {message.kind!r} from {sender!r} at this point")

    def _answer(self) -> Sends:
        """Return the requested triple once all participants have joined."""
        if self._asked is None or len(self._columns) < len(self.members):
            return ()
        number, self._asked = self._asked, None
        return [self._corrections(number)]

    def _corrections(self, number: int) -> Message:
        nu = _nu_mask(self._seeds[SERVER], number, self.rows)
        found = []
        for name in self.members:
            columns, seed = self._columns[name], self._seeds[name]
            if name not in self._masks:
                self._masks[name] = _columns_mask(seed, columns, self.rows)
            found.append(times(self._masks[name], nu) - _answer_mask(seed, number, columns))
            self.effort += float(columns * self.rows)
        return CORRECTIONS.message(self.name, SERVER, number=number, words=np.concatenate(found).view(np.int64))

    def resumed(self) -> Sends:
        """Wait for everybody to join again: the attempt has new seeds."""
        self._columns = {}
        return ()

    def restored(self) -> None:
        self._masks = {}


class DealtParty(ProductParty):
    """Sends its columns hidden, once, and computes its product from the server's messages."""

    def __init__(
        self, inner: Role, grid: ProductGrid, words: Words, dealer: str, session: Session, context: str
    ) -> None:
        super().__init__(inner, TRIPLES, grid, words)
        self._dealer = dealer
        self._seed = session.seed(dealer, f"triples {context}")

    def start(self) -> Sends:
        return [*self._joining(), *super().start()]

    def resumed(self) -> Sends:
        return [*self._joining(), *super().resumed()]

    def _joining(self) -> Sends:
        """Hide the columns behind the seed of this attempt."""
        hidden = self.words - _columns_mask(self._seed, *self.words.shape)
        return [
            JOINING.message(self.name, self._dealer, columns=len(self.words)),
            HIDDEN_COLUMNS.message(self.name, SERVER, words=hidden.view(np.int64)),
        ]

    def take(self, message: Message) -> Sends:
        if message.kind == HIDDEN_DERIVATIVE.kind and message.sender == SERVER and self._seed:
            own = times(self.words, message["nu"].view(np.uint64))
            mask = _answer_mask(self._seed, message.integer("number"), len(self.words))
            product = own + message["words"].view(np.uint64) + mask
            return self.told(message, product, message.integer("scale"))
        raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")

    def ended(self) -> Sends:
        self._seed = b""
        return ()


class DealtServer(ProductServer):
    """Sends ν behind b, with a new triple for every round."""

    state_fields: ClassVar = {"_columns": dict[str, Words], "_corrections": Words | None}

    def __init__(
        self, inner: Role, grid: ProductGrid, members: Sequence[str], dealer: str, session: Session, context: str
    ) -> None:
        super().__init__(inner, TRIPLES, grid, members)
        self._dealer = dealer
        self._seed = session.seed(dealer, f"triples {context}")
        self._columns: dict[str, Words] = {}
        self._corrections: Words | None = None

    def resumed(self) -> Sends:
        self._columns, self._corrections = {}, None
        return super().resumed()

    @property
    def ready(self) -> bool:
        return self._corrections is not None and len(self._columns) == len(self.members)

    def take(self, message: Message) -> Sends:
        sender, kind = message.sender, message.kind
        if self.done and kind == HIDDEN_COLUMNS.kind:
            # A party that was resumed for the last messages only.
            return ()
        if kind == HIDDEN_COLUMNS.kind and sender in self.members and sender not in self._columns:
            self._columns[sender] = message["words"].view(np.uint64)
            return self.proceed()
        wanted = self._corrections is None and self._waiting is not None
        if kind == CORRECTIONS.kind and sender == self._dealer and wanted and message.integer("number") == self.number:
            self._corrections = message["words"].view(np.uint64)
            return self.proceed()
        raise ProtocolError(f"the server takes no {kind!r} from {sender!r} at this point")

    def hidden(self, about: dict[str, Any], nu: Words) -> Sends:
        mask = _nu_mask(self._seed, self.number, self.grid.rows)
        corrections, self._corrections = self._corrections, None
        assert corrections is not None
        widths = [len(self._columns[name]) for name in self.members]
        if sum(widths) != len(corrections):
            raise ProtocolError(f"the dealer sends {len(corrections)} corrections for {sum(widths)} columns")
        body = about | {"number": self.number, "nu": (nu - mask).view(np.int64)}
        sends: list[Message] = []
        for name, correction in zip(self.members, np.split(corrections, np.cumsum(widths)[:-1]), strict=True):
            words = times(self._columns[name], mask) + correction
            self.spent += float(self._columns[name].size)
            sends.append(HIDDEN_DERIVATIVE.message(SERVER, name, **body, words=words.view(np.int64)))
        return sends

    def ask(self) -> Sends:
        return [NEXT_TRIPLE.message(SERVER, self._dealer, number=self.number)]

    def ended(self) -> Sends:
        self._seed = b""
        self._corrections, self._columns = None, {}
        return [NEXT_TRIPLE.message(SERVER, self._dealer, number=NO_MORE)]
