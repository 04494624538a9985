"""Crossed groups across clients: found by messages, or agreed on beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.clients import deal_rows
from support.problems import two_attributes

from evenhand import HorizontalClassifier
from evenhand.constraints import DemographicParity, EqualOpportunity, LossParity, bind
from evenhand.constraints.groups import with_crossing
from evenhand.data import PartyEncoder
from evenhand.errors import ConstraintError, DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.privacy.mechanism import ClippedGaussian
from evenhand.protocol.agree import Summary
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms
from evenhand.solvers.agreeing import KnownBefore, combine, draft_terms, say
from evenhand_reproductions.in_memory import horizontal_terms, train_clients

PROBLEM = two_attributes(rows=240)
LABELS = np.where((PROBLEM.sensitive["group"] == "a") & (PROBLEM.sensitive["sex"] == "f"), -1.0, PROBLEM.labels)
"""Nobody of a × f is positive."""
CROSSINGS = ("a × m", "b × f", "b × m", "c × f", "c × m")
JOB = Job("sqp", (EqualOpportunity(0.2, cross=True),))


def clients(*, turned: int | None = None) -> list[ClientRows]:
    """Three of them; one may have its attributes in another order."""
    found = []
    for place in range(3):
        inside = np.arange(len(LABELS)) % 3 == place
        frame = PROBLEM.sensitive[inside].reset_index(drop=True)
        found.append(
            ClientRows(
                f"c{place}", PROBLEM.matrix[inside], LABELS[inside], frame.iloc[:, :: -1 if place == turned else 1]
            )
        )
    return found


def terms_by(agree: Any, groups: Any = None) -> HorizontalTerms:
    """Return the terms of the clients, where `agree` puts together what all of them say."""
    rows = {one.name: one for one in clients()}
    draft, known = draft_terms(JOB, list(rows)), KnownBefore(groups, simulated=True)
    saying = {name: say(draft, known, one) for name, one in rows.items()}
    combining, agreed = combine(draft, known, None, rows), None
    while True:
        try:
            together = combining.send(agreed)  # type: ignore[arg-type]
        except StopIteration as end:
            terms: HorizontalTerms = end.value
            return terms
        agreed = agree({name: one.send(agreed) for name, one in saying.items()}, together)  # type: ignore[arg-type]


def test_which_crossings_there_are_is_said_in_messages_and_nothing_else_is_looked_at() -> None:
    exchanges: list[dict[str, Summary]] = []

    def agree(summaries: Any, combine: Any) -> Summary:
        exchanges.append(dict(summaries))
        if "crossed" in summaries["c0"]:
            # What is said decides, and not what the rows would have shown.
            summaries = {
                name: {"crossed": [p for p in one["crossed"] if "c" not in p[1]]} for name, one in summaries.items()
            }
        return combine(summaries)

    terms = terms_by(agree)
    assert terms.groups["group × sex"] == ("a × m", "b × f", "b × m")
    said = next(one for one in exchanges if "crossed" in one["c0"])
    own = clients()[1]
    joined = own.groups["group"] + " × " + own.groups["sex"]  # type: ignore[index]
    assert said["c1"]["crossed"] == [list(pair) for pair in sorted(set(zip(own.labels, joined, strict=True)))]


def test_crossings_across_clients_are_those_of_the_pooled_rows() -> None:
    pooled = bind(JOB.constraints, LABELS, PROBLEM.sensitive).names
    run = train_clients(JOB, clients())
    assert run.row_names == pooled
    assert run.terms.groups["group × sex"] == CROSSINGS
    # Columns of a client may have any order.
    turned = horizontal_terms(JOB, clients(turned=1))
    assert turned.groups == run.terms.groups
    assert turned.slice_counts == run.terms.slice_counts


def test_a_constraint_over_the_servers_rows_compares_its_crossings() -> None:
    own = (np.arange(len(LABELS)) % 2 == 0) & ~((PROBLEM.sensitive["group"] == "b") & (PROBLEM.sensitive["sex"] == "m"))
    server = ClientRows("s", PROBLEM.matrix[own], LABELS[own], PROBLEM.sensitive[own])
    terms = horizontal_terms(JOB, clients(), server=server)
    assert terms.groups["group × sex"] == ("a × m", "b × f", "c × f", "c × m")


@pytest.mark.parametrize("named", ["group × sex", "sex × group"])
def test_crossings_agreed_beforehand_are_compared_and_nothing_is_asked(named: str) -> None:
    values = [value if named == "group × sex" else " × ".join(reversed(value.split(" × "))) for value in CROSSINGS[:3]]
    groups = {"group": ["a", "b", "c"], "sex": ["f", "m"], named: values}
    exchanges: list[dict[str, Summary]] = []

    def agree(summaries: Any, combine: Any) -> Summary:
        exchanges.append(dict(summaries))
        return combine(summaries)

    terms = terms_by(agree, groups)
    assert terms.groups[named] == tuple(values)
    assert not any("crossed" in one["c0"] for one in exchanges)
    assert terms.slice_counts == {
        part: int((part.inside(LABELS, with_crossing(PROBLEM.sensitive, named))).sum())
        for part in terms.slice_counts or ()
    }
    run = train_clients(JOB, clients(), groups=groups)
    assert sum(named in name for name in run.row_names) == 3
    with pytest.raises(DataError, match=r"sensitive attributes .*expected"):
        horizontal_terms(Job("sqp", (EqualOpportunity(0.2),)), clients(), groups=groups)
    with pytest.raises(ConstraintError, match="is empty: no client has a row in it"):
        horizontal_terms(JOB, clients(), groups={**groups, named: ["a × z", *values]})


def test_estimators_take_agreed_crossings_and_privacy_says_when_they_were_learned() -> None:
    groups: dict[str, list[str]] = {"group": ["a", "b", "c"], "sex": ["f", "m"]}
    settings: dict[str, Any] = {
        "solver": "fairfedavgalm",
        "constraint": DemographicParity(0.1, cross=True),
        "update_noise": ClippedGaussian(1.0, 1.0, 1.0),
        "max_rounds": 2,
        "encoder": PartyEncoder(scale=False),
    }
    pytest.importorskip("torch")
    given = {"sensitive_features": PROBLEM.sensitive, "clients": np.arange(len(LABELS)) % 3}
    learned = HorizontalClassifier(**settings).fit(PROBLEM.matrix, LABELS, group_values=groups, **given)
    assert "which groups occur" in learned.privacy_["0"].reason
    crossed = {**groups, "group × sex": list(CROSSINGS)}
    agreed = HorizontalClassifier(**settings).fit(PROBLEM.matrix, LABELS, group_values=crossed, **given)
    assert agreed.privacy_["0"].epsilon > 0


def test_what_would_read_alike_when_crossed_is_refused() -> None:
    frame = pd.DataFrame({"sex": ["f", "m × f"], "race": ["x", "y"]})
    with pytest.raises(DataError, match="'m × f' contains ×, the separator"):
        with_crossing(frame)
    with pytest.raises(DataError, match="'a × b' contains ×, the separator"):
        with_crossing(frame[["race", "sex"]].rename(columns={"race": "a × b"}))
    rows = deal_rows(PROBLEM, [list(range(240))])[0]
    strange = ClientRows("c", rows.features, rows.labels, PROBLEM.sensitive.replace({"group": {"a": "a × x"}}))
    with pytest.raises(DataError, match="client 'c': 'a × x' contains ×, the separator"):
        horizontal_terms(Job("sqp", (LossParity(0.2, cross=True),)), [strange])


def test_a_client_that_says_nonsense_is_named() -> None:
    def agree(summaries: Any, combine: Any) -> Summary:
        return combine({name: {"crossed": 3} if "crossed" in one else one for name, one in summaries.items()})

    with pytest.raises(DataError, match="client 'c0' sent an unreadable list of crossed groups"):
        terms_by(agree)
