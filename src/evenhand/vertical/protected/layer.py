"""A role around a role. Messages pass through it in both directions, and the inner role does not know of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import Role, Sends


class Layer(Role):
    """Handles messages of its own kinds, and hands all others to the inner role.

    Parameters
    ----------
    own
        Kinds of messages that the layer itself sends and receives.

    Attributes
    ----------
    spent
        Multiplications of the layer itself, in addition to those of the inner role.
    ending
        Whether the inner role is done, and the layer has sent its own last messages.
    """

    state_fields: ClassVar = {"spent": float, "inner": Role, "ending": bool}

    def __init__(self, inner: Role, own: Vocabulary) -> None:
        super().__init__(inner.name, inner.sizes)
        self.inner = inner
        self.spent = 0.0
        self.ending = False
        self._own = own
        self.vocabulary = Vocabulary(*inner.vocabulary, *own)

    def start(self) -> Sends:
        return self._settled(self.outwards(self.inner.start()))

    @property
    def at_rest(self) -> bool:
        # A report ends a round: all messages of the round have arrived.
        return bool(self.reports)

    def resumed(self) -> Sends:
        return self._settled(self.outwards(self.inner.resumed()))

    def check(self, message: Message) -> None:
        if self._own.has(message.kind):
            self._own.check(message, self.sizes)
        else:
            self.inner.check(message)

    def handle(self, message: Message) -> Sends:
        return self._settled(self.take(message) if self._own.has(message.kind) else self.inwards(message))

    def inwards(self, message: Message) -> Sends:
        """Hand a message to the inner role. Its answers go out through this layer."""
        return self.outwards(self.inner.receive(message))

    def found(self, message: Message) -> Sends:
        """Hand the inner role a message that was recovered from masked or encrypted ones, and was never sent itself."""
        self.opened.append(message)
        return self.inwards(message)

    @abstractmethod
    def take(self, message: Message) -> Sends:
        """Answer a message of one of the layer's own kinds."""

    def outwards(self, messages: Sends) -> Sends:
        """Return the messages to send in place of those of the inner role."""
        return messages

    def ended(self) -> Sends:
        """Delete secrets and return the last messages, once the inner role is done."""
        return ()

    @property
    def closed(self) -> bool:
        """Whether the layer expects no message after its inner role is done."""
        return True

    def _settled(self, sends: Sends) -> Sends:
        if self.inner.done and not self.ending:
            self.ending = True
            sends = [*sends, *self.ended()]
        self.done, self.effort = self.inner.done and self.closed, self.inner.effort + self.spent
        if self.done or not self.inner.done:
            # The last report waits for the layer's last messages: there is no checkpoint among them.
            self.reports += self.inner.take_reports()
        self.traffic += self.inner.take_traffic()
        self.opened += self.inner.take_opened()
        return sends


def innermost(role: Role) -> Role:
    """Return the solver's own role, without its layers."""
    while isinstance(role, Layer):
        role = role.inner
    return role


def readdressed(message: Message, names: Sequence[str]) -> list[Message]:
    """Return a copy of the message to each of these names."""
    return [Message(message.sender, name, message.kind, message.body) for name in names]
