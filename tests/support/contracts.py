"""What roles of every solver owe every runtime, for the contract suites of all splits.

A suite says how its roles are made; nothing here knows a solver, its messages or its data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Report, Role, Sends
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.runtime.inprocess import InProcess, Mailbox, VirtualClock

Make: TypeAlias = Callable[[], Mapping[str, Role]]
"""Makes all roles of a run, by name."""


class OnDemand(Mapping[str, Role]):
    """Roles of a run by name, each made when it is first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], Role]]) -> None:
        self._makers = makers
        self._made: dict[str, Role] = {}

    def __getitem__(self, name: str) -> Role:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def assert_same_state(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    """Bit for bit."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


def ends(runtime: InProcess) -> dict[str, dict[str, Any]]:
    """The state of every role."""
    return {name: mailbox.role.snapshot() for name, mailbox in runtime.mailboxes.items()}


def assert_same_ends(one: InProcess, other: InProcess) -> None:
    states = ends(other)
    for name, state in ends(one).items():
        assert_same_state(state, states[name])


class Reborn(InProcess):
    """After every turn, the role that had it is thrown away and made anew from its snapshot.

    Every n-th snapshot goes by way of the disk. What is made anew shares nothing with the roles beside it, so this also
    finds results that depend on company.
    """

    def __init__(
        self,
        make: Make,
        clock: VirtualClock,
        folder: Path,
        on_report: Callable[[Report], None] | None = None,
        *,
        to_disk_every: int = 1,
    ) -> None:
        super().__init__(list(make().values()), clock, Transcript(), on_report)
        self._make, self._file = make, folder / "state.safetensors"
        self._turns, self._every = 0, to_disk_every

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        super()._serve(name, mailbox)
        state = mailbox.role.snapshot()
        self._turns += 1
        if self._turns % self._every == 0:
            self._file.write_bytes(state_bytes(state))
            state = state_from(self._file.read_bytes(), self._file)
        mailbox.role = self._make()[name]
        mailbox.role.restore(state)


class Listening(InProcess):
    """Notes every message that reaches a role."""

    def __init__(self, make: Make, clock: VirtualClock) -> None:
        roles = list(make().values())
        super().__init__(roles, clock, Transcript(keep_messages=True))
        self.heard: Counter[tuple[str, str, str, int]] = Counter()
        for role in roles:
            self._listen(role)

    def _listen(self, role: Role) -> None:
        inner = role.receive

        def receive(message: Message) -> Sends:
            self.heard[message.sender, role.name, message.kind, message.nbytes] += 1
            return inner(message)

        role.receive = receive  # type: ignore[method-assign]


def spoiled(message: Message) -> list[Message]:
    """Ways in which a message can be wrong."""
    head, body = (message.sender, message.receiver), dict(message.body)
    first = next(iter(body))
    found = [
        Message(*head, "no-such-kind", body),
        Message(*head, message.kind, {**body, "extra": np.array(1.0)}),
        Message(*head, message.kind, {name: array for name, array in body.items() if name != first}),
        Message("stranger", message.receiver, message.kind, body),
    ]
    for name, array in body.items():
        # No schema has complex numbers: they are of the wrong type whatever the right one is.
        wrong = [array[None], np.zeros(array.shape, np.complex64)]
        if array.dtype.kind == "f":
            wrong += [np.full_like(array, np.nan), np.full_like(array, np.inf)]
        found += [Message(*head, message.kind, {**body, name: value}) for value in wrong if value.size]
    return found


def assert_malformed_is_refused(roles: Mapping[str, Role], messages: Iterable[Message]) -> None:
    """Of each kind that a role was sent, a spoiled one is refused and changes nothing; every role was sent some."""
    every_kind = {(message.receiver, message.kind): message for message in messages}
    assert {receiver for receiver, _ in every_kind} == set(roles)
    for (receiver, _), message in every_kind.items():
        for wrong in spoiled(message):
            before = roles[receiver].snapshot()
            with pytest.raises(ProtocolError):
                roles[receiver].receive(wrong)
            assert_same_state(roles[receiver].snapshot(), before)


def assert_goes_on_from_any_checkpoint(make: Make, clock: VirtualClock) -> None:
    """A run taken up at any row of history ends as the whole one does, at the same time."""
    taken: list[dict[str, Any]] = []
    whole = InProcess(list(make().values()), clock, on_report=lambda _: taken.append(whole.snapshot()))
    whole.run()
    assert len(taken) > 1
    for states in taken:
        resumed = InProcess(list(make().values()), clock)
        resumed.restore(states)
        resumed.run()
        assert resumed.time == whole.time
        assert_same_ends(resumed, whole)


def assert_transcript_is_complete(make: Make, clock: VirtualClock) -> None:
    """Every message that reached a role is in the transcript once, with its bytes."""
    runtime = Listening(make, clock)
    runtime.run()
    transcript = runtime.transcript
    assert Counter((e.sender, e.receiver, e.kind, e.nbytes) for e in transcript) == runtime.heard
    sizes = [sum(array.nbytes for array in message.body.values()) for message in transcript.messages or []]
    assert [entry.nbytes for entry in transcript] == sizes
    assert transcript.total_bytes == sum(sizes)
