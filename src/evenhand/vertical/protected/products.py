"""Base classes of the layers that hide ν from passive parties and give them X_kᵀν instead.

The inner roles are unchanged, except that a party receives the product (`PRODUCT`) in place of ν. The product is in
fixed point (`privacy/fixed_products.py`). It is the same, bit for bit, however it was computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_products import ProductGrid, times
from evenhand.privacy.pairwise import Words
from evenhand.protocol.disclosure import Coverage, Direction
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.vertical.messages import DERIVATIVE, PRODUCT, WEIGHTED_DERIVATIVE
from evenhand.vertical.protected.layer import Layer
from evenhand.vertical.protected.messages import INTEGER

FIXED_DERIVATIVE = Schema(
    "fixed-derivative",
    {"round": INTEGER, "last": INTEGER, "step": Field("f8"), "scale": INTEGER, "nu": Field("i8", ("rows",))},
    direction=Direction("server", "passive party"),
    reveals="ν in fixed point, which reveals the same as derivative. For comparison with the levels that hide it.",
    coverage=Coverage(from_labels=True),
)


def heads(message: Message) -> dict[str, Any]:
    """Return the fields round, last and step of a message about ν."""
    step = message.number("step") if "step" in message.body else 0.0
    return {"round": message.integer("round"), "last": message.integer("last"), "step": step}


class ProductParty(Layer):
    """Passive party's side: keeps its columns as words, and gives the product to the inner role."""

    def __init__(self, inner: Role, own: Vocabulary, grid: ProductGrid, words: Words) -> None:
        super().__init__(inner, own)
        self.grid, self.words = grid, words
        self.sizes = {**self.sizes, "columns": len(words)}

    def check(self, message: Message) -> None:
        super().check(message)
        if message.kind in (DERIVATIVE.kind, WEIGHTED_DERIVATIVE.kind, PRODUCT.kind):
            raise ProtocolError(f"{self.name} takes no messages about single rows; {message.kind!r} is refused")

    def told(self, about: Message, product: Words, scale: int) -> Sends:
        """Give the product to the inner role; `about` has the other fields of the message."""
        values = self.grid.product(product, scale)
        return self.found(PRODUCT.message(SERVER, self.name, **heads(about), product=values))


class ProductServer(Layer):
    """Server's side: holds ν for passive parties until it can be sent in hidden form."""

    state_fields: ClassVar = {"number": int, "_waiting": Message | None}

    def __init__(self, inner: Role, own: Vocabulary, grid: ProductGrid, members: Sequence[str]) -> None:
        super().__init__(inner, own)
        self.grid, self.members = grid, tuple(members)
        self.number = 0
        self._waiting: Message | None = None

    def outwards(self, messages: Sends) -> Sends:
        """Hold back ν. All members receive the same ν, so one message is kept for all."""
        sends: list[Message] = []
        for one in messages:
            if one.kind not in (DERIVATIVE.kind, WEIGHTED_DERIVATIVE.kind) or one.receiver not in self.members:
                sends.append(one)
            elif self._waiting is None:
                self._waiting = one
                sends += self.ask()
        return [*sends, *self.proceed()]

    def ask(self) -> Sends:
        """Request what is needed to send ν."""
        return ()

    def proceed(self) -> Sends:
        """Send the waiting ν, if everything it needs has arrived."""
        if self._waiting is None or not self.ready:
            return ()
        message, self._waiting = self._waiting, None
        words, scale = self.grid.nu(message["nu"])
        sends = self.hidden(heads(message) | {"scale": scale}, words)
        self.number += 1
        return sends

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether ν can be sent now."""

    @abstractmethod
    def hidden(self, about: dict[str, Any], nu: Words) -> Sends:
        """Return messages that give every member the product with ν, and nothing else."""


class PlainProductParty(ProductParty):
    """Receives ν in words, in the clear, and multiplies. All other ways must give the same."""

    def __init__(self, inner: Role, grid: ProductGrid, words: Words) -> None:
        super().__init__(inner, Vocabulary(FIXED_DERIVATIVE), grid, words)

    def take(self, message: Message) -> Sends:
        return self.told(message, times(self.words, message["nu"].view(np.uint64)), message.integer("scale"))


class PlainProductServer(ProductServer):
    """Sends ν in words, in the clear."""

    def __init__(self, inner: Role, grid: ProductGrid, members: Sequence[str]) -> None:
        super().__init__(inner, Vocabulary(FIXED_DERIVATIVE), grid, members)

    @property
    def ready(self) -> bool:
        return True

    def take(self, message: Message) -> Sends:
        raise ProtocolError(f"the server takes no {message.kind!r}")

    def hidden(self, about: dict[str, Any], nu: Words) -> Sends:
        return [FIXED_DERIVATIVE.message(SERVER, name, **about, nu=nu.view(np.int64)) for name in self.members]
