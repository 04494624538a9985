"""The in-process runtime with faults: packets lost, late, doubled, overtaken or damaged, cut networks, crashing roles.

Messages go over real links (`runtime/links`), as the bytes a network would carry; a process supervisor is played in
full. What a participant has acknowledged lies in its log, so a crashed role starts from its last saved state and goes
through what it has taken since; everything else about its links it has forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evenhand.errors import InputError, ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Follower, Report, Role, Sends
from evenhand.protocol.state import State, snapshot
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import ARRIVAL, READY, Event, InProcess, Mailbox, VirtualClock
from evenhand.runtime.links import LinkEnd, LinkSettings
from evenhand.runtime.packets import Content, packet_bytes, packet_from


class Cut(NamedTuple):
    """A network that is cut from one moment to another: nothing passes between those named and everybody else."""

    begins: float
    ends: float
    names: tuple[str, ...]

    def stops(self, time: float, sender: str, receiver: str) -> bool:
        return self.begins <= time < self.ends and (sender in self.names) != (receiver in self.names)


@dataclass(frozen=True)
class Faults:
    """A schedule of faults, drawn from `seed`.

    Parameters
    ----------
    drop
        Probability that a packet is lost.
    duplicate
        Probability that a packet arrives twice.
    corrupt
        Probability that a packet is damaged under way: a bit flipped, or its end missing.
    delay
        Mean of an exponential delay added to each packet, which lets packets overtake each other.
    timeout
        Seconds of virtual time after which what was not acknowledged is sent again.
    cuts
        When the network is cut, and between whom.
    crashes
        For each role the numbers of those of its turns before which it crashes.
    downtime
        How long a crashed role is away; what arrives meanwhile is lost.
    gone
        For each role that goes away for good, the number of its turn from which on it does nothing more.
    save_every
        A role saves its state after this many turns; a crash loses what came later, and it is gone through again.
    window
        Most messages under way on a link.
    patience
        After how many timeouts without any sign of life, or without any turn of any role, the run is given up.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.0
    timeout: float = 0.1
    cuts: Sequence[Cut] = ()
    crashes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    downtime: float = 0.0
    gone: Mapping[str, int] = field(default_factory=dict)
    save_every: int = 3
    window: int = 256
    patience: float = 1e4
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "corrupt"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"faults: {name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if self.save_every < 1:
            raise InputError(f"faults: save_every is {self.save_every}; it must be at least 1")

    def links(self, bandwidth: float) -> LinkSettings:
        """On lines of so many bytes a second."""
        wait = self.timeout
        return LinkSettings(self.window, wait, 16 * wait, 20 * wait, self.patience * wait, slowest=bandwidth)


@dataclass
class _Memory:
    """What a role would find after a crash: its last saved state, what its links had to send then, its turns since."""

    state: State
    posted: Mapping[str, State]
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
        self._links = faults.links(self.clock.bandwidth)
        self._random = np.random.default_rng(faults.seed)
        self._ends: dict[tuple[str, str], LinkEnd] = {}
        """By owner and peer."""
        self._under_way: dict[int, tuple[str, Content]] = {}
        """By the number of the event: from whom, and what arrives."""
        self._alarms: dict[int, str] = {}
        self._alarm: dict[tuple[str, str], tuple[float, int]] = {}
        """By the number of the event whose link is to be looked at, and of each link the next one and its time."""
        self._memories: dict[str, _Memory] = {}
        self._turn = dict.fromkeys(self.mailboxes, 0)
        self._away_until = dict.fromkeys(self.mailboxes, 0.0)
        self._crashed: set[tuple[str, int]] = set()
        self._held: set[str] = set()
        """Roles whose own work waits for slower ones."""
        self._last_turn = 0.0
        self._gone: set[str] = set()
        self._farewells: dict[int, str] = {}
        """By the number of the event at which somebody is told: who is gone."""

    # -- links

    def _end(self, owner: str, peer: str) -> LinkEnd:
        if (owner, peer) not in self._ends:
            self._ends[owner, peer] = LinkEnd(peer, self._links, self.time)
        return self._ends[owner, peer]

    def _send(self, time: float, sender: str, sends: Sends) -> None:
        for message in sends:
            if message.sender != sender or message.receiver not in self.mailboxes:
                raise self._misaddressed(sender, message)
            self.transcript.add(time, message)
            self._end(sender, message.receiver).post(message)
            self._transmit(time, sender, message.receiver)

    def _transmit(self, time: float, owner: str, peer: str) -> None:
        """Send what is due on a link, and see to it that nobody forgets what is due later."""
        if {owner, peer} & self._gone:
            return
        end = self._end(owner, peer)
        for packet in end.due(time):
            nbytes = 0 if packet.message is None else packet.message.nbytes
            content = packet_bytes(packet)
            for _ in range(1 + int(self._happens(self.faults.duplicate))):
                late = float(self._random.exponential(1.0)) * self.faults.delay if self.faults.delay else 0.0
                lost = self._happens(self.faults.drop) or any(cut.stops(time, owner, peer) for cut in self.faults.cuts)
                sent = self._damaged(content) if self._happens(self.faults.corrupt) else content
                if not lost:
                    self._under_way[self.scheduled] = owner, sent
                    self._schedule(time + late + self.clock.sending(owner, peer, nbytes), ARRIVAL, peer, None)
        self._set_alarm(time, owner, peer)

    def _set_alarm(self, time: float, owner: str, peer: str) -> None:
        at = self._end(owner, peer).wakes_at(resting=self.mailboxes[owner].role.done)
        at = max(at, time, self._away_until[owner])
        set_for, _ = self._alarm.get((owner, peer), (math.inf, 0))
        if at < set_for:
            self._alarm[owner, peer] = at, self.scheduled
            self._alarms[self.scheduled] = peer
            self._schedule(at, ARRIVAL, owner, None)

    def _happens(self, probability: float) -> bool:
        return probability > 0 and float(self._random.random()) < probability

    def _damaged(self, content: Content) -> Content:
        if self._happens(0.3):
            return content[: int(self._random.integers(len(content)))]
        damaged = bytearray(content)
        damaged[int(self._random.integers(len(content)))] ^= 1 << int(self._random.integers(8))
        return bytes(damaged)

    # -- events

    def _has_turn(self, event: Event) -> bool:
        _, _, number, owner, _ = event
        if number in self._farewells:
            self._tell_of_loss(owner, self._farewells.pop(number))
            return False
        if owner in self._gone:
            return False
        if number in self._alarms:
            self._rings(number, owner, self._alarms.pop(number))
        elif number in self._under_way:
            sender, content = self._under_way.pop(number)
            if self.time >= self._away_until[owner]:
                self._packet_arrived(owner, sender, content)
        else:
            return True
        mailbox = self.mailboxes[owner]
        return mailbox.idle and (bool(mailbox.inbox) or (owner in self._held and not self._holds_up(owner)))

    def _go_away(self, name: str, mailbox: Mailbox) -> None:
        """From now on it does nothing; after as long a silence as makes others wonder, they are told."""
        self._gone.add(name)
        mailbox.idle, mailbox.role.done = False, True
        for other in self.mailboxes:
            if other not in self._gone:
                self._farewells[self.scheduled] = name
                self._schedule(self.time + self._links.ping, ARRIVAL, other, None)

    def _tell_of_loss(self, name: str, lost: str) -> None:
        role = self.mailboxes[name].role
        # Whoever hears only the server is none the wiser for anybody else's silence.
        if name in self._gone or (isinstance(role, Follower) and lost != SERVER):
            return
        before = role.effort
        self._after(name, self.mailboxes[name], before, role.lost(lost))

    def _rings(self, number: int, owner: str, peer: str) -> None:
        if self._alarm.get((owner, peer), (0.0, -1))[1] != number:
            return
        del self._alarm[owner, peer]
        self._transmit(self.time, owner, peer)
        # Signs of life would go on for ever; a run does not.
        waiting = [name for name, mailbox in self.mailboxes.items() if not mailbox.role.done]
        if waiting and self.time - self._last_turn > self.faults.patience * self.faults.timeout:
            raise ProtocolError(f"the run stalled: nothing has moved, yet {', '.join(waiting)} wait for messages")

    def _packet_arrived(self, owner: str, sender: str, content: Content) -> None:
        try:
            packet = packet_from(content)
        except ProtocolError:
            # Damaged under way: as good as lost.
            return
        self.mailboxes[owner].inbox.extend(self._end(owner, sender).arrive(self.time, packet))
        self._transmit(self.time, owner, sender)

    def _holds_up(self, name: str) -> bool:
        return any(end.holds_up for (owner, _), end in self._ends.items() if owner == name)

    # -- turns

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        self._held.discard(name)
        if not mailbox.inbox and self._holds_up(name):
            # Others are slower than this one: its own work waits, messages it would still take.
            self._held.add(name)
            mailbox.idle = True
            return
        if name not in self._memories:
            self._save(name)
        turn = self._turn[name]
        if turn >= self.faults.gone.get(name, math.inf):
            self._go_away(name, mailbox)
            return
        if turn in self.faults.crashes.get(name, ()) and (name, turn) not in self._crashed:
            self._crashed.add((name, turn))
            self._crash(name, mailbox)
            if self.faults.downtime > 0:
                return
        message = mailbox.inbox[0] if mailbox.inbox else None
        self._memories[name].turns.append(message)
        self._turn[name] += 1
        if message is not None:
            self._end(name, message.sender).take()
        super()._serve(name, mailbox)
        if len(self._memories[name].turns) >= self.faults.save_every:
            self._save(name)

    def _after(self, name: str, mailbox: Mailbox, effort_before: float, sends: Sends) -> None:
        super()._after(name, mailbox, effort_before, sends)
        computed = self.clock.computing(name, mailbox.role.effort - effort_before)
        self._last_turn = max(self._last_turn, self.time + computed)

    def _save(self, name: str) -> None:
        posted = {peer: snapshot(end.outgoing) for (owner, peer), end in self._ends.items() if owner == name}
        self._memories[name] = _Memory(self.mailboxes[name].role.snapshot(), posted)

    def _crash(self, name: str, mailbox: Mailbox) -> None:
        """Forget everything since the last saved state, then go through the same turns again.

        What the role sends meanwhile was numbered before (roles are deterministic), so whoever has it drops the copy.
        """
        memory, role = self._memories[name], mailbox.role
        back = self.time + self.faults.downtime
        role.restore(memory.state)
        ends = {peer: end for (owner, peer), end in self._ends.items() if owner == name}
        for peer, end in ends.items():
            end.start_again(back, memory.posted.get(peer))
        for message in memory.turns:
            for sent in role.work() if message is None else role.receive(message):
                self._end(name, sent.receiver).post(sent)
        role.take_reports()
        role.take_traffic()
        role.take_opened()
        self._away_until[name] = back
        for peer in ends:
            self._set_alarm(back, name, peer)
        if self.faults.downtime > 0:
            mailbox.idle = False
            self._schedule(back, READY, name, None)
