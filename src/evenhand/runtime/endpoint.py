"""One participant's endpoint: its links, the messages for its roles, its transcript, and its veto on outgoing messages.

It has no clock and no thread: the caller passes the time. `runtime/site.py` keeps one for the whole run;
`runtime/stateless_site.py` saves and restores one between two calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, TypeAlias

import numpy as np

from evenhand.errors import ProtocolError, RunError
from evenhand.privacy.key_exchange import SEALED, Session
from evenhand.protocol import state
from evenhand.protocol.encoding import decode, encode
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.resuming import CHECKPOINTING
from evenhand.protocol.roles import Role, Sends
from evenhand.protocol.state import State
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.links import LinkEnd, LinkSettings, Packet
from evenhand.runtime.packets import Content, packet_from, stamped_content

Veto: TypeAlias = Callable[[Message], str | None]
_MOST_REFUSALS: Final = 1000


def no_veto(_: Message) -> str | None:
    return None


class Endpoint:
    """Links, messages and transcript of one participant.

    Parameters
    ----------
    name
        Name of the participant.
    peers
        Names of all other participants.
    now
        The present time.
    veto
        The participant's own rule on outgoing messages: if it returns a reason, the message is not sent and the run
        ends.

    Attributes
    ----------
    transcript
        Every message sent, and every message received and handled.
    refused
        Reasons why packets were refused; the first thousand.
    """

    state_fields: ClassVar = {"_began": float, "_inbox": deque[Message], "ends": dict[str, LinkEnd]}

    def __init__(self, name: str, peers: Sequence[str], links: LinkSettings, now: float, veto: Veto = no_veto) -> None:
        self.name = name
        self.transcript = Transcript()
        self.refused: list[str] = []
        self.ends: dict[str, LinkEnd] = {peer: LinkEnd(peer, links, now) for peer in peers}
        self._veto = veto
        self._began = self._now = now
        self._inbox: deque[Message] = deque()
        self._known: Vocabulary | None = None
        """Messages that the present role knows."""
        self._session: Session | None = None
        self._before: deque[Message] = deque()
        """Messages in flight to a role when its checkpoint was taken; delivered before any new message."""

    # -- incoming packets

    def opened(self, sender: str, content: Content) -> Packet | None:
        """Decode a packet from `sender`; if it is invalid, return None and add the reason to `refused`."""
        try:
            if sender not in self.ends:
                raise ProtocolError(f"refused a packet from {sender!r}, which is not a participant of this run")
            packet = packet_from(content)
            if packet.message is not None:
                self._check_address(sender, packet.message)
                if CHECKPOINTING.has(packet.message.kind):
                    CHECKPOINTING.check(packet.message, {})
        except ProtocolError as error:
            self._refuse(error)
            return None
        return packet

    def _check_address(self, sender: str, message: Message) -> None:
        if message.sender != sender:
            raise ProtocolError(f"refused a message that {sender} sent in the name of {message.sender!r}")
        if message.receiver != self.name:
            raise ProtocolError(f"{self.name} refused a message that is for {message.receiver!r}")

    def arrive(self, now: float, sender: str, packet: Packet) -> Sequence[Message]:
        """Take a packet; return the messages that can be delivered now.

        Raises
        ------
        ProtocolError
            If a sealed message was tampered with.
        """
        self._now = now
        checked = self._stamped(sender, packet)
        if checked is None:
            return ()
        packet = self._unsealed(sender, checked)
        if packet.message is not None and self._is_full(sender, packet.message):
            # Without an acknowledgement the peer sends it again later. What it says of our messages counts.
            packet = packet._replace(number=-1, message=None)
            self.ends[sender].hold(now)
        try:
            ready = self.ends[sender].arrive(now, packet)
        except ProtocolError as error:
            self._refuse(error)
            return ()
        self._inbox.extend(ready)
        return ready

    def check_complete(self, peer: str, number: int) -> None:
        """Check what a peer says after a visit, over a transport that loses nothing and keeps the order.

        Parameters
        ----------
        number
            The last message that the peer was given; −1 if there was none.
        """
        end = self.ends[peer]
        if self._session is None:
            return
        if end.lacks:
            raise ProtocolError(
                f"{self.name}: {peer} has sent {end.sent} messages, and message {end.incoming.have} has not arrived; "
                "somebody between the two has dropped it"
            )
        if end.outgoing.acknowledged <= number:
            raise ProtocolError(
                f"{self.name}: {peer} has not confirmed message {number}, which its visit was to bring; somebody "
                "between the two has dropped it or the confirmation"
            )

    def check_visits(self) -> None:
        """Refuse to go on if a peer's message has been missing over two visits; in one it may still be on its way."""
        for peer, end in self.ends.items():
            end.short = end.short + 1 if end.lacks else 0
            if end.short > 1:
                self.check_complete(peer, -1)

    # -- sealed messages

    def secure(self, session: Session) -> None:
        """Send and take sealed messages only, from now on. Refuse everything that has come unsealed and still waits."""
        self.go_on_secure(session)
        self._inbox = deque(self._open(one.sender, one) for one in self._inbox)
        for peer, end in self.ends.items():
            end.incoming.early = {number: self._open(peer, one) for number, one in end.incoming.early.items()}
            end.secure()

    def go_on_secure(self, session: Session) -> None:
        """Continue with sealed messages, after the state was restored."""
        if missing := [peer for peer in self.ends if peer not in session.peers]:
            raise ProtocolError(f"{self.name} has agreed on no key with {missing[0]}")
        self._session = session

    def _stamped(self, sender: str, packet: Packet) -> Packet | None:
        """Check a packet's stamp; return None for one that is late, from before keys were agreed."""
        if self._session is None:
            return packet._replace(stamp=None)
        end = self.ends[sender]
        if packet.stamp is None:
            if packet.message is not None and packet.message.kind == SEALED.kind:
                raise ProtocolError(
                    f"{self.name}: a sealed message in the name of {sender} came without its stamp; somebody between "
                    "the two has changed it, and it is refused"
                )
            # The peer may not have its keys yet. What it says of sealed messages is not believed.
            return None if end.serial else packet._replace(have=min(packet.have, end.unsealed))
        if not self._session.is_code(sender, stamped_content(packet), packet.stamp.code):
            raise ProtocolError(
                f"{self.name}: a packet in the name of {sender} says what {sender} has not said; somebody between the "
                "two has changed it, and it is refused"
            )
        return packet

    def _with_stamp(self, peer: str, packet: Packet) -> Packet:
        session = self._session
        if session is None:
            return packet
        return self.ends[peer].stamp(packet, lambda one: session.code(peer, stamped_content(one)))

    def _unsealed(self, sender: str, packet: Packet) -> Packet:
        """Open a sealed packet; one that has arrived before, or comes before keys are agreed, is left as it is."""
        message = packet.message
        if message is None or packet.number < self.ends[sender].incoming.have:
            return packet
        if message.kind == SEALED.kind:
            SEALED.check(message, {})
            if message.integer("number") != packet.number:
                raise ProtocolError(
                    f"{self.name}: message {message.integer('number')} from {sender} came in the place of message "
                    f"{packet.number}; somebody between the two has moved it, and it is refused"
                )
        return packet if self._session is None else packet._replace(message=self._open(sender, message))

    def _open(self, sender: str, message: Message) -> Message:
        """Return the message in a sealed one."""
        assert self._session is not None
        if message.kind != SEALED.kind:
            raise ProtocolError(
                f"{self.name}: {message.kind!r} in the name of {sender} came unsealed after keys were agreed; "
                "somebody between the two has invented it, and it is refused"
            )
        found = decode(self._session.open(sender, message.integer("number"), message["box"].tobytes()))
        self._check_address(sender, found)
        if CHECKPOINTING.has(found.kind):
            CHECKPOINTING.check(found, {})
        return found

    def _sealed(self, message: Message) -> Message:
        """Return what to send in place of a message."""
        if self._session is None:
            return message
        number = self.ends[message.receiver].outgoing.posted
        box = np.frombuffer(self._session.seal(message.receiver, number, encode(message)), dtype=np.uint8)
        return SEALED.message(self.name, message.receiver, number=number, box=box)

    def _is_full(self, sender: str, message: Message) -> bool:
        """Return whether too many bytes of a sender wait already to keep another message.

        Messages that the present role does not know wait for a later role, or for none: a sender may not fill the
        memory with them.
        """
        waiting = [one for one in self._inbox if one.sender == sender]
        if self._known is not None and self._known.has(message.kind):
            return sum(one.nbytes for one in waiting) > self.ends[sender].settings.most_ahead
        ahead = [one.nbytes for one in waiting if self._known is None or not self._known.has(one.kind)]
        return sum(ahead) + message.nbytes > self.ends[sender].settings.most_ahead

    def _refuse(self, error: ProtocolError) -> None:
        if len(self.refused) < _MOST_REFUSALS:
            self.refused.append(str(error))

    # -- messages for roles

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
        self._known = role.vocabulary
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

    def forget(self, peer: str) -> None:
        """Drop messages of a peer that is gone for good."""
        self._inbox = deque(one for one in self._inbox if one.sender != peer)
        self._before = deque(one for one in self._before if one.sender != peer)

    # -- checkpoints

    @property
    def waiting(self) -> list[Message]:
        """All messages that have arrived and are not handled yet, in each sender's order."""
        return [*self._before, *self._inbox]

    def checkpoint_messages(self) -> list[Message]:
        """Messages about checkpoints that have arrived."""
        return [one for one in self._inbox if CHECKPOINTING.has(one.kind)]

    def take_checkpoint_messages(self) -> list[Message]:
        taken = self.checkpoint_messages()
        for word in taken:
            self._take(word)
        return taken

    def resume_from(self, messages: Iterable[Message], seconds: float) -> None:
        """Resume a restored role with the messages that were in flight to it; the run had taken `seconds`."""
        self._before = deque(messages)
        self._began -= seconds

    # -- outgoing messages

    def check_leaving(self, sends: Sends) -> None:
        for message in sends:
            if message.sender != self.name or message.receiver not in self.ends:
                raise ProtocolError(f"{self.name} tried to send {message.kind!r} to {message.receiver!r}")
            if reason := self._veto(message):
                raise RunError(f"{self.name}'s policy does not allow a message to {message.receiver}: {reason}")

    def post(self, now: float, sends: Sends) -> None:
        """Queue messages on their links."""
        self._now = now
        for message in sends:
            self.transcript.add(now - self._began, message)
            self.ends[message.receiver].post(self._sealed(message))

    def due(self, now: float, gone: Iterable[str] = ()) -> list[tuple[str, Packet]]:
        """Return the packets to send now, except to participants that have left."""
        ends = [(peer, end) for peer, end in self.ends.items() if peer not in gone]
        return [(peer, self._with_stamp(peer, one)) for peer, end in ends for one in end.due(now)]

    # -- saved state

    def snapshot(self) -> State:
        """Return the state of links and waiting messages. The owner writes the transcript itself."""
        return state.snapshot(self)

    def restore(self, now: float, saved: State) -> None:
        """Restore links and waiting messages. Both sides send unacknowledged messages again."""
        state.restore(self, saved)
        self._now = now
        for end in self.ends.values():
            end.wake(now)
