"""Verdicts on constraints: green only if held-out rows, or a proof, support them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand import DemographicParity, EqualizedOdds, NeymanPearson
from evenhand.constraints.families import find_loss
from evenhand.errors import ConstraintError
from evenhand.jobs.results import later_shortfalls
from evenhand.metrics.held import held_constraints
from evenhand.protocol.job import Job
from evenhand.report.page.assemble import make_page
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import HEADLINES, certified_values, in_short, remarks, verdicts, worst

VALUES = st.one_of(st.none(), st.floats(0.0, 1.0))


def entry(estimate: float | None, asked: float = 0.05, error: float | None = 0.01, **more: Any) -> dict[str, Any]:
    bound = None if estimate is None or error is None else estimate + 2 * error
    head = {"constraint": "equalized-odds", "measure": "error", "asked": asked, "estimate": estimate}
    return {**head, "standard_error": error, "bound": bound, **more}


def result(train: dict[str, Any], test: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    held = {"train": [train], **({} if test is None else {"test": [test]})}
    return {"constraints": held, "certificate": {"converged": True, "violation": 0.0}, **more}


@pytest.mark.parametrize(
    ("train", "test", "state"),
    [
        (0.0728, 0.01, "missed"),
        (0.05, 0.732, "contradicted"),
        (0.05, 0.06, "met"),
        (0.05, 0.04, "met"),
        (0.02, 0.02, "shown"),
        (0.02, None, "met"),
        (None, 0.02, "missed"),
    ],
)
def test_the_state_follows_from_the_numbers(train: float | None, test: float | None, state: str) -> None:
    found = result(entry(train), None if test is None else entry(test))
    assert worst(verdicts(found)) == state
    assert HEADLINES[verdicts(found)[0].state].lower() in in_short(found, constrained=True).lower()


def test_a_run_falls_short_if_held_out_rows_contradict_it() -> None:
    job = Job("subspace", constraints=(EqualizedOdds(0.05, measure="error"),))
    found = result(entry(0.05), entry(0.08, row="false-negative rate, sex: f vs. m"))
    (said,) = later_shortfalls(job, found)
    assert "false-negative rate, sex: f vs. m is 0.080 with a standard error of 0.010, and 0.05 was asked" in said
    assert later_shortfalls(job, result(entry(0.05), entry(0.06))) == []


@pytest.mark.parametrize("groups", [2, 12])
def test_equal_groups_are_seldom_said_to_contradict_however_many_there_are(groups: int) -> None:
    """In the population all groups have the same rates; the widest of many gaps is wide by chance."""
    rng, constraint = np.random.default_rng(0), EqualizedOdds(0.02, measure="error")
    states = []
    for _ in range(100):
        frame = pd.DataFrame({"group": rng.integers(0, groups, 1000).astype(str)})
        labels = np.where(rng.random(1000) < 0.3, 1.0, -1.0)
        scores = rng.random(1000) - np.where(labels > 0, 0.3, 0.9)
        (test,) = held_constraints([constraint], find_loss("logistic"), labels, scores, frame)
        states.append(verdicts(result(entry(0.02, 0.02), test))[0].state)
    assert states.count("contradicted") <= 5


@settings(max_examples=500, deadline=None, derandomize=True)
@given(VALUES, VALUES, VALUES, st.floats(0.001, 0.9), st.booleans(), st.booleans())
def test_no_verdict_is_good_that_the_numbers_beside_it_contradict(
    train: float | None, test: float | None, error: float | None, asked: float, held_out: bool, proven: bool
) -> None:
    proofs = [{"asked": asked, "bound": asked, "holds": proven, "row": ""}]
    unseen = entry(test, asked, error) if held_out else None
    found = result(entry(train, asked), unseen, **({"proofs": proofs} if proven else {}))
    state = worst(verdicts(found))
    if train is None or train > asked * 1.001 + 1e-5:
        assert state == "missed"
    if unseen is not None and test is not None and test > asked * 1.001 + 1e-5:
        assert state != "shown"
    if state == "shown":
        assert proven or (unseen is not None and unseen["bound"] <= asked)


def test_a_violation_on_leave_one_out_scores_is_missed() -> None:
    found = result(entry(0.02), entry(0.02), statistics={"violation on training rows": 0.0})
    assert worst(verdicts(found)) == "shown"
    found["certificate"]["violation"] = 0.01
    assert worst(verdicts(found)) == "missed"


def test_one_of_two_constraints_that_is_contradicted_decides() -> None:
    good, bad = entry(0.01), entry(0.01, constraint="demographic-parity")
    found = result(good, entry(0.01))
    found["constraints"] = {"train": [good, bad], "test": [{**bad, "estimate": 0.5, "bound": 0.6}]}
    assert [one.state for one in verdicts(found)] == ["met", "contradicted"]
    assert worst(verdicts(found)) == "contradicted"


def test_a_bounded_rate_is_not_called_a_gap() -> None:
    for kind in ("neyman-pearson", "bounded-group-loss"):
        rate = entry(0.01, constraint=kind)
        assert verdicts(result(rate, None))[0].quantity == "error rate"
    assert verdicts(result(entry(0.01), None))[0].quantity == "largest gap"


def test_the_page_is_green_only_where_new_people_are_covered(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    (train,), (test,) = (record.result["constraints"][part] for part in ("train", "test"))

    def page(train_value: float, test_value: float, bound: float) -> str:
        held = {
            "train": [{**train, "estimate": train_value}],
            "test": [{**test, "estimate": test_value, "bound": bound, "standard_error": 0.001}],
        }
        certificate = {**record.result["certificate"], "converged": True}
        return make_page([replace(record, result={**record.result, "constraints": held, "certificate": certificate})])

    assert 'class="answer met"' in page(0.01, 0.01, 0.02)
    assert "Shown for new people." in page(0.01, 0.01, 0.02)
    assert 'class="answer open"' in page(0.01, 0.01, 0.2)
    for contradicted in (page(0.01, 0.5, 0.6), page(0.5, 0.01, 0.02)):
        assert 'class="answer missed"' in contradicted


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: EqualizedOdds(5, measure="error"),
        lambda: DemographicParity(1.0),
        lambda: NeymanPearson(1.5, measure="error"),
    ],
)
def test_a_bound_that_no_rate_exceeds_is_refused(wrong: Any) -> None:
    with pytest.raises(ConstraintError, match="which no rate exceeds"):
        wrong()


@pytest.mark.parametrize(
    ("selected", "hits", "rule", "words"),
    [
        (22, 16, "0.5", "nearly nobody is selected: 22 of the 7,095 held-out rows, where 500 are positive; 16"),
        (7000, 499, "0.5", "nearly everybody"),
        (7000, 499, "cost", "499 of these are found. The rule 'cost' chose this cut; look at its numbers"),
        (500, 200, "0.5", None),
        (22, 16, "rate", None),
    ],
)
def test_terminal_and_page_say_that_nearly_nobody_is_selected(
    runs: dict[str, Path], selected: int, hits: int, rule: str, words: str | None
) -> None:
    record = RunRecord.read(runs["fair"])
    line = {"rows": 7095, "positives": 500, "selected": selected, "hits": hits}
    found = record.result["performance"]["test"][0] | line
    content = {**record.result, "performance": {"test": [found]}, "cut": {**record.result["cut"], "rule": rule}}
    said = remarks(content)
    page = make_page([replace(record, result=content)])
    assert [one for one in said if "nearly" in one] == ([] if words is None else [one for one in said if words in one])
    assert ("early nobody is" in page or "early everybody is" in page) == (words is not None)


def test_the_remark_on_a_bound_that_held_out_rows_exceed_is_on_the_page(runs: dict[str, Path]) -> None:
    record = RunRecord.read(runs["fair"])
    held = {"train": [entry(0.01)], "test": [entry(0.2, row="false-negative rate, a vs. b", formula="")]}
    content = {**record.result, "constraints": held}
    (said,) = [one for one in remarks(content) if "above the bound" in one]
    assert "unlikely to be chance" in said
    assert "unlikely to be chance" in make_page([replace(record, result=content)])


def test_the_certificate_states_three_numbers_of_the_inequality_nearest_to_its_bound() -> None:
    limit = {"row": "false-negative rate", "training rows": 0.2, "held-out rows": 0.34, "asked": [None, 0.35]}
    gap = {"row": "selection rate, a vs. b", "training rows": 0.01, "held-out rows": -0.02, "asked": [-0.05, 0.05]}
    said = certified_values({"statistics": {"constraints": [gap, limit]}})
    assert said.endswith(
        "false-negative rate is 0.200 on the training rows and 0.340 on rows left out of it; at most 0.35 was asked"
    )
    blind = {**gap, "held-out rows": None, "training rows": 0.06}
    said = certified_values({"statistics": {"constraints": [limit, blind]}})
    assert "0.060 on the training rows and not estimated" in said
    assert said.endswith("-0.05 to 0.05 was asked")
    assert certified_values({"statistics": {}}) == ""


@pytest.mark.parametrize(("hits", "selected", "said"), [(40, 200, True), (60, 80, False), (0, 0, False)])
def test_a_model_below_the_share_of_the_commoner_label_has_a_remark(hits: int, selected: int, said: bool) -> None:
    line = {"rows": 1000, "positives": 100, "selected": selected, "hits": hits}
    content = {"performance": {"train": [line]}, "constraints": {"train": [entry(0.01)]}}
    found = [one for one in remarks(content) if "commoner label" in one]
    assert bool(found) == said
    assert not said or "78.0% of the 1,000 training rows" in found[0]
    assert not said or "The bound (equalized odds)" in found[0]
