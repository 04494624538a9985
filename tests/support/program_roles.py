"""What the roles of every solver of programs owe a runtime, as one suite; a subclass gives the fixture `make`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime import checkpoints
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.faults import Faults, FaultyInProcess
from evenhand.runtime.inprocess import InProcess, Mailbox
from evenhand.runtime.statefiles import state_bytes, state_from

Make = Callable[[], dict[str, Role]]
CLOCK = VirtualClock(latency=3e-7, speeds={"c0": 2e9, "c1": 3e7, "c2": 1e8}, latencies={"c2": 2e-6})


def run(make: Make, **runtime: Any) -> InProcess:
    whole = InProcess(list(make().values()), CLOCK, Transcript(keep_messages=True), **runtime)
    whole.run()
    return whole


def ends(runtime: InProcess) -> dict[str, dict[str, Any]]:
    return {name: mailbox.role.snapshot() for name, mailbox in runtime.mailboxes.items()}


def assert_same_state(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


def assert_same_ends(one: InProcess, other: InProcess) -> None:
    """Bit for bit."""
    for name, state in ends(one).items():
        assert_same_state(state, ends(other)[name])


class Reborn(InProcess):
    """After every turn, the role that had it is thrown away and made anew from its snapshot, by way of the disk."""

    def __init__(self, make: Make, folder: Path) -> None:
        super().__init__(list(make().values()), CLOCK, Transcript())
        self._make, self._file = make, folder / "state.safetensors"

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        super()._serve(name, mailbox)
        self._file.write_bytes(state_bytes(mailbox.role.snapshot()))
        mailbox.role = self._make()[name]
        mailbox.role.restore(state_from(self._file.read_bytes(), self._file))


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
        wrong = [array[None], array.astype(np.float16)]
        if array.dtype.kind == "f":
            wrong += [np.full_like(array, np.nan), np.full_like(array, np.inf)]
        found += [Message(*head, message.kind, {**body, name: value}) for value in wrong if value.size]
    return found


class ProgramRolesContract:
    """Every test here is run for every solver of programs."""

    def test_a_role_restored_after_every_message_runs_as_if_it_had_not_been(self, make: Make, tmp_path: Path) -> None:
        reborn = Reborn(make, tmp_path)
        reborn.run()
        whole = run(make)
        assert reborn.transcript.entries == whole.transcript.entries
        assert_same_ends(reborn, whole)

    def test_a_run_taken_up_from_a_checkpoint_ends_the_same(self, make: Make) -> None:
        taken: list[dict[str, Any]] = []
        runtime = InProcess(list(make().values()), CLOCK, on_report=lambda _: taken.append(checkpoints.take(runtime)))
        runtime.run()
        assert len(taken) > 1
        for states in taken:
            resumed = InProcess(list(make().values()), CLOCK)
            checkpoints.put_back(resumed, states)
            resumed.run()
            assert_same_ends(resumed, runtime)

    def test_faults_change_nothing(self, make: Make) -> None:
        crashes = {"c1": [1, 3], "server": [5]}
        faults = Faults(drop=0.2, duplicate=0.2, delay=1e-6, timeout=1e-5, crashes=crashes, seed=4)
        faulty = FaultyInProcess(list(make().values()), faults, CLOCK)
        faulty.run()
        whole = run(make)
        for name, state in ends(faulty).items():
            assert_same_state(state, ends(whole)[name])

    def test_a_malformed_message_is_refused_and_changes_nothing(self, make: Make) -> None:
        messages = run(make).transcript.messages or []
        every_kind = {(message.receiver, message.kind): message for message in messages}
        roles = make()
        roles["server"].start()
        for (receiver, _), message in every_kind.items():
            for wrong in spoiled(message):
                before = roles[receiver].snapshot()
                with pytest.raises(ProtocolError):
                    roles[receiver].receive(wrong)
                assert_same_state(roles[receiver].snapshot(), before)

    def test_an_answer_out_of_turn_is_refused_and_changes_nothing(self, make: Make) -> None:
        messages = run(make).transcript.messages or []
        sent = [message for message in messages if message.receiver == "server"]
        server = make()["server"]
        server.start()
        late, first = sent[-1], next(message for message in sent if message.sender == "c0")
        server.receive(first)
        before = server.snapshot()
        for wrong in (late, first):
            with pytest.raises(ProtocolError):
                server.receive(wrong)
            assert_same_state(server.snapshot(), before)
        client = make()["c0"]
        orders = [message for message in messages if message.receiver == "c0"]
        client.receive(orders[0])
        before = client.snapshot()
        with pytest.raises(ProtocolError):
            client.receive(orders[0])
        assert_same_state(client.snapshot(), before)
