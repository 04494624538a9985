"""Wrap the server of any solver, so that it learns only sums over clients.

Round:

1. The solver's server asks clients a question. This server forwards it.
2. Each client answers with its numbers under masks, and with shares of the masks' secrets, sealed for its neighbours.
3. The server tells clients which answers have arrived. They agree on that list by vouchers.
4. Each client opens the shares it may: those that remove the masks of the clients on the list.
5. The server removes the masks from the sum, and hands the sum to the solver's server.
6. The solver's server decides whether to ask again, and ends the run by its own rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from evenhand.arrays import Bytes, Integers
from evenhand.constraints.proving import Proof
from evenhand.errors import ProtocolError, RunError
from evenhand.horizontal.masked import messages
from evenhand.horizontal.masked.messages import AGREED, EXCHANGE, MASKED, OPENED, UNMASK, VOUCHED
from evenhand.horizontal.masked.packing import AnswerWords
from evenhand.horizontal.roles import HorizontalServer, Outcome
from evenhand.privacy.neighbours import Company, least_of
from evenhand.privacy.secret_sums import VOUCHER_BYTES, left_over, sealed_bytes
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import HorizontalTerms

Stage = Literal["answers", "agreeing", "shares"]


class SummingServer(HorizontalServer):
    """Server that adds masked answers, removes the masks from the sum, and gives the sum to the solver's server.

    Parameters
    ----------
    inner
        The server of the solver.

    Attributes
    ----------
    gone
        Indices of clients that will not answer any more.
    asked
        Clients that the solver's server asked last; it gets answers in the names of all of them.
    """

    vocabulary = messages.VOCABULARY
    state_fields: ClassVar = {
        "stage": Stage,
        "exchange": int,
        "members": Integers,
        "asked": Integers,
        "total": Integers,
        "alike": Integers,
        "free": Integers,
        "kinds": str,
        "gone": Integers,
        "_sealed": dict[int, Bytes],
        "_vouched": dict[int, Bytes],
        "_opened": dict[int, Bytes],
        "inner": HorizontalServer,
    }

    def __init__(self, terms: HorizontalTerms, inner: HorizontalServer) -> None:
        super().__init__(SERVER, {})
        self.inner = inner
        self.names = terms.names
        self.context = terms.digest
        self.stage: Stage = "answers"
        self.exchange = 0
        self.members: Integers = np.zeros(0, dtype=np.int64)
        self.asked: Integers = np.zeros(0, dtype=np.int64)
        self.gone: Integers = np.zeros(0, dtype=np.int64)
        self.total: Integers = np.zeros(0, dtype=np.int64)
        self.alike: Integers = np.zeros(0, dtype=np.int64)
        self.free: Integers = np.zeros(0, dtype=np.int64)
        self.kinds = ""
        # By client index: sealed shares of clients with received answers, vouchers, and opened shares.
        self._sealed: dict[int, Bytes] = {}
        self._vouched: dict[int, Bytes] = {}
        self._opened: dict[int, Bytes] = {}
        self._rests = False

    # -- results of the solver's server

    @property
    def certificate(self) -> Certificate | None:
        return self.inner.certificate

    def outcome(self) -> Outcome:
        return self.inner.outcome()

    def shortfall(self) -> str:
        return self.inner.shortfall()

    def proofs(self) -> list[Proof]:
        return self.inner.proofs()

    # -- messages

    @property
    def at_rest(self) -> bool:
        return self._rests

    def start(self) -> Sends:
        return self._forwarded(self.inner.start())

    def handle(self, message: Message) -> Sends:
        self._rests = False
        place = self._place(message)
        if message.kind == MASKED.kind and self._fits(message, place) and place not in self._sealed:
            return self._take_answer(message, place)
        if message.kind == VOUCHED.kind and self.stage == "agreeing" and self._awaits(message, place, self._vouched):
            if len(message["vouchers"]) != len(self.company.neighbours(place)):
                raise ProtocolError(f"{message.sender} sent {len(message['vouchers'])} vouchers; they are refused")
            self._vouched[place] = message["vouchers"]
            return self._go_on()
        if message.kind == OPENED.kind and self.stage == "shares" and self._awaits(message, place, self._opened):
            self._opened[place] = message["shares"]
            return self._go_on()
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")

    def lost(self, name: str) -> Sends:
        """Continue without a client, as long as enough are left."""
        place = self.names.index(name)
        self.gone = np.union1d(self.gone, [place]).astype(np.int64)
        return () if self.done else self._go_on()

    def _place(self, message: Message) -> int:
        if message.sender not in self.names:
            raise ProtocolError(f"{message.sender!r} is not a client of this run; its message is refused")
        return self.names.index(message.sender)

    def _fits(self, message: Message, place: int) -> bool:
        return self.stage == "answers" and message.integer("exchange") == self.exchange and place in self.members

    def _awaits(self, message: Message, place: int, came: Mapping[int, Bytes]) -> bool:
        return message.integer("exchange") == self.exchange and place in self._sealed and place not in came

    # -- an exchange

    def _forwarded(self, sends: Sends) -> Sends:
        """Forward the messages of the solver's server to the remaining clients, with the members of the exchange."""
        self.effort, self.done = self.inner.effort, self.inner.done
        self.reports += self.inner.take_reports()
        if not sends:
            return ()
        asked = sorted({self.names.index(message.receiver) for message in sends})
        self.asked = np.array(asked, dtype=np.int64)
        self.members = np.setdiff1d(self.asked, self.gone)
        if not self.done and len(self.members) < least_of(len(asked)):
            raise RunError(self._too_few(len(self.members), len(asked)))
        self.exchange += 1
        self.stage, self.kinds, self.total = "answers", "", np.zeros(0, dtype=np.int64)
        self._sealed, self._vouched, self._opened = {}, {}, {}
        out: list[Message] = []
        for place in self.members.tolist():
            name = self.names[place]
            if not self.done:
                out.append(EXCHANGE.message(SERVER, name, exchange=self.exchange, members=self.members))
            out += [message for message in sends if message.receiver == name]
        return out

    @property
    def company(self) -> Company:
        return Company(tuple(self.members.tolist()), f"{self.context} {self.exchange}")

    def _packing(self, kinds: str, free: Integers) -> AnswerWords:
        sizes = {**self.inner.sizes, **self.inner.sizes_of(self.names[int(self.asked[0])])}
        return AnswerWords(tuple(kinds.split(",")), self.inner.vocabulary, sizes, len(self.names), tuple(free.tolist()))

    def _take_answer(self, message: Message, place: int) -> Sends:
        kinds, company = message.text("kinds"), self.company
        packing = self._packing(kinds, message["free"])
        boxes = (len(company.neighbours(place)), sealed_bytes(company))
        same = not self._sealed or (
            kinds == self.kinds
            and np.array_equal(message["alike"], self.alike)
            and np.array_equal(message["free"], self.free)
        )
        if not same or len(message["alike"]) != packing.count_alike or len(message["words"]) != packing.size:
            raise ProtocolError(
                f"{message.sender} answers {kinds!r} with other fields than the other clients; its answer is refused"
            )
        if message["sealed"].shape != boxes:
            raise ProtocolError(f"{message.sender} sent sealed shares of shape {message['sealed'].shape}, not {boxes}")
        if not self._sealed:
            self.kinds, self.alike, self.free = kinds, message["alike"], message["free"]
            self.total = np.zeros(packing.size, dtype=np.int64)
        # 64-bit integers wrap around when added, which is the sum modulo 2⁶⁴.
        self.total = self.total + message["words"]
        self._sealed[place] = message["sealed"]
        return self._go_on()

    def _go_on(self) -> Sends:
        """Take the next step if no answer is outstanding."""
        gone = set(self.gone.tolist())
        if self.stage == "answers" and set(self.members.tolist()) <= gone | self._sealed.keys():
            return self._say_who_is_present(gone)
        if self.stage == "agreeing" and self._sealed.keys() <= gone | self._vouched.keys():
            return self._ask_for_shares(gone)
        if self.stage == "shares" and self._sealed.keys() <= gone | self._opened.keys():
            return self._add_up()
        return ()

    def _say_who_is_present(self, gone: set[int]) -> Sends:
        company, present = self.company, sorted(self._sealed)
        if len(present) < company.least:
            raise RunError(self._too_few(len(present), len(company.members)))
        self.stage = "agreeing"
        told = []
        for place in present:
            if place in gone:
                continue
            near = [other for other in company.neighbours(place) if other in self._sealed]
            boxes = [self._sealed[other][company.neighbours(other).index(place)] for other in near]
            sealed = np.stack(boxes) if boxes else np.zeros((0, 0), dtype=np.uint8)
            body = {"exchange": self.exchange, "present": np.array(present), "sealed": sealed}
            told.append(UNMASK.message(SERVER, self.names[place], **body))
        return told

    def _ask_for_shares(self, gone: set[int]) -> Sends:
        """Pass on what clients vouch for to their neighbours; those of lost clients are zeros."""
        company = self.company
        self.stage = "shares"
        told = []
        for place in sorted(self._vouched.keys() - gone):
            near = [other for other in company.neighbours(place) if other in self._sealed]
            if (vouching := 1 + len(self._vouched.keys() & set(near))) < company.quorum:
                raise RunError(self._too_few(vouching, len(company.members)))
            vouchers = np.zeros((len(near), VOUCHER_BYTES), dtype=np.uint8)
            for number, other in enumerate(near):
                if other in self._vouched:
                    vouchers[number] = self._vouched[other][company.neighbours(other).index(place)]
            told.append(AGREED.message(SERVER, self.names[place], exchange=self.exchange, vouchers=vouchers))
        return told or self._add_up()

    def _add_up(self) -> Sends:
        packing, present = self._packing(self.kinds, self.free), sorted(self._sealed)
        told = {place: shares.tobytes() for place, shares in self._opened.items()}
        words = self.total.view(np.uint64) - left_over(self.company, packing.size, present, told)
        asked = [self.names[place] for place in self.asked.tolist()]
        sends: list[Message] = []
        for answer in packing.dealt(packing.sums(words), self.alike, asked):
            sends += self.inner.receive(answer)
        self.effort += float(packing.size * len(present))
        # All clients that are left have opened their shares, and the next exchange has not begun.
        self._rests = True
        return self._forwarded(sends)

    def _too_few(self, left: int, of: int) -> str:
        return (
            f"{left} of {of} clients are left, fewer than the {least_of(of)} that a sum needs; the run stops. Resume "
            "from the last checkpoint when they are back"
        )

    # -- state
