"""Coefficients are in shares too: two runs that differ by one person tell a passive party nothing of that person.

Coefficients in the clear told the label of the missing person with AUC .96 on Adult.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.problems import deal, small
from vertical.contract import CLOCK, make_job

from evenhand.errors import DataError, ProtocolError
from evenhand.privacy import lattice
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.protected.messages import NEXT_TRIPLE
from evenhand_reproductions.in_memory import Holdings

pytest.importorskip("nacl")
PROBLEM = small(2, rows=120)
CLEAR = ("round", "last", "number", "kept", "vectors")
"""Fields of messages to a passive party that are not random words, keys or ciphertexts."""
LEVELS = ("dealer", "encrypted")


def roles(level: str, labels: Any = PROBLEM.labels) -> dict[str, Role]:
    job = make_job("subspace", protection=level, max_rounds=4, tol=0.0)
    held = Holdings.of(job, deal(PROBLEM, [[0], [1, 2], [3]]), labels, PROBLEM.sensitive).with_keys()
    server, others = held.roles()
    return {role.name: role for role in [server, *others]}


def told(level: str, labels: Any) -> list[Message]:
    """Return what one passive party receives in a run."""
    runtime = InProcess(list(roles(level, labels).values()), CLOCK, Transcript(keep_messages=True))
    runtime.run()
    return [one for one in runtime.transcript.messages or [] if one.receiver == "p1"]


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_in_the_clear_is_the_same_if_one_label_differs(level: str) -> None:
    flipped = PROBLEM.labels.copy()
    flipped[7] = -flipped[7]
    runs = [told(level, labels) for labels in (PROBLEM.labels, flipped)]
    clear = [[(one.kind, {key: one[key].tolist() for key in CLEAR if key in one.body}) for one in run] for run in runs]
    assert clear[0] == clear[1]
    for one, other in zip(*runs, strict=True):
        # Whatever else a message holds is fresh in every run.
        hidden = [key for key in one.body if key not in (*CLEAR, "session") and one[key].size]
        assert hidden
        assert all((one[key] != other[key]).any() for key in hidden)


def test_a_field_in_the_clear_that_follows_the_labels_would_be_found() -> None:
    """The control: the server's own coefficients differ between these runs."""
    flipped = PROBLEM.labels.copy()
    flipped[7] = -flipped[7]
    found = []
    for labels in (PROBLEM.labels, flipped):
        made = roles("dealer", labels)
        InProcess(list(made.values()), CLOCK).run()
        server: Any = made["server"]
        found.append(server.inner.trail.weights)
    assert (found[0] != found[1]).any()


def _stopped(level: str, kind: str) -> tuple[dict[str, Role], Message]:
    """Run until a message of this kind is about to reach p1."""
    made = roles(level)
    queue = [message for role in made.values() for message in role.start()]
    while queue:
        message = queue.pop(0)
        if message.kind == kind and message.receiver == "p1":
            return made, message
        queue += made[message.receiver].receive(message)
    raise AssertionError(kind)


@pytest.mark.parametrize(
    ("level", "kind"), [("dealer", "hidden-coefficients"), ("encrypted", "encrypted-coefficients")]
)
def test_final_coefficients_are_answered_once_and_end_training(level: str, kind: str) -> None:
    made, last = _stopped(level, kind)
    old = Message(last.sender, "p1", kind, {**last.body, "number": np.array(1)})
    with pytest.raises(ProtocolError):
        made["p1"].receive(old)
    made["p1"].receive(last)
    assert made["p1"].done
    with pytest.raises(ProtocolError):
        made["p1"].receive(Message(last.sender, "p1", kind, {**last.body, "number": last["number"] + 1}))


def test_final_coefficients_of_another_number_of_directions_are_refused() -> None:
    made, last = _stopped("dealer", "hidden-coefficients")
    with pytest.raises(ProtocolError, match="do not fit its directions"):
        made["p1"].receive(Message(last.sender, "p1", last.kind, {**last.body, "words": last["words"][:, :-1]}))


@pytest.mark.parametrize(
    "kept", [[], [0, 1], [1], [0, 0], [0, -1], [0, 5], list(range(5000))], ids=lambda one: f"{one[:3]}"
)
def test_the_dealer_deals_for_directions_of_earlier_exchanges_only(kept: list[int]) -> None:
    made = roles("dealer")
    dealer = next(role for role in made.values() if type(role).__name__ == "DealerRole")
    asked = NEXT_TRIPLE.message("server", dealer.name, number=5, last=0, kept=np.array(kept, dtype=np.int64))
    with pytest.raises(ProtocolError, match="takes no 'next-triple'"):
        dealer.receive(asked)


def test_columns_with_too_much_noise_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "MOST_NOISE", 10.0)
    with pytest.raises(DataError, match=r"too large for encryption, .* Scale them"):
        roles("encrypted")
