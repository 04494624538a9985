"""Terms come through JSON unchanged, and strange ones are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.constraints import EqualizedOdds, NeymanPearson
from evenhand.constraints.scope import ConstraintScope
from evenhand.constraints.slices import Slice
from evenhand.errors import InputError, ProtocolError
from evenhand.protocol.enrol import EnrolParty, EnrolServer
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms, Terms, VerticalTerms

JOB = Job("subspace", (EqualizedOdds(0.02, "error", 0.3), NeymanPearson(0.2)), alpha=0.1, options={"history": 4})
VERTICAL = VerticalTerms(JOB, {"bank": "active", "St. Mary": "passive"}, 120, {"sex": ("f", "m"), "age": (1, 2, 3)})
HORIZONTAL = HorizontalTerms(
    JOB,
    {"c0": "client", "c1": "client"},
    30,
    {"sex": ("f", "m")},
    shape=(5,),
    scope=ConstraintScope("both", None, "leave out"),
    slice_counts={Slice(1, "sex", "f"): 4, Slice(): 30},
    left_out={"c1": (0,)},
)


@pytest.mark.parametrize("terms", [VERTICAL, HORIZONTAL])
def test_terms_come_through_json_unchanged(terms: Terms) -> None:
    again = type(terms).from_plain(json.loads(json.dumps(terms.to_plain())))
    assert again == terms
    assert again.digest == terms.digest
    assert [str(row) for row in again.inequalities] == [str(row) for row in terms.inequalities]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 7},
        {"job": {"solver": "subspace"}},
        {"job": {**VERTICAL.to_plain()["job"], "constraints": [{"kind": "no-such"}]}},
        {"participants": {"bank": "owner"}},
        {"participants": {"../bank": "active"}},
        {"n_rows": "many"},
        {"groups": 3},
    ],
)
def test_strange_terms_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        VerticalTerms.from_plain(VERTICAL.to_plain() | change)
    lacking = VERTICAL.to_plain()
    del lacking[next(iter(change))]
    with pytest.raises(ProtocolError):
        VerticalTerms.from_plain(lacking)


def test_the_digest_sees_every_change() -> None:
    others = [
        VerticalTerms(JOB, VERTICAL.participants, 121, VERTICAL.groups),
        VerticalTerms(JOB, {"bank": "active", "St. Mary": "active"}, 120, VERTICAL.groups),
        VerticalTerms(JOB, VERTICAL.participants, 120, {**VERTICAL.groups, "sex": ("m", "f")}),
        VerticalTerms(Job("subspace", JOB.constraints, options={"history": 5}), VERTICAL.participants, 120, {}),
        VerticalTerms(JOB, dict(reversed(VERTICAL.participants.items())), 120, VERTICAL.groups),
        VerticalTerms(JOB, VERTICAL.participants, 120, dict(reversed(VERTICAL.groups.items()))),
        VerticalTerms(JOB, VERTICAL.participants, 120, VERTICAL.groups, warm=True),
    ]
    assert len({VERTICAL.digest, *(other.digest for other in others)}) == len(others) + 1


def test_the_order_of_options_and_numpys_numbers_change_nothing() -> None:
    def terms(seed: Any, alpha: Any, options: dict[str, Any]) -> VerticalTerms:
        return VerticalTerms(Job("subspace", alpha=alpha, seed=seed, options=options), {"bank": "active"}, 7)

    plain = terms(3, 0.5, {"exact_rates": False, "history": 4})
    other = terms(np.int64(3), np.float64(0.5), {"history": np.int32(4), "exact_rates": False})
    assert other.digest == plain.digest


def test_rows_at_a_client_have_its_own_bound_and_lack_what_it_lacks() -> None:
    limits = ConstraintScope("both", {"c0": 0.5, "server": 0.7})
    job = Job("sqp", (NeymanPearson(0.2),))
    terms = HorizontalTerms(job, {"c0": "client", "c1": "client"}, 9, scope=limits, left_out={"c1": (0,)})
    assert [row.upper for row in terms.inequalities_at("c0")] == [0.5]
    assert terms.inequalities_at("c1") == ()
    assert [row.upper for row in terms.inequalities_at("server")] == [0.7]


def test_a_run_needs_an_active_party_and_groups_that_json_lacks_are_named() -> None:
    with pytest.raises(InputError, match="no party is active"):
        VerticalTerms(JOB, {"bank": "passive"}, 10, VERTICAL.groups)
    ages = tuple(pd.interval_range(0, 20, periods=2))
    plain = VerticalTerms(JOB, {"bank": "active"}, 10, {"age": ages}).to_plain()
    assert plain["groups"] == {"age": ["(0, 10]", "(10, 20]"]}


def test_options_that_are_mappings_come_through_json() -> None:
    """As an option of one's own solver: by party, a number for each column."""
    options = {"order": {"bank": (1, np.int64(0)), "shop": np.array([0, -1])}}
    terms = VerticalTerms(Job(solver="trees", options=options), {"bank": "active", "shop": "passive"}, 3)
    read = VerticalTerms.from_plain(json.loads(json.dumps(terms.to_plain())))
    assert read.job.options == {"order": {"bank": [1, 0], "shop": [0, -1]}}
    assert read.digest == terms.digest
    role = EnrolParty("shop", VerticalTerms, draft=terms)
    (answer,) = role.receive(next(one for one in EnrolServer(terms).start() if one.receiver == "shop"))
    assert answer.kind == "accepted"
