"""A server cannot go on with terms that a policy has refused, nor change them after they were accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evenhand.errors import RunError
from evenhand.protocol.enrol import OUTCOME, EnrolParty
from evenhand.protocol.job import Job
from evenhand.protocol.messages import as_bytes
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import VerticalTerms
from evenhand.runtime.inprocess import InProcess
from evenhand.solvers.roles import vertical_terms
from evenhand.training.together import enrolled, offer

PARTS: dict[str, Any] = {"bank": "active", "shop": "passive", "phone": "passive"}
TERMS = vertical_terms(Job(solver="subspace", protection="masked", max_rounds=50), PARTS, 100, {})


def goes_on(terms: VerticalTerms, policy: OwnPolicy) -> VerticalTerms:
    """Offer terms to shop, and tell it that everybody has accepted them, whatever it says."""
    program = enrolled("shop", terms, policy)
    role = next(program)
    server = next(offer(terms))
    offered = next(one for one in server.start() if one.receiver == "shop")
    role.receive(offered)
    role.receive(OUTCOME.message(SERVER, "shop", reason=as_bytes("")))
    with pytest.raises(StopIteration) as end:
        next(program)
    found = end.value.value
    assert isinstance(found, VerticalTerms)
    return found


def test_terms_that_are_accepted_are_trained_on() -> None:
    assert goes_on(TERMS, OwnPolicy()) == TERMS


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (OwnPolicy(solvers=["fairvfl"]), "takes no part in solver 'subspace'"),
        (OwnPolicy(most_rounds=10), "50 rounds are more than its 10"),
        (OwnPolicy(least_rows=500), "100 common rows are fewer than its 500"),
        (OwnPolicy(participants=["bank", "shop"]), "no part together with phone"),
        (OwnPolicy(protection="dealer"), "protection 'masked' is less than its 'dealer'"),
        (OwnPolicy(label_epsilon=1.0), "labels have no privacy"),
        (OwnPolicy(protected=True), "only where noise covers"),
    ],
)
def test_a_server_that_goes_on_after_a_refusal_gets_nothing(policy: OwnPolicy, why: str) -> None:
    with pytest.raises(RunError, match=why):
        goes_on(TERMS, policy)


def test_a_refusal_outlives_a_restart() -> None:
    role = EnrolParty("shop", VerticalTerms, OwnPolicy(most_rounds=10))
    server: Role = next(offer(TERMS))
    role.receive(next(one for one in server.start() if one.receiver == "shop"))
    again = EnrolParty("shop", VerticalTerms, OwnPolicy(most_rounds=10))
    again.restore(role.snapshot())
    again.receive(OUTCOME.message(SERVER, "shop", reason=as_bytes("")))
    assert "50 rounds are more than its 10" in str(again.outcome)


@pytest.mark.parametrize("job", [{"solver": "fairvfl"}, {"max_rounds": 60}, {"protection": "none"}])
def test_a_second_offer_of_another_job_is_refused(job: dict[str, Any]) -> None:
    other = replace(TERMS, job=replace(TERMS.job, **job))
    server = next(offer(other))
    parties = [EnrolParty(name, VerticalTerms, OwnPolicy(), TERMS) for name in PARTS]
    InProcess([server, *parties]).run()
    assert all("differ from the accepted ones" in str(one.outcome) for one in parties)
