"""Links: reliable, ordered delivery over a transport that may lose, duplicate or reorder packets.

Every message arrives once, in the order of sending, or the link reports that the peer is gone. Messages are numbered.
Unacknowledged messages are sent again, duplicates are dropped, early messages wait. The receiver announces how many
more messages it accepts. After a silence the link pings its peer, and gives up in the end.

Each end of a link is a state machine: it does not send, wait, or read a clock. A runtime passes it the time and the
packets that arrived, and sends the packets that are due. The same code runs between machines and under the injected
faults of the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from evenhand.errors import InputError, LostError, ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.state import State, restore


@dataclass(frozen=True)
class LinkSettings:
    """Window and timeouts of a link, in seconds of the runtime's clock.

    Parameters
    ----------
    window
        Maximum number of messages in flight or waiting for the receiver's role.
    retry
        Seconds to wait for an acknowledgement before a message is sent again; doubled each time.
    longest_retry
        Upper limit of this wait.
    slowest
        Lowest bandwidth of a link, in bytes a second. Retries wait longer by the time that the bytes in flight may
        take; otherwise a large message would be sent again while it is still being sent.
    ping
        Seconds of silence after which the peer is pinged.
    patience
        Seconds of silence after which the peer counts as gone. It must be longer than the largest message takes.
    linger
        Seconds that an acknowledgement may wait, to be sent together with a message.
    most_ahead
        Bytes that are kept of messages that came out of order, and of messages for a later role. Others are dropped,
        and the sender sends them again.
    """

    window: int = 256
    retry: float = 2.0
    longest_retry: float = 30.0
    ping: float = 5.0
    patience: float = 120.0
    linger: float = 0.0
    slowest: float = 1e6
    most_ahead: int = 2**26

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


class Stamp(NamedTuple):
    """What the sender vouches for once keys are agreed, with a code that only the two ends of the link can make.

    `sent` is the number of messages that it has sent so far; `serial` numbers its packets. `code` is for these and for
    the numbers of the packet. So a relay can neither acknowledge a message that it has dropped, nor pass off an old
    packet as a new one.
    """

    sent: int
    serial: int
    code: bytes


class Packet(NamedTuple):
    """A packet: the state of the sender's incoming side, and usually a message.

    `have` is the number of messages received without a gap; the peer may send messages numbered below `room`. A packet
    without a message has the number −1; `asks` requests an answer in any case. Packets before keys are agreed have no
    stamp.
    """

    have: int
    room: int
    number: int = -1
    message: Message | None = None
    asks: bool = False
    stamp: Stamp | None = None


class Outgoing:
    """Messages to the peer, from sending until they are acknowledged."""

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
        """Number of the first message that has not been transmitted yet."""
        self._tries = 0
        self._tried = -math.inf
        """How often, and when last, the oldest message in flight was transmitted."""
        self._in_flight = 0
        """Bytes in flight: transmitted and not acknowledged."""
        self.resent = 0
        """How often a message was transmitted again because its acknowledgement was late."""

    def post(self, message: Message) -> None:
        self._unacknowledged[self.posted] = message
        self.posted += 1

    @property
    def waiting(self) -> bool:
        """Whether messages wait because the peer's window is full."""
        return self._next < self.posted and self._next >= self.room

    @property
    def empty(self) -> bool:
        return not self._unacknowledged

    def acknowledge(self, now: float, have: int, room: int) -> None:
        # A packet that arrives out of order has nothing new.
        self.room = max(self.room, room)
        if have > self.acknowledged:
            for number in range(self.acknowledged, have):
                nbytes = self._unacknowledged.pop(number).nbytes
                # After a crash here, messages may be acknowledged before they are transmitted again.
                self._in_flight -= nbytes if number < self._next else 0
            self.acknowledged, self._next = have, max(self._next, have)
            # Restart the wait: the next message was sent later.
            self._tries, self._tried = 0, now

    @property
    def ready(self) -> bool:
        """Whether there are messages to transmit for the first time."""
        return self._next < min(self.posted, self.room)

    def due(self, now: float) -> list[tuple[int, Message]]:
        """Return the messages to transmit: the oldest again if its acknowledgement is late, and new ones."""
        found = []
        oldest = self.acknowledged
        if oldest < self._next and now >= self.retries_at:
            found.append((oldest, self._unacknowledged[oldest]))
            self.resent += 1
        while self.ready:
            found.append((self._next, self._unacknowledged[self._next]))
            self._in_flight += self._unacknowledged[self._next].nbytes
            self._next += 1
        if found and found[0][0] == oldest:
            self._tries, self._tried = self._tries + 1, now
        return found

    @property
    def retries_at(self) -> float:
        """When to send the oldest message in flight again."""
        if self.acknowledged == self._next:
            return math.inf
        again = max(self._tries - 1, 0)
        wait = min(self._settings.retry * 2.0 ** min(again, 60), self._settings.longest_retry)
        # Copies of the oldest message may be in flight as well.
        nbytes = self._in_flight + again * self._unacknowledged[self.acknowledged].nbytes
        return self._tried + wait + nbytes / self._settings.slowest

    def restored(self) -> None:
        """Transmit everything again that had not been acknowledged."""
        self._next, self._tries, self._in_flight = self.acknowledged, 0, 0


class Incoming:
    """Messages from the peer: in order, each once."""

    state_fields: ClassVar = {"have": int, "taken": int}

    def __init__(self, settings: LinkSettings) -> None:
        self._window, self._most_ahead = settings.window, settings.most_ahead
        self.have = 0
        self.taken = 0
        self.early: dict[int, Message] = {}

    @property
    def room(self) -> int:
        """The peer may send messages numbered below this."""
        return self.taken + self._window

    def arrive(self, number: int, message: Message) -> list[Message]:
        """Take a message; return the messages that can be delivered now."""
        if number >= self.room:
            raise ProtocolError(f"message {number} was refused: only messages below {self.room} are allowed now")
        # The message that is waited for is always taken.
        if number == self.have or (number > self.have and self._has_space(message)):
            self.early[number] = message
        ready = []
        while self.have in self.early:
            ready.append(self.early.pop(self.have))
            self.have += 1
        return ready

    def _has_space(self, message: Message) -> bool:
        return message.nbytes + sum(one.nbytes for one in self.early.values()) <= self._most_ahead

    def restored(self) -> None:
        """Forget messages that came out of order: they are sent again."""
        self.early.clear()


class LinkEnd:
    """One participant's end of its link to another.

    Parameters
    ----------
    peer
        The name of the other end.
    now
        The time; silence counts from it.
    """

    state_fields: ClassVar = {
        "outgoing": Outgoing,
        "incoming": Incoming,
        "unsealed": int,
        "stamped": int,
        "serial": int,
        "sent": int,
        "short": int,
        "_told": int,
    }

    def __init__(self, peer: str, settings: LinkSettings, now: float) -> None:
        self.peer = peer
        self.settings = settings
        self.outgoing = Outgoing(settings)
        self.incoming = Incoming(settings)
        self.unsealed = -1
        """Number of messages that were sent before keys were agreed; −1 until then."""
        self.stamped = 0
        """Number of packets that were sent with a stamp."""
        self.serial = 0
        """Highest serial number of a packet of the peer."""
        self.sent = 0
        """Number of messages that the peer says it has sent."""
        self.short = 0
        """Number of visits in a row that one of them has been missing."""
        self._short_since = math.inf
        self._told = 0
        """Number of messages that the peer was told it has been sent."""
        self._owes_at = math.inf
        """When a packet is due, even without a message."""
        self._room_told = settings.window
        self._heard = now
        self._asked = now

    def post(self, message: Message) -> None:
        """Queue a message."""
        self.outgoing.post(message)

    def arrive(self, now: float, packet: Packet) -> list[Message]:
        """Take a packet; return the messages to deliver to the role, in order.

        An impossible packet raises a ProtocolError, and changes nothing.
        """
        if packet.have > self.outgoing.posted:
            raise ProtocolError(
                f"refused a packet: {self.peer} acknowledges {packet.have} messages, but was sent "
                f"{self.outgoing.posted}"
            )
        ready = [] if packet.message is None else self.incoming.arrive(packet.number, packet.message)
        self.outgoing.acknowledge(now, packet.have, packet.room)
        if packet.stamp is not None:
            self._note_sent(now, packet.stamp, bool(ready))
        elif self.unsealed < 0:
            self._heard = max(self._heard, now)
        if packet.asks:
            self._owes_at = -math.inf
        elif packet.message is not None:
            self._owes_at = min(self._owes_at, now + self.settings.linger)
        return ready

    def _note_sent(self, now: float, stamp: Stamp, progress: bool) -> None:
        """Note how many messages the peer has sent; an old packet that comes again is no sign of life."""
        if stamp.serial > self.serial:
            self.serial, self._heard = stamp.serial, max(self._heard, now)
        self.sent = max(self.sent, stamp.sent)
        if not self.lacks:
            self._short_since = math.inf
        elif progress or self._short_since == math.inf:
            self._short_since = now

    @property
    def lacks(self) -> bool:
        """Whether the peer has sent a message that has not arrived."""
        return self.incoming.have < self.sent

    def hold(self, now: float) -> None:
        """Note that a message was not taken for want of memory: it is missing by this side's choice."""
        self._short_since = now

    def secure(self) -> None:
        """Count messages from now on as sealed, and tell the peer with a stamp what has arrived."""
        self.unsealed, self._owes_at = self.outgoing.posted, -math.inf

    def stamp(self, packet: Packet, code: Callable[[Packet], bytes]) -> Packet:
        """Return a packet with a stamp."""
        self.stamped += 1
        self._told = max(self._told, packet.number + 1)
        without = packet._replace(stamp=Stamp(self._told, self.stamped, b""))
        return packet._replace(stamp=Stamp(self._told, self.stamped, code(without)))

    def take(self) -> None:
        """Note that the role has taken a message, which frees a place in the window."""
        self.incoming.taken += 1
        # Announce free places only occasionally: answers carry the number anyway.
        if 2 * (self.incoming.room - self._room_told) >= self.settings.window:
            self._owes_at = -math.inf

    def due(self, now: float) -> list[Packet]:
        """Return the packets to send now."""
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
        """When to ping the peer; sooner if messages wait for its window."""
        wait = self.settings.retry if self.outgoing.waiting else self.settings.ping
        return max(self._heard, self._asked) + min(wait, self.settings.ping)

    def wakes_at(self, resting: bool = False) -> float:
        """Return when to call `due` next; a resting end answers and delivers, but does not ping."""
        if self.outgoing.ready:
            return -math.inf
        asks_at = math.inf if resting and not self.outgoing.waiting else self.asks_at
        return min(self._owes_at, self.outgoing.retries_at, asks_at)

    @property
    def holds_up(self) -> bool:
        """Whether the peer is slower than this side sends; then local work should wait."""
        return self.outgoing.waiting

    @property
    def delivered(self) -> bool:
        """Whether the peer has acknowledged everything."""
        return self.outgoing.empty

    def check_alive(self, now: float) -> None:
        if now - self._short_since > self.settings.patience:
            raise LostError(
                f"message {self.incoming.have} of {self.peer} has not arrived for {now - self._short_since:.3g} "
                f"seconds, although {self.peer} has sent {self.sent}; somebody between the two drops it, or the "
                "connection loses it. Check the connection, then resume from the last checkpoint",
                [self.peer],
            )
        if (silent := self.silence(now)) > self.settings.patience:
            raise LostError(
                f"{self.peer} has not been heard from for {silent:.3g} seconds; check that it runs and can be reached, "
                "then resume from the last checkpoint",
                [self.peer],
            )

    def silence(self, now: float) -> float:
        """Return the seconds since the peer was last heard from."""
        return now - self._heard

    def start_again(self, now: float, outgoing: State | None) -> None:
        """Continue after a crash, with the saved state of the outgoing side and the acknowledged messages."""
        if outgoing is None:
            self.outgoing = Outgoing(self.settings)
        else:
            restore(self.outgoing, outgoing)
        self.incoming.restored()
        self.wake(now)

    def wake(self, now: float) -> None:
        """Continue after a pause of this side: silence of the peer during the pause does not count."""
        self._heard = self._asked = now
        self._short_since = math.inf
        self._owes_at = -math.inf
