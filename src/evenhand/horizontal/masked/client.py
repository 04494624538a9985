"""Mask the answers of the client of any solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Bytes, Integers
from evenhand.errors import ProtocolError, RunError
from evenhand.horizontal.masked import messages
from evenhand.horizontal.masked.messages import AGREED, EXCHANGE, MASKED, OPENED, UNMASK, VOUCHED
from evenhand.horizontal.masked.packing import AnswerWords
from evenhand.horizontal.problem import Summed
from evenhand.horizontal.roles import HorizontalClient
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.neighbours import Company, ascending, least_of, smallest_sum
from evenhand.privacy.secret_sums import VOUCHER_BYTES, Member
from evenhand.protocol.messages import Message, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms


class MaskedClient(HorizontalClient):
    """Client that masks the answers of an inner client.

    The server says who is asked and who has answered. The client checks both: positions in order and each once, as many
    as the terms prescribe, the same at the other clients, and no combination of sums with too few clients.

    Parameters
    ----------
    inner
        The client of the solver.
    session
        The client's secrets in this attempt. A resumed run has another session, so no mask is used twice.
    summed
        Called with the names of the clients in a sum before it is opened, to hold it against sums of other runs.
    """

    state_fields: ClassVar = {
        "members": Integers,
        "exchange": int,
        "awaits": bool,
        "present": Integers,
        "boxes": Bytes,
        "sums": list[Integers],
        "inner": HorizontalClient,
    }

    def __init__(
        self, terms: HorizontalTerms, inner: HorizontalClient, session: Session, summed: Summed | None = None
    ) -> None:
        super().__init__(inner.name, inner.sizes)
        self._summed = summed
        self.inner = inner
        self.vocabulary = Vocabulary(*inner.vocabulary, *messages.VOCABULARY)
        self.names = terms.names
        self.place = terms.names.index(inner.name)
        self.context = terms.digest
        self.members: Integers = np.zeros(0, dtype=np.int64)
        self.exchange = 0
        # Whether an answer was sent and its masks are not yet removed from the sum.
        self.awaits = False
        # Who has answered, and the sealed shares of their masks, until other clients have vouched for it.
        self.present: Integers = np.zeros(0, dtype=np.int64)
        self.boxes: Bytes = np.zeros((0, 0), dtype=np.uint8)
        # Clients of the sums that were opened, each set once.
        self.sums: list[Integers] = []
        asked = round(terms.job.options.get("participation", 1.0) * len(self.names))
        self.fewest = max(least_of(asked), terms.job.least_summed)
        self.least_apart = 1 if terms.noise_covers else terms.job.least_summed
        # What was answered and opened does not go back with the state.
        self._answered = 0
        self._opened: set[tuple[int, ...]] = set()
        self._member = Member(self.place, session, self.names, terms.digest)

    def own_multipliers(self) -> Array:
        return self.inner.own_multipliers()

    def start(self) -> Sends:
        return self._sent(self.inner.start())

    def handle(self, message: Message) -> Sends:
        if message.kind == EXCHANGE.kind:
            return self._take_exchange(message)
        if message.kind == UNMASK.kind:
            return self._vouch(message)
        if message.kind == AGREED.kind:
            return self._open(message)
        return self._sent(self.inner.receive(message))

    def asked(self, message: Message) -> bytes:
        # Keys and shares are new in each attempt, and the solver's client records its own questions.
        if message.kind == EXCHANGE.kind:
            return message["members"].tobytes()
        return message["present"].tobytes() if message.kind == UNMASK.kind else b""

    def work(self) -> Sends:
        return self._sent(self.inner.work())

    def _take_exchange(self, message: Message) -> Sends:
        members, exchange = message["members"].tolist(), message.integer("exchange")
        known = self.place in members and set(members) <= set(range(len(self.names)))
        if self.awaits or exchange <= max(self.exchange, self._answered) or not known or not ascending(members):
            raise ProtocolError(f"{self.name} refuses exchange {exchange}: its number or its members are wrong")
        if len(members) < self.fewest:
            raise ProtocolError(
                f"{self.name} refuses exchange {exchange} among {len(members)} clients; by the terms at least "
                f"{self.fewest} are asked"
            )
        self.exchange, self.members = exchange, message["members"]
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
        if self.awaits:
            raise ProtocolError(f"{self.name} was asked again before its last answer was summed")
        company = self.company
        packing = AnswerWords.of(answers, self.inner.vocabulary, self.inner.sizes, len(self.names))
        words = packing.words(answers) + self._member.mask(company, packing.size)
        self.effort += float(words.size * len(company.neighbours(self.place)))
        self.awaits, self.done, self._answered = True, False, self.exchange
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
            ).hiding(answers)
        ]

    def _vouch(self, message: Message) -> Sends:
        """Check who has answered, and tell the other clients."""
        present = message["present"].tolist()
        if not self.awaits or len(self.present) or message.integer("exchange") != self.exchange:
            raise ProtocolError(f"{self.name} has no shares to open in exchange {message.integer('exchange')}")
        if self.place not in present or not ascending(present) or not set(present) <= set(self.members.tolist()):
            raise ProtocolError(f"{self.name} refuses {present} as the clients that have answered")
        if len(present) < self.inner.least_summed:
            raise RunError(
                f"{self.name} does not unmask a sum over {len(present)} clients: its share of the noise "
                f"needs {self.inner.least_summed} or more. Resume from the last checkpoint when they are back"
            )
        opened = self._opened | {tuple(present)}
        if (smallest := smallest_sum(opened)) < self.least_apart:
            raise RunError(
                f"{self.name} does not unmask a sum over clients {present}: with earlier sums it would show a sum over "
                f"{smallest} of them, and least_summed is {self.least_apart}. Resume when all clients are back, or "
                "accept dropouts with least_summed = 1"
            )
        if self._summed is not None:
            self._summed([self.names[place] for place in present])
        self.present, self.boxes, self._opened = message["present"], message["sealed"], opened
        self.sums = [np.array(one, dtype=np.int64) for one in sorted(opened)]
        company = self.company
        codes = [self._member.vouch(company, present, other) for other in company.neighbours(self.place)]
        return [VOUCHED.message(self.name, SERVER, exchange=self.exchange, vouchers=_as_rows(codes))]

    def _open(self, message: Message) -> Sends:
        if not len(self.present) or message.integer("exchange") != self.exchange:
            raise ProtocolError(f"{self.name} has no shares to open in exchange {message.integer('exchange')}")
        company, present = self.company, self.present.tolist()
        near = [other for other in company.neighbours(self.place) if other in present]
        if len(message["vouchers"]) != len(near):
            raise ProtocolError(f"{self.name} needs vouchers of {len(near)} clients, not {len(message['vouchers'])}")
        codes = {other: code.tobytes() for other, code in zip(near, message["vouchers"], strict=True)}
        self._member.check_vouched(company, present, codes)
        shares = self._member.opened(company, present, [box.tobytes() for box in self.boxes])
        self.awaits, self.done = False, self.inner.done
        self.present, self.boxes = self.present[:0], self.boxes[:0]
        return [OPENED.message(self.name, SERVER, exchange=self.exchange, shares=np.frombuffer(shares, dtype=np.uint8))]

    def restored(self) -> None:
        self._opened |= {tuple(one.tolist()) for one in self.sums}


def _as_rows(codes: Sequence[bytes]) -> Bytes:
    return np.frombuffer(b"".join(codes), dtype=np.uint8).reshape(len(codes), VOUCHER_BYTES)
