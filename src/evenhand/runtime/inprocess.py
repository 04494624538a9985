"""All roles in one process, on a virtual clock: deterministic, repeatable, and able to stop and go on at any message.

A discrete-event simulation. A role is busy while it computes; messages that arrive meanwhile wait in its inbox in the
order of arrival; when its inbox is empty it is asked for local work. Links keep the order of what is sent on them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evenhand.errors import ProtocolError
from evenhand.messages import Message
from evenhand.privacy.transcript import Transcript
from evenhand.roles import Report, Role, Sends
from evenhand.runtime.clock import VirtualClock

ARRIVAL, READY = 0, 1
"""Arrivals come before a role turns to its own work at the same instant: "while no new information" in the papers."""


class Event(NamedTuple):
    """Something that happens at a time; `number` breaks ties in the order of scheduling."""

    time: float
    rank: int
    number: int
    role: str
    message: Message | None


@dataclass
class Desk:
    """What the runtime keeps for a role."""

    role: Role
    inbox: deque[Message] = field(default_factory=deque)
    idle: bool = True


class InProcess:
    """Run roles to the end.

    Parameters
    ----------
    roles
        All roles of the run.
    clock
        Speeds of machines and links; by default computing at a billion multiplications a second and instant links.
    transcript
        Where messages are recorded; a new one by default.
    on_report
        Called with each row of history a role reports, stamped with the virtual time and the bytes sent so far. The
        runtime is between events then, so the callback may take a snapshot.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        clock: VirtualClock | None = None,
        transcript: Transcript | None = None,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        self.desks = {role.name: Desk(role) for role in roles}
        if len(self.desks) != len(roles):
            raise ProtocolError("two roles have the same name")
        self.clock = VirtualClock() if clock is None else clock
        self.transcript = Transcript() if transcript is None else transcript
        self.on_report = on_report
        self.time = 0.0
        self.events: list[Event] = []
        self.scheduled = 0
        self.last_arrival: dict[tuple[str, str], float] = {}
        self.started = False

    def run(self) -> None:
        """Start the roles if they have not been started, and go on until nothing is left to happen."""
        if not self.started:
            self.started = True
            for name, desk in self.desks.items():
                self._after(name, desk, 0.0, desk.role.start())
        while self.events:
            event = heapq.heappop(self.events)
            self.time = event.time
            desk = self.desks[event.role]
            if event.message is not None:
                self._arrived(event.number, desk, event.message)
                if not (desk.idle and desk.inbox):
                    continue
            self._serve(event.role, desk)
        waiting = [name for name, desk in self.desks.items() if not desk.role.done]
        if waiting:
            raise ProtocolError(f"the run stalled: nothing is under way, yet {', '.join(waiting)} wait for messages")

    def _arrived(self, number: int, desk: Desk, message: Message) -> None:
        desk.inbox.append(message)

    def _serve(self, name: str, desk: Desk) -> None:
        before = desk.role.effort
        if desk.inbox:
            sends = desk.role.receive(desk.inbox.popleft())
        else:
            sends = desk.role.work()
            if not sends and desk.role.effort == before:
                desk.idle = True
                return
        self._after(name, desk, before, sends)

    def _after(self, name: str, desk: Desk, effort_before: float, sends: Sends) -> None:
        """Put a role's answer on its way, and the role to its next turn once it has computed it."""
        finished = self.time + self.clock.computing(name, desk.role.effort - effort_before)
        bytes_until_now = self.transcript.total_bytes
        for message in sends:
            self._send(finished, name, message)
        for traffic in desk.role.take_traffic():
            self.transcript.count(finished, traffic)
        desk.idle = False
        self._schedule(finished, READY, name, None)
        for report in desk.role.take_reports():
            if self.on_report is not None:
                self.on_report({**report, "bytes": bytes_until_now, "time": finished})

    def _send(self, time: float, sender: str, message: Message) -> None:
        if message.sender != sender or message.receiver not in self.desks:
            raise ProtocolError(f"{sender} tried to send {message.kind!r} from {message.sender} to {message.receiver}")
        self.transcript.add(time, message)
        link = (sender, message.receiver)
        arrival = time + self.clock.sending(sender, message.receiver, message.nbytes)
        arrival = max(arrival, self.last_arrival.get(link, 0.0))
        self.last_arrival[link] = arrival
        self._schedule(arrival, ARRIVAL, message.receiver, message)

    def _schedule(self, time: float, rank: int, role: str, message: Message | None) -> None:
        heapq.heappush(self.events, Event(time, rank, self.scheduled, role, message))
        self.scheduled += 1
