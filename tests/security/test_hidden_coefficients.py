"""Coefficients are in shares too: two runs that differ by one person tell a passive party nothing of that person.

Coefficients in the clear told the label of the missing person with AUC .96 on Adult.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.problems import deal, small
from vertical.contract import CLOCK, make_job

from evenhand.constraints import DemographicParity
from evenhand.errors import DataError, ProtocolError
from evenhand.privacy import lattice
from evenhand.privacy.fixed_point import decode
from evenhand.privacy.fixed_products import DIRECTION_BITS
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.protected.messages import JOINING, NEXT_TRIPLE
from evenhand.vertical.protected.sharing_server import SharedServer
from evenhand_reproductions.in_memory import Holdings

pytest.importorskip("nacl")
PROBLEM = small(2, rows=120)
CLEAR = ("round", "last", "number", "kept", "vectors")
"""Fields of messages to a passive party that are not random words, keys or ciphertexts."""
LEVELS = ("dealer", "encrypted")
KEPT = [[], [0, 1], [1], [0, 0], [0, -1], [0, 5], [0, 2**63 - 1, -5], list(range(5000))]
"""Numbers of exchanges that have not been, before the first."""


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


@pytest.mark.parametrize("kept", KEPT, ids=lambda one: f"{one[:3]}")
def test_the_dealer_deals_for_directions_of_earlier_exchanges_only(kept: list[int]) -> None:
    made = roles("dealer")
    dealer = next(role for role in made.values() if type(role).__name__ == "DealerRole")
    asked = NEXT_TRIPLE.message("server", dealer.name, number=5, last=0, kept=np.array(kept, dtype=np.int64))
    with pytest.raises(ProtocolError, match="takes no 'next-triple'"):
        dealer.receive(asked)


def test_the_opened_norm_of_the_slope_is_the_true_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """ν is scaled up near the optimum and may grow again: a squared norm beyond 2⁶³ words would wrap unnoticed."""
    ratios: list[float] = []
    opened = SharedServer._wraps

    def compare(self: Any, nu: Any, scores: Any, products: Any, squared: float, unit: float) -> bool:
        if opened(self, nu, scores, products, squared, unit):
            return True
        slopes = [one.words.view(np.int64) @ nu * 2.0**-self.grid.column_bits for one in parties]
        pulls = [
            _joined(one.shares[: len(self.trail.weights) - self.trail.bands], self.shares[one.name]) for one in parties
        ]
        weights = self.trail.weights[: -self.trail.bands]
        true = sum(
            float(((slope + self.regulariser * weights @ pull) ** 2).sum())
            for slope, pull in zip(slopes, pulls, strict=True)
        )
        if true > 1e-12:
            ratios.append(squared / true)
        return False

    monkeypatch.setattr(SharedServer, "_wraps", compare)
    for seed in range(4):
        problem = small(seed, rows=400, columns=6)
        bound = (DemographicParity(0.02),)
        job = Job(solver="subspace", constraints=bound, alpha=1e-3, max_rounds=25, tol=1e-4, protection="dealer")
        held = Holdings.of(job, deal(problem, [[0], [1, 2, 3], [4, 5]]), problem.labels, problem.sensitive).with_keys()
        server, others = held.roles()
        parties: list[Any] = [role.inner for role in others if role.name in ("p1", "p2")]
        InProcess([server, *others], CLOCK).run()
    assert len(ratios) > 8
    np.testing.assert_allclose(ratios, 1.0, rtol=1e-2)


def _joined(own: Any, others: Any) -> Any:
    return decode(own + others[: len(own)], DIRECTION_BITS)


@pytest.mark.parametrize(
    ("level", "kind"), [("dealer", "corrections"), ("dealer", "hidden-columns"), ("encrypted", "encrypted-share")]
)
def test_a_server_that_has_ended_takes_no_more(level: str, kind: str) -> None:
    made, old = roles(level), list[Message]()
    queue = [message for role in made.values() for message in role.start()]
    while queue:
        message = queue.pop(0)
        old += [message] if message.kind == kind else []
        queue += made[message.receiver].receive(message)
    for sender in (old[-1].sender, "p0"):
        with pytest.raises(ProtocolError):
            made["server"].receive(Message(sender, "server", kind, old[-1].body))


def test_columns_with_too_much_noise_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "MOST_NOISE", 10.0)
    with pytest.raises(DataError, match=r"too large for encryption, .* Scale them"):
        roles("encrypted")


def test_a_dealer_that_has_ended_takes_no_more() -> None:
    made = roles("dealer")
    InProcess(list(made.values()), CLOCK).run()
    dealer = next(role for role in made.values() if type(role).__name__ == "DealerRole")
    for message in (JOINING.message("p1", dealer.name, columns=2), _next_triple(dealer)):
        with pytest.raises(ProtocolError, match="has ended"):
            dealer.receive(message)


def _next_triple(dealer: Role) -> Message:
    return NEXT_TRIPLE.message("server", dealer.name, number=99, last=0, kept=np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("level", LEVELS)
def test_a_party_without_columns_is_refused_by_name(level: str) -> None:
    parties = deal(PROBLEM, [[0], [1, 2], [3]])
    parties[1] = replace(parties[1], matrix=np.zeros((120, 0)))
    job = make_job("subspace", protection=level, max_rounds=4, tol=0.0)
    held = Holdings.of(job, parties, PROBLEM.labels, PROBLEM.sensitive).with_keys()
    with pytest.raises(DataError, match="p1: it has no columns"):
        held.roles()
