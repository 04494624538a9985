"""The in-process runtime with faults: messages lost, late, doubled or overtaken, and roles that crash and come back.

What a transport and a process supervisor owe to roles is played here in full, so that solvers can be tested against
any schedule of faults: lost messages are sent again after a while, copies are discarded, order on a link is restored,
and a crashed role starts from its last saved state and goes through what it had received since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenhand.errors import InputError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Report, Role, State
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.inprocess import ARRIVAL, InProcess, Mailbox


@dataclass(frozen=True)
class Faults:
    """A schedule of faults, drawn from `seed`.

    Parameters
    ----------
    drop
        Probability that a transmission is lost; it is repeated after `timeout` seconds of virtual time.
    duplicate
        Probability that a message arrives twice.
    delay
        Mean of an exponential delay added to each transmission, which lets messages overtake each other.
    crashes
        For each role the numbers of those of its turns before which it crashes.
    save_every
        A role saves its state after this many turns; a crash loses what came later, and it is gone through again.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    timeout: float = 0.1
    crashes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    save_every: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"faults: {name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if self.save_every < 1:
            raise InputError(f"faults: save_every is {self.save_every}; it must be at least 1")


@dataclass
class _Link:
    """One direction between two roles: running numbers, and what came too early."""

    sent: int = 0
    delivered: int = 0
    early: dict[int, Message] = field(default_factory=dict)


@dataclass
class _Memory:
    """What a role would find after a crash: its last saved state, and its turns since then."""

    state: State
    turns: list[Message | None] = field(default_factory=list)


class FaultyInProcess(InProcess):
    """`InProcess` under a schedule of faults."""

    def __init__(
        self,
        roles: Sequence[Role],
        faults: Faults,
        clock: VirtualClock | None = None,
        transcript: Transcript | None = None,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        super().__init__(roles, clock, transcript, on_report)
        self.faults = faults
        self._random = np.random.default_rng(faults.seed)
        self._links: dict[tuple[str, str], _Link] = {}
        self._numbers: dict[int, int] = {}
        self._memories: dict[str, _Memory] = {}
        self._turn = dict.fromkeys(self.mailboxes, 0)

    def _send(self, time: float, sender: str, message: Message) -> None:
        self.transcript.add(time, message)
        link = self._links.setdefault((sender, message.receiver), _Link())
        number, link.sent = link.sent, link.sent + 1
        for _ in range(1 + int(self._random.random() < self.faults.duplicate)):
            lost = int(self._random.geometric(1.0 - self.faults.drop)) - 1
            late = lost * self.faults.timeout + float(self._random.exponential(1.0)) * self.faults.delay
            arrival = time + late + self.clock.sending(sender, message.receiver, message.nbytes)
            self._numbers[self.scheduled] = number
            self._schedule(arrival, ARRIVAL, message.receiver, message)

    def _arrived(self, number: int, mailbox: Mailbox, message: Message) -> None:
        """Put what has arrived, and what it was waiting for, into the inbox: each message once, in order."""
        place = self._numbers.pop(number)
        link = self._links[message.sender, message.receiver]
        if place >= link.delivered:
            link.early[place] = message
        while link.delivered in link.early:
            mailbox.inbox.append(link.early.pop(link.delivered))
            link.delivered += 1

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        memory = self._memories.setdefault(name, _Memory(mailbox.role.snapshot()))
        if self._turn[name] in self.faults.crashes.get(name, ()):
            self._crash(mailbox.role, memory)
        memory.turns.append(mailbox.inbox[0] if mailbox.inbox else None)
        self._turn[name] += 1
        super()._serve(name, mailbox)
        if len(memory.turns) >= self.faults.save_every:
            self._memories[name] = _Memory(mailbox.role.snapshot())

    def _crash(self, role: Role, memory: _Memory) -> None:
        """Forget everything since the last saved state, then go through the same turns again.

        What the role sends meanwhile has been sent before (roles are deterministic), so it is discarded.
        """
        role.restore(memory.state)
        for message in memory.turns:
            if message is None:
                role.work()
            else:
                role.receive(message)
        role.take_reports()
