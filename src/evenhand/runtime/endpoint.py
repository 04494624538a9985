"""One participant's endpoint: its links, the messages for its roles, its transcript, and its veto on what leaves.

It has no clock and no thread: the caller tells the time. `runtime/site` has one in a process that lasts as long as the
run; `runtime/visits` saves and restores one between two calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeAlias

from evenhand.errors import ProtocolError, RunError
from evenhand.protocol import state
from evenhand.protocol.messages import Message
from evenhand.protocol.resuming import CUTS
from evenhand.protocol.roles import Role, Sends
from evenhand.protocol.state import State
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.links import LinkEnd, LinkSettings, Packet
from evenhand.runtime.packets import Content, packet_from

Veto: TypeAlias = Callable[[Message], str | None]


def nothing_is_kept(_: Message) -> str | None:
    return None


class Endpoint:
    """Links, messages and transcript of one participant.

    Parameters
    ----------
    name
        Whose it is.
    peers
        Everybody else.
    now
        The time.
    veto
        The participant's own rule on outgoing messages: if it returns a reason, the message is not sent and the run
        ends.

    Attributes
    ----------
    transcript
        Every message sent, and every message received and handled.
    refused
        The reasons why packets were refused.
    """

    state_fields: ClassVar = {"_began": float, "_inbox": deque[Message], "ends": dict[str, LinkEnd]}

    def __init__(
        self, name: str, peers: Sequence[str], links: LinkSettings, now: float, veto: Veto = nothing_is_kept
    ) -> None:
        self.name = name
        self.transcript = Transcript()
        self.refused: list[str] = []
        self.ends: dict[str, LinkEnd] = {peer: LinkEnd(peer, links, now) for peer in peers}
        self._veto = veto
        self._began = self._now = now
        self._inbox: deque[Message] = deque()
        self._before: deque[Message] = deque()
        """Messages in flight to a role when its checkpoint was taken; delivered before any new message."""

    # -- what comes

    def opened(self, sender: str, content: Content) -> Packet | None:
        """Decode a packet from `sender`; if it is invalid, return None and add the reason to `refused`."""
        try:
            if sender not in self.ends:
                raise ProtocolError(f"{sender!r} takes no part in this run; what it sent was refused")
            packet = packet_from(content)
            if packet.message is not None:
                self._check_address(sender, packet.message)
                if CUTS.has(packet.message.kind):
                    CUTS.check(packet.message, {})
        except ProtocolError as error:
            self.refused.append(str(error))
            return None
        return packet

    def _check_address(self, sender: str, message: Message) -> None:
        if message.sender != sender:
            raise ProtocolError(f"{sender} spoke in the name of {message.sender!r}; it was refused")
        if message.receiver != self.name:
            raise ProtocolError(f"a message for {message.receiver!r} reached {self.name}; it was refused")

    def arrive(self, now: float, sender: str, packet: Packet) -> Sequence[Message]:
        """Take a packet; return the messages that can be delivered now."""
        self._now = now
        try:
            ready = self.ends[sender].arrive(now, packet)
        except ProtocolError as error:
            self.refused.append(str(error))
            return ()
        self._inbox.extend(ready)
        return ready

    # -- mail

    def has_mail(self, role: Role) -> bool:
        return self._mail_for(role) is not None

    def take(self, role: Role) -> Message | None:
        """Take the next message for a role."""
        message = self._mail_for(role)
        if message is not None:
            self._take(message)
        return message

    def _mail_for(self, role: Role) -> Message | None:
        """Find the next message for a role. Messages of kinds it does not know wait for the next role."""
        if self._before:
            return self._before[0]
        return next((one for one in self._inbox if role.vocabulary.has(one.kind)), None)

    def _take(self, message: Message) -> None:
        if self._before and message is self._before[0]:
            self._before.popleft()
        else:
            self._inbox.remove(message)
            self.ends[message.sender].take()
        self.transcript.add(self._now - self._began, message)

    # -- checkpoints that all take together

    @property
    def waiting(self) -> list[Message]:
        """All messages that have arrived and are not handled yet, in each sender's order."""
        return [*self._before, *self._inbox]

    def words(self) -> list[Message]:
        """Messages about checkpoints that have arrived."""
        return [one for one in self._inbox if CUTS.has(one.kind)]

    def take_words(self) -> list[Message]:
        taken = self.words()
        for word in taken:
            self._take(word)
        return taken

    def go_on(self, messages: Iterable[Message], seconds: float) -> None:
        """A role was put back to a checkpoint: what was under way to it then, and how long the run had taken."""
        self._before = deque(messages)
        self._began -= seconds

    # -- what leaves

    def check_leaving(self, sends: Sends) -> None:
        for message in sends:
            if message.sender != self.name or message.receiver not in self.ends:
                raise ProtocolError(f"{self.name} tried to send {message.kind!r} to {message.receiver!r}")
            if reason := self._veto(message):
                raise RunError(f"{self.name} keeps what it was about to send to {message.receiver}: {reason}")

    def post(self, now: float, sends: Sends) -> None:
        """Give messages to their links."""
        self._now = now
        for message in sends:
            self.transcript.add(now - self._began, message)
            self.ends[message.receiver].post(message)

    def due(self, now: float, gone: Iterable[str] = ()) -> list[tuple[str, Packet]]:
        """Return the packets to send now, except to participants that have left."""
        return [(peer, one) for peer, end in self.ends.items() if peer not in gone for one in end.due(now)]

    # -- put away

    def snapshot(self) -> State:
        """Return links and mail. The owner writes the transcript itself."""
        return state.snapshot(self)

    def restore(self, now: float, saved: State) -> None:
        """Restore links and mail. Both sides send again what had not been acknowledged."""
        state.restore(self, saved)
        self._now = now
        for end in self.ends.values():
            end.wake(now)
