"""Mask the answers of the client of any solver."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Bytes, Integers
from evenhand.errors import ProtocolError, RunError
from evenhand.horizontal.masked import messages
from evenhand.horizontal.masked.messages import EXCHANGE, KEY, KEYS, MASKED, OPENED, UNMASK
from evenhand.horizontal.masked.packing import AnswerWords
from evenhand.horizontal.roles import HorizontalClient
from evenhand.privacy.neighbours import Company
from evenhand.privacy.pairwise import new_secret, public_half
from evenhand.privacy.secret_sums import Member
from evenhand.protocol.messages import Message, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms


class MaskedClient(HorizontalClient):
    """Client that masks the answers of an inner client.

    Parameters
    ----------
    inner
        The client of the solver.
    secret
        Secret half of the client's key; drawn from the operating system unless given.
    """

    state_fields: ClassVar = {
        "secret": str,
        "keys": Bytes,
        "members": Integers,
        "exchange": int,
        "awaits": bool,
        "inner": HorizontalClient,
    }

    def __init__(self, terms: HorizontalTerms, inner: HorizontalClient, secret: bytes | None = None) -> None:
        super().__init__(inner.name, inner.sizes)
        self.inner = inner
        self.vocabulary = Vocabulary(*inner.vocabulary, *messages.VOCABULARY)
        self.names = terms.names
        self.place = terms.names.index(inner.name)
        self.context = terms.digest
        self.secret = (new_secret() if secret is None else secret).hex()
        self.keys: Bytes = np.zeros((0, 32), dtype=np.uint8)
        self.members: Integers = np.zeros(0, dtype=np.int64)
        self.exchange = 0
        # Whether an answer was sent and its masks are not yet removed from the sum.
        self.awaits = False
        self._member: Member | None = None

    def own_multipliers(self) -> Array:
        return self.inner.own_multipliers()

    def start(self) -> Sends:
        key = np.frombuffer(public_half(bytes.fromhex(self.secret)), dtype=np.uint8)
        return [KEY.message(self.name, SERVER, key=key), *self._sent(self.inner.start())]

    def handle(self, message: Message) -> Sends:
        if message.kind == KEYS.kind:
            return self._take_keys(message)
        if message.kind == EXCHANGE.kind:
            return self._take_exchange(message)
        if message.kind == UNMASK.kind:
            return self._open(message)
        return self._sent(self.inner.receive(message))

    def work(self) -> Sends:
        return self._sent(self.inner.work())

    def _take_keys(self, message: Message) -> Sends:
        keys = message["keys"]
        if len(self.keys) or len(keys) != len(self.names):
            raise ProtocolError(f"{self.name} refuses {len(keys)} keys at this point")
        self._member = self._made(keys)
        self.keys = keys
        return ()

    def _made(self, keys: Bytes) -> Member:
        by_place = {place: key.tobytes() for place, key in enumerate(keys)}
        return Member(self.place, bytes.fromhex(self.secret), by_place, self.context.encode())

    def _take_exchange(self, message: Message) -> Sends:
        members, exchange = message["members"], message.integer("exchange")
        known = len(self.keys) > 0 and self.place in members and np.isin(members, range(len(self.names))).all()
        if self.awaits or exchange <= self.exchange or not known:
            raise ProtocolError(f"{self.name} refuses exchange {exchange}: its number or its members are wrong")
        self.exchange, self.members = exchange, members
        return ()

    @property
    def company(self) -> Company:
        """Clients that were asked in the same exchange."""
        return Company(tuple(self.members.tolist()), f"{self.context} {self.exchange}")

    def _sent(self, answers: Sends) -> Sends:
        """Return all answers of the inner client in one masked message."""
        self.effort, self.done = self.inner.effort, self.inner.done and not self.awaits
        if not answers:
            return ()
        if self.awaits or self._member is None:
            raise ProtocolError(f"{self.name} was asked again before its last answer was summed")
        company = self.company
        packing = AnswerWords.of(answers, self.inner.vocabulary, self.inner.sizes, len(self.names))
        words = packing.words(answers) + self._member.mask(company, packing.size)
        self.effort += float(words.size * len(company.neighbours(self.place)))
        self.awaits, self.done = True, False
        sealed = [np.frombuffer(box, dtype=np.uint8) for box in self._member.sealed(company)]
        return [
            MASKED.message(
                self.name,
                SERVER,
                exchange=self.exchange,
                kinds=as_bytes(",".join(packing.kinds)),
                alike=packing.alike(answers),
                free=packing.free,
                words=words.view(np.int64),
                sealed=np.stack(sealed),
            )
        ]

    def _open(self, message: Message) -> Sends:
        if not self.awaits or message.integer("exchange") != self.exchange or self._member is None:
            raise ProtocolError(f"{self.name} has no shares to open in exchange {message.integer('exchange')}")
        if len(message["present"]) < self.inner.least_summed:
            raise RunError(
                f"{self.name} does not unmask a sum over {len(message['present'])} clients: its share of the noise "
                f"needs {self.inner.least_summed} or more. Resume from the last checkpoint when they are back"
            )
        boxes = [box.tobytes() for box in message["sealed"]]
        shares = self._member.opened(self.company, message["present"].tolist(), boxes)
        self.awaits, self.done = False, self.inner.done
        return [OPENED.message(self.name, SERVER, exchange=self.exchange, shares=np.frombuffer(shares, dtype=np.uint8))]

    def restored(self) -> None:
        self._member = self._made(self.keys) if len(self.keys) else None
