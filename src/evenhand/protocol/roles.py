"""The contract between solvers and runtimes.

A role (server, active party, passive party, client) is a state machine without input or output: a message goes in, its
own state changes, messages come out. Whatever carries messages, keeps time or writes files is a runtime's business,
so the same role runs in one process, over a network, or under injected faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from evenhand.errors import ProtocolError, RunError
from evenhand.protocol import state
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.state import State

SERVER = "server"
"""The server's name in every run."""

Sends: TypeAlias = Sequence[Message]
Report: TypeAlias = dict[str, float | int]
"""One row of history: what a role says about its progress, in plain numbers."""


class Traffic(NamedTuple):
    """Messages that a role which does several parties' work would have sent: their number and bytes in all."""

    sender: str
    receiver: str
    kind: str
    messages: int
    nbytes: int


class Task:
    """Work that a role has begun and that may go on while it takes other messages.

    Attributes
    ----------
    sends
        What the role sends before the work is done.
    """

    sends: Sends = ()

    def run(self) -> None:
        """Do the work. Other tasks of the same role may run at the same time; the rest of its state is not touched."""


class Role(ABC):
    """Base of all roles.

    Attributes
    ----------
    name
        Unique among the roles of a run.
    done
        True once the role expects no further message and has no more work.
    effort
        Multiplications done so far: the virtual clock turns them into time.
    reports
        Rows of history since the runtime last took them.
    traffic
        Messages between parties whose work this role does itself, since the runtime last took them.
    opened
        Messages as they are once masks and ciphers are off, where a role takes them off for one that it holds; since
        the runtime last took them. They never travelled: an audit asks what they tell.
    """

    vocabulary: Vocabulary
    state_fields: ClassVar[Mapping[str, Any]] = {"done": bool, "effort": float}
    """Attributes that change during a run, with their types (see `evenhand.protocol.state`). Each class declares its
    own; those of its base classes are included.
    """

    def __init__(self, name: str, sizes: Mapping[str, int]) -> None:
        self.name = name
        self.sizes = sizes
        self.done = False
        self.effort = 0.0
        self.reports: list[Report] = []
        self.traffic: list[Traffic] = []
        self.opened: list[Message] = []

    def start(self) -> Sends:
        """First messages."""
        return ()

    def receive(self, message: Message) -> Sends:
        """One message in, any number out."""
        outcome = self.begin(message)
        if not isinstance(outcome, Task):
            return outcome
        sends: list[Message] = []
        while isinstance(outcome, Task):
            sends += outcome.sends
            outcome.run()
            outcome = self.finish(outcome)
        return [*sends, *outcome]

    def begin(self, message: Message) -> Task | Sends:
        """`receive` in parts, for a runtime of threads: this and `finish` are called by one thread at a time, in the
        order of messages, and the task between them is run by any.
        """
        self.check(message)
        return self.handle(message)

    def finish(self, task: Task) -> Task | Sends:
        """Take in what a task has found; there may be another to follow."""
        return ()

    def check(self, message: Message) -> None:
        """Refuse what the schema does not allow, before it touches the state."""
        self.vocabulary.check(message, self.sizes)

    @abstractmethod
    def handle(self, message: Message) -> Task | Sends:
        """Answer a message that has passed the check; a task is what threads may do at the same time."""

    def work(self) -> Sends:
        """Local work while the inbox is empty; nothing, and no effort, when there is none."""
        return ()

    def lost(self, name: str) -> Sends:
        """Somebody else will not answer any more: go on without, or say that it cannot be."""
        raise RunError(f"{name} is gone, and {self.name} cannot go on without it; see whether it runs, then resume")

    def take_reports(self) -> list[Report]:
        taken, self.reports = self.reports, []
        return taken

    def take_traffic(self) -> list[Traffic]:
        taken, self.traffic = self.traffic, []
        return taken

    def take_opened(self) -> list[Message]:
        taken, self.opened = self.opened, []
        return taken

    def snapshot(self) -> State:
        """Return everything that changes during a run. Data given to the constructor is not included."""
        return state.snapshot(self)

    def restore(self, saved: State) -> None:
        """Set the state to what `snapshot` returned for a role that was made in the same way."""
        state.restore(self, saved)


class Follower(Role):
    """A role that takes messages of the server only."""

    def check(self, message: Message) -> None:
        if message.sender != SERVER:
            raise ProtocolError(f"{self.name} takes messages of the server only, not of {message.sender!r}")
        super().check(message)
