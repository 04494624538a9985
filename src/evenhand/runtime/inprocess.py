"""Run all roles in one process, on a virtual clock: deterministic, reproducible, and resumable at any message.

It is a discrete-event simulation. A role is busy while it computes; messages that arrive meanwhile wait in its inbox in
the order of arrival. When its inbox is empty, the role does local work. Links keep the order of messages.

The virtual clock says how long computing and sending would take on machines and links of given speeds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from evenhand.errors import InputError, ProtocolError, RunError
from evenhand.protocol import state
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Report, Role, Sends
from evenhand.protocol.state import State
from evenhand.protocol.transcript import Transcript


@dataclass(frozen=True)
class VirtualClock:
    """Speeds of roles and links.

    Parameters
    ----------
    speed
        Multiplications a second of a role that `speeds` does not name.
    latency
        Seconds that a message of any size takes, unless `latencies` names one of its two ends.
    bandwidth
        Bytes a second of every link.
    """

    speed: float = 1e9
    latency: float = 0.0
    bandwidth: float = float("inf")
    speeds: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {"speed": self.speed, "bandwidth": self.bandwidth, **dict(self.speeds)}.items():
            if not value > 0:
                raise InputError(f"virtual clock: {name} is {value}; it must be positive")
        for name, value in {"latency": self.latency, **dict(self.latencies)}.items():
            if not value >= 0:
                raise InputError(f"virtual clock: latency {name} is {value}; it must be zero or more")

    def computing(self, role: str, effort: float) -> float:
        return effort / self.speeds.get(role, self.speed)

    def sending(self, sender: str, receiver: str, nbytes: int) -> float:
        latency = self.latency
        if self.latencies:
            latency = max((self.latencies[end] for end in (sender, receiver) if end in self.latencies), default=latency)
        return latency + nbytes / self.bandwidth


ARRIVAL, READY = 0, 1
"""Arrivals come before local work at the same instant: "while no new information" in the papers."""


Event: TypeAlias = tuple[float, int, int, str, Message | None]
"""An event: time, `ARRIVAL` or `READY`, number, role, and the message that arrives.

Numbers break ties in the order of scheduling.
"""


@dataclass
class Mailbox:
    """State of one role in the runtime."""

    state_fields: ClassVar = {"inbox": deque[Message], "idle": bool}

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

    # Restoring the list in its order restores the same heap.
    state_fields: ClassVar = {
        "time": float,
        "scheduled": int,
        "started": bool,
        "events": list[Event],
        "mailboxes": dict[str, Mailbox],
        "last_arrival": dict[tuple[str, str], float],
    }

    def __init__(
        self,
        roles: Sequence[Role],
        clock: VirtualClock | None = None,
        transcript: Transcript | None = None,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        self.mailboxes = {role.name: Mailbox(role) for role in roles}
        if len(self.mailboxes) != len(roles):
            raise ProtocolError("two roles have the same name")
        self.clock = VirtualClock() if clock is None else clock
        self.transcript = Transcript() if transcript is None else transcript
        self.on_report = on_report
        self.time = 0.0
        self.events: list[Event] = []
        self.scheduled = 0
        self.last_arrival: dict[tuple[str, str], float] = {}
        self.started = False
        self._restored = False

    def run(self) -> None:
        """Start the roles if needed, and run until no event is left."""
        if not self.started:
            self.started = True
            for name, mailbox in self.mailboxes.items():
                self._after(name, mailbox, 0.0, mailbox.role.start())
        elif self._restored:
            for name, mailbox in self.mailboxes.items():
                if not mailbox.role.done and (sends := mailbox.role.resumed()):
                    self._send(self.time, name, sends)
        self._restored = False
        while self.events:
            event = heapq.heappop(self.events)
            self.time, _, _, name, message = event
            mailbox = self.mailboxes[name]
            if message is not None:
                mailbox.inbox.append(message)
                if mailbox.idle:
                    self._serve(name, mailbox)
            elif self._has_turn(event):
                self._serve(name, mailbox)
        waiting = [name for name, mailbox in self.mailboxes.items() if not mailbox.role.done]
        if waiting:
            raise ProtocolError(f"the run stalled: no message is in flight, but {', '.join(waiting)} wait for messages")

    def snapshot(self) -> dict[str, State]:
        """Return the state of each role by its name, and under ``""`` that of the runtime itself."""
        return {name: mailbox.role.snapshot() for name, mailbox in self.mailboxes.items()} | {"": state.snapshot(self)}

    def restore(self, states: Mapping[str, State]) -> None:
        """Restore new roles and the runtime to the state that `snapshot` saved."""
        names = list(self.mailboxes)
        if "" not in states or states.keys() - {""} != self.mailboxes.keys():
            raise RunError(f"the checkpoint has roles {sorted(states.keys() - {''})}, but the job has {sorted(names)}")
        for name, mailbox in self.mailboxes.items():
            mailbox.role.restore(states[name])
        state.restore(self, states[""])
        if self.mailboxes.keys() != set(names):
            raise RunError(
                f"the checkpoint has messages for {sorted(self.mailboxes)}, but the job has roles {sorted(names)}"
            )
        self.mailboxes = {name: self.mailboxes[name] for name in names}
        self._restored = True

    def _has_turn(self, event: Event) -> bool:
        """Return whether an event without a message is its role's next turn; injected faults have other events."""
        return True

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        role = mailbox.role
        before = role.effort
        if mailbox.inbox:
            sends = role.receive(mailbox.inbox.popleft())
        else:
            sends = role.work()
            if not sends and role.effort == before:
                mailbox.idle = True
                return
        self._after(name, mailbox, before, sends)

    def _after(self, name: str, mailbox: Mailbox, effort_before: float, sends: Sends) -> None:
        """Send a role's answer, and schedule the role's next turn after its computation."""
        role, finished = mailbox.role, self.time
        if role.effort != effort_before:
            finished += self.clock.computing(name, role.effort - effort_before)
        bytes_until_now = self.transcript.total_bytes
        if sends:
            self._send(finished, name, sends)
        if role.traffic:
            for traffic in role.take_traffic():
                self.transcript.count(finished, traffic)
        if role.opened:
            self.transcript.overhear(role.take_opened())
        mailbox.idle = False
        self._schedule(finished, READY, name, None)
        if role.reports:
            for report in role.take_reports():
                if self.on_report is not None:
                    self.on_report({**report, "bytes": bytes_until_now, "time": finished})

    def _send(self, time: float, sender: str, sends: Sends) -> None:
        # Look up once for each turn, not for each message: look-ups take most of the time here.
        mailboxes, events, last_arrival = self.mailboxes, self.events, self.last_arrival
        add, sending = self.transcript.add, self.clock.sending
        for message in sends:
            receiver = message.receiver
            if message.sender != sender or receiver not in mailboxes:
                raise self._misaddressed(sender, message)
            link = (sender, receiver)
            arrival = time + sending(sender, receiver, add(time, message))
            last = last_arrival.get(link, 0.0)
            if arrival < last:
                arrival = last
            last_arrival[link] = arrival
            heapq.heappush(events, (arrival, ARRIVAL, self.scheduled, receiver, message))
            self.scheduled += 1

    def _misaddressed(self, sender: str, message: Message) -> ProtocolError:
        return ProtocolError(f"{sender} tried to send {message.kind!r} from {message.sender} to {message.receiver}")

    def _schedule(self, time: float, rank: int, role: str, message: Message | None) -> None:
        heapq.heappush(self.events, (time, rank, self.scheduled, role, message))
        self.scheduled += 1
