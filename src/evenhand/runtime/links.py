"""Links: what a transport owes to roles, whatever it does to single packets.

Every message arrives once, in the order of sending, or the link says that the other is gone. Messages are numbered;
what is not acknowledged is sent again, copies are dropped, what came too early waits; who receives says how much more
it takes; who hears nothing asks, and gives up at last.

An end of a link is a state machine: it neither sends nor waits nor looks at a clock. A runtime tells it what time it
is, hands it what arrived, and sends what it says is due. The same ends run between machines and under the injected
faults of the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from evenhand.errors import InputError, LostError, ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.state import State, restore


@dataclass(frozen=True)
class LinkSettings:
    """How patient the ends of a link are, in seconds of whoever tells them the time.

    Parameters
    ----------
    window
        Most messages that may be under way, or wait for the receiver's role to take them.
    retry
        How long to wait for an acknowledgement before a message is sent again; doubled each time.
    longest_retry
        The most that this grows to.
    slowest
        Bytes a second that a line carries at least. As long as it may take to carry what is under way, that much longer
        is waited: a large message would else be sent again while it is still being sent.
    ping
        After how much silence to ask for a sign of life.
    patience
        After how much silence the other side is given up: longer than the largest message is under way, where the line
        carries nothing else meanwhile.
    linger
        How long an acknowledgement may wait for a message that says it as well.
    """

    window: int = 256
    retry: float = 2.0
    longest_retry: float = 30.0
    ping: float = 5.0
    patience: float = 120.0
    linger: float = 0.0
    slowest: float = 1e6

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InputError(f"links: window is {self.window}; it must be at least 1")
        if not 0 < self.retry <= self.longest_retry:
            raise InputError(f"links: retry is {self.retry}; it must be above 0 and at most longest_retry")
        if not self.slowest > 0:
            raise InputError(f"links: slowest is {self.slowest}; it must be above 0")
        if not 0 <= self.linger < self.retry:
            raise InputError(f"links: linger is {self.linger}; it must be at least 0 and below retry, {self.retry}")
        if not 0 < self.ping < self.patience:
            raise InputError(f"links: ping is {self.ping}; it must be above 0 and below patience, {self.patience}")


class Packet(NamedTuple):
    """What goes over a link: where the sender stands, and mostly a message.

    `have` messages have come from the other side, without a gap; it may send those numbered below `room`. A packet
    without a message has the number −1; `asks` wants an answer whatever else there is to say.
    """

    have: int
    room: int
    number: int = -1
    message: Message | None = None
    asks: bool = False


class Outgoing:
    """Messages to the other side, from the moment a role has sent them until they are acknowledged."""

    state_fields: ClassVar = {
        "posted": int,
        "acknowledged": int,
        "room": int,
        "_unacknowledged": dict[int, Message],
    }

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self.posted = 0
        self.acknowledged = 0
        self.room = settings.window
        self._unacknowledged: dict[int, Message] = {}
        self._next = 0
        """The first that has not been transmitted yet."""
        self._tries = 0
        self._tried = -math.inf
        """How often, and when last, the oldest message under way was transmitted."""
        self._under_way = 0
        """Bytes that were transmitted and are not acknowledged."""

    def post(self, message: Message) -> None:
        self._unacknowledged[self.posted] = message
        self.posted += 1

    @property
    def waiting(self) -> bool:
        """Whether messages wait because the other side takes no more at present."""
        return self._next < self.posted and self._next >= self.room

    @property
    def empty(self) -> bool:
        return not self._unacknowledged

    def acknowledge(self, now: float, have: int, room: int) -> None:
        # An older packet that was overtaken says less, and nothing new.
        self.room = max(self.room, room)
        if have > self.acknowledged:
            for number in range(self.acknowledged, have):
                nbytes = self._unacknowledged.pop(number).nbytes
                # After a crash here, what had arrived before may be acknowledged before it is transmitted anew.
                self._under_way -= nbytes if number < self._next else 0
            self.acknowledged, self._next = have, max(self._next, have)
            # The next one is given its own time: it was sent later.
            self._tries, self._tried = 0, now

    @property
    def ready(self) -> bool:
        """Whether there are messages that have not been transmitted yet and may be."""
        return self._next < min(self.posted, self.room)

    def due(self, now: float) -> list[tuple[int, Message]]:
        """Messages to transmit: the oldest again if it was not acknowledged in time, and those that were not yet."""
        found = []
        oldest = self.acknowledged
        if oldest < self._next and now >= self.retries_at:
            found.append((oldest, self._unacknowledged[oldest]))
        while self.ready:
            found.append((self._next, self._unacknowledged[self._next]))
            self._under_way += self._unacknowledged[self._next].nbytes
            self._next += 1
        if found and found[0][0] == oldest:
            self._tries, self._tried = self._tries + 1, now
        return found

    @property
    def retries_at(self) -> float:
        """When the oldest message under way is to be sent again."""
        if self.acknowledged == self._next:
            return math.inf
        again = max(self._tries - 1, 0)
        wait = min(self._settings.retry * 2.0 ** min(again, 60), self._settings.longest_retry)
        # Copies of the oldest are under way as well, as far as anybody knows.
        nbytes = self._under_way + again * self._unacknowledged[self.acknowledged].nbytes
        return self._tried + wait + nbytes / self._settings.slowest

    def restored(self) -> None:
        """Transmit everything again that had not been acknowledged."""
        self._next, self._tries, self._under_way = self.acknowledged, 0, 0


class Incoming:
    """Messages from the other side: in order, each once."""

    state_fields: ClassVar = {"have": int, "taken": int}

    def __init__(self, settings: LinkSettings) -> None:
        self._window = settings.window
        self.have = 0
        self.taken = 0
        self._early: dict[int, Message] = {}

    @property
    def room(self) -> int:
        """The other side may send messages numbered below."""
        return self.taken + self._window

    def arrive(self, number: int, message: Message) -> list[Message]:
        """What can be handed on now that this one is here."""
        if number >= self.room:
            raise ProtocolError(f"message {number} was refused: there is room for {self.room}, and that was said")
        if number >= self.have:
            self._early[number] = message
        ready = []
        while self.have in self._early:
            ready.append(self._early.pop(self.have))
            self.have += 1
        return ready

    def restored(self) -> None:
        """Forget messages that came out of order: they are sent again."""
        self._early.clear()


class LinkEnd:
    """One participant's end of its link to another.

    Parameters
    ----------
    peer
        Who is at the other end.
    now
        The time; silence is counted from it.
    """

    state_fields: ClassVar = {"outgoing": Outgoing, "incoming": Incoming}

    def __init__(self, peer: str, settings: LinkSettings, now: float) -> None:
        self.peer = peer
        self.settings = settings
        self.outgoing = Outgoing(settings)
        self.incoming = Incoming(settings)
        self._owes_at = math.inf
        """When a packet is owed, whether or not there is a message to go with it."""
        self._room_told = settings.window
        self._heard = now
        self._asked = now

    def post(self, message: Message) -> None:
        """Take a message to be sent."""
        self.outgoing.post(message)

    def arrive(self, now: float, packet: Packet) -> list[Message]:
        """Take a packet; returns the messages that are to be handed to the role, in order.

        A packet that this side cannot have been sent is a ProtocolError, and changes nothing.
        """
        if packet.have > self.outgoing.posted:
            raise ProtocolError(
                f"{self.peer} acknowledges {packet.have} messages and was sent {self.outgoing.posted}; it is refused"
            )
        ready = [] if packet.message is None else self.incoming.arrive(packet.number, packet.message)
        self.outgoing.acknowledge(now, packet.have, packet.room)
        self._heard = max(self._heard, now)
        if packet.asks:
            self._owes_at = -math.inf
        elif packet.message is not None:
            self._owes_at = min(self._owes_at, now + self.settings.linger)
        return ready

    def take(self) -> None:
        """The role has taken one message: there is room for another."""
        self.incoming.taken += 1
        # Told unasked only now and then: usually an answer says it anyway.
        if 2 * (self.incoming.room - self._room_told) >= self.settings.window:
            self._owes_at = -math.inf

    def due(self, now: float) -> list[Packet]:
        """Packets to send now."""
        self.check_alive(now)
        have, room = self.incoming.have, self.incoming.room
        asks = now >= self.asks_at
        packets = [Packet(have, room, number, message) for number, message in self.outgoing.due(now)]
        if not packets and (now >= self._owes_at or asks):
            packets.append(Packet(have, room, asks=asks))
        if packets:
            self._owes_at, self._room_told = math.inf, room
            if asks:
                self._asked = now
        return packets

    @property
    def asks_at(self) -> float:
        """When to ask for a sign of life: sooner if messages wait for room."""
        wait = self.settings.retry if self.outgoing.waiting else self.settings.ping
        return max(self._heard, self._asked) + min(wait, self.settings.ping)

    def wakes_at(self, resting: bool = False) -> float:
        """When `due` should be asked next; who rests answers and delivers, but does not wonder whether others live."""
        if self.outgoing.ready:
            return -math.inf
        asks_at = math.inf if resting and not self.outgoing.waiting else self.asks_at
        return min(self._owes_at, self.outgoing.retries_at, asks_at)

    @property
    def holds_up(self) -> bool:
        """Whether the other side is slower than this one sends; local work should wait."""
        return self.outgoing.waiting

    @property
    def delivered(self) -> bool:
        """Whether the other side has everything that was sent to it."""
        return self.outgoing.empty

    def check_alive(self, now: float) -> None:
        silent = now - self._heard
        if silent > self.settings.patience:
            raise LostError(
                f"{self.peer} has not been heard of for {silent:.3g} seconds; see whether it runs and can be reached, "
                "then go on from the last checkpoint"
            )

    def start_again(self, now: float, outgoing: State | None) -> None:
        """Go on after a crash that left the saved state of the outgoing side, and what was acknowledged."""
        if outgoing is None:
            self.outgoing = Outgoing(self.settings)
        else:
            restore(self.outgoing, outgoing)
        self.incoming.restored()
        self.wake(now)

    def wake(self, now: float) -> None:
        """Go on after this side was away: the others' silence meanwhile does not count."""
        self._heard = self._asked = now
        self._owes_at = -math.inf
