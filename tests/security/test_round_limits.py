"""A party counts the rounds that it answers itself: a server that goes on asking is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evenhand.errors import ProtocolError
from evenhand.privacy.key_exchange import agree_here
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import Role
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.roles import vertical_terms
from evenhand.vertical.messages import DERIVATIVE, WEIGHTED_DERIVATIVE
from evenhand.vertical.problem import PartyData
from evenhand.vertical.protected.masking import MaskedParty
from evenhand.vertical.trees.messages import DERIVATIVES

ROWS, ROUNDS = 60, 3


def party(solver: str, protection: str = "none") -> Role:
    """Return a passive party of accepted terms, ready to be asked."""
    names: Any = {"bank": "active", "shop": "passive", "phone": "passive"}
    job = Job(solver=solver, protection=protection, max_rounds=ROUNDS)  # type: ignore[arg-type]
    terms = vertical_terms(job, names, ROWS, {})
    assert OwnPolicy(most_rounds=ROUNDS)(terms) is None
    session = agree_here(list(names), terms.digest)["shop"] if protection == "masked" else None
    own = PartyData(np.random.default_rng(1).normal(size=(ROWS, 4)), session=session)
    return solver_roles.party(terms, "shop", own)


def probe(schema: Schema, round_number: int, *, last: int = 0) -> Message:
    """Return a question with a ν of the server's choice, spread over all rows so that its shape is not refused."""
    nu = np.random.default_rng(round_number).choice([-1.0, 1.0], ROWS) / ROWS
    body: dict[str, Any] = {"round": round_number, "last": last, "nu": nu}
    if schema is DERIVATIVE:
        # The logistic loss needs no curvature.
        body["curvature"] = np.zeros(0)
    if schema is WEIGHTED_DERIVATIVE:
        body["step"] = 0.1
    if schema is DERIVATIVES:
        ones = np.ones(ROWS, dtype="f2")
        body = {"round": round_number, "across": 0, "gradient": nu.astype("f2"), "curvature": ones}
        body |= {"gradient_unit": 1.0, "curvature_unit": 1.0}
    return schema.message("server", "shop", **body)


def answered(role: Role, schema: Schema, **more: int) -> int:
    """Ask until the party refuses; return how often it answered."""
    for count in range(12 * ROUNDS):
        try:
            assert role.receive(probe(schema, count + 1, **more))
        except ProtocolError:
            return count
    return 12 * ROUNDS


@pytest.mark.parametrize(
    ("solver", "schema"),
    [("subspace", DERIVATIVE), ("fairvfl", WEIGHTED_DERIVATIVE), ("fedbcd", WEIGHTED_DERIVATIVE)],
)
def test_no_more_rounds_are_answered_than_were_accepted(solver: str, schema: Schema) -> None:
    role = party(solver)
    role.start()
    assert answered(role, schema) == ROUNDS


def test_trees_are_counted_too() -> None:
    pytest.importorskip("lightgbm")
    role = party("trees")
    role.start()
    assert answered(role, DERIVATIVES) <= ROUNDS + 1


def test_calling_each_question_the_last_does_not_help() -> None:
    role = party("subspace")
    role.start()
    assert answered(role, DERIVATIVE, last=1) <= ROUNDS + 1


def test_both_kinds_of_question_share_one_count() -> None:
    """A server that alternates between working and closing questions gets no more of the working ones."""
    role = party("subspace")
    role.start()
    for number in range(1, ROUNDS + 1):
        role.receive(probe(DERIVATIVE, number))
    role.receive(probe(DERIVATIVE, ROUNDS + 1, last=1))
    for last in (0, 1):
        with pytest.raises(ProtocolError, match="rounds allow"):
            role.receive(probe(DERIVATIVE, ROUNDS + 2, last=last))


def test_the_count_survives_a_checkpoint() -> None:
    role = party("subspace")
    role.start()
    for number in range(1, ROUNDS + 1):
        role.receive(probe(DERIVATIVE, number))
    again = party("subspace")
    again.restore(role.snapshot())
    with pytest.raises(ProtocolError, match=f"{ROUNDS} rounds allow {ROUNDS}"):
        again.receive(probe(DERIVATIVE, 1))


def test_a_refused_question_changes_nothing() -> None:
    role = party("subspace")
    role.start()
    for number in range(1, ROUNDS + 1):
        role.receive(probe(DERIVATIVE, number))
    before = role.snapshot()
    with pytest.raises(ProtocolError):
        role.receive(probe(DERIVATIVE, ROUNDS + 1))
    after = role.snapshot()
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_masked_parties_count_behind_their_masks() -> None:
    role = party("subspace", "masked")
    assert isinstance(role, MaskedParty)
    assert role.round_limit == ROUNDS
    question = probe(DERIVATIVE, 1)
    for _ in range(ROUNDS):
        role.check_limit(question)
        role.tally(question)
    with pytest.raises(ProtocolError, match="rounds allow"):
        role.check_limit(question)
