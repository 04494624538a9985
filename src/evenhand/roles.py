"""The contract between solvers and runtimes.

A role (server, active party, passive party, client) is a state machine without input or output: a message goes in, its
own state changes, messages come out. Whatever carries messages, keeps time or writes files is a runtime's business,
so the same role runs in one process, over a network, or under injected faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from evenhand.messages import Message, Vocabulary

Sends: TypeAlias = Sequence[Message]
State: TypeAlias = dict[str, Any]
"""Arrays, numbers, booleans and strings by name: all that a checkpoint may hold."""
Report: TypeAlias = dict[str, float | int]
"""One row of history: what a role says about its progress, in plain numbers."""


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
    """

    vocabulary: Vocabulary

    def __init__(self, name: str, sizes: Mapping[str, int]) -> None:
        self.name = name
        self.sizes = sizes
        self.done = False
        self.effort = 0.0
        self.reports: list[Report] = []

    def start(self) -> Sends:
        """First messages."""
        return ()

    def receive(self, message: Message) -> Sends:
        """One message in, any number out. What the schema does not allow is refused before it touches the state."""
        self.vocabulary.check(message, self.sizes)
        return self.handle(message)

    @abstractmethod
    def handle(self, message: Message) -> Sends:
        """Answer a message that has passed its schema."""

    def work(self) -> Sends:
        """Local work while the inbox is empty; nothing, and no effort, when there is none."""
        return ()

    def take_reports(self) -> list[Report]:
        taken, self.reports = self.reports, []
        return taken

    def snapshot(self) -> State:
        """Everything that changes during a run, as arrays and numbers. Data handed to the constructor is not in it."""
        return {"done": self.done, "effort": self.effort}

    def restore(self, state: State) -> None:
        self.done = bool(state["done"])
        self.effort = float(state["effort"])
