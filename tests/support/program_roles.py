"""What the roles of every solver of programs owe a runtime, as one suite; a subclass gives the fixture `make`.

Beyond `horizontal_contract`: programs that no job can say, with a regulariser, a server of any kind, other curvature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.contracts import (
    Make,
    Reborn,
    assert_goes_on_from_any_checkpoint,
    assert_malformed_is_refused,
    assert_same_ends,
    assert_same_state,
)
from support.faults import Faults, FaultyInProcess

from evenhand.errors import ProtocolError
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess, VirtualClock

CLOCK = VirtualClock(latency=3e-7, speeds={"c0": 2e9, "c1": 3e7, "c2": 1e8}, latencies={"c2": 2e-6})


def run(make: Make, **runtime: Any) -> InProcess:
    whole = InProcess(list(make().values()), CLOCK, Transcript(keep_messages=True), **runtime)
    whole.run()
    return whole


class ProgramRolesContract:
    """Every test here is run for every solver of programs."""

    @pytest.mark.portable
    def test_a_role_restored_after_every_message_runs_as_if_it_had_not_been(self, make: Make, tmp_path: Path) -> None:
        reborn = Reborn(make, CLOCK, tmp_path)
        reborn.run()
        whole = run(make)
        assert reborn.transcript.entries == whole.transcript.entries
        assert_same_ends(reborn, whole)

    @pytest.mark.portable
    def test_a_run_taken_up_from_a_checkpoint_ends_the_same(self, make: Make) -> None:
        assert_goes_on_from_any_checkpoint(make, CLOCK)

    @pytest.mark.portable
    def test_faults_change_nothing(self, make: Make) -> None:
        crashes = {"c1": [1, 3], "server": [5]}
        faults = Faults(drop=0.2, duplicate=0.2, delay=1e-6, timeout=1e-5, crashes=crashes, seed=4)
        faulty = FaultyInProcess(list(make().values()), faults, CLOCK)
        faulty.run()
        assert_same_ends(faulty, run(make))

    def test_a_malformed_message_is_refused_and_changes_nothing(self, make: Make) -> None:
        roles = make()
        roles["server"].start()
        assert_malformed_is_refused(roles, run(make).transcript.messages or [])

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
