"""Constraints that hold among the people of each pattern of presence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import EqualizedOdds, EqualOpportunity, GroupAgainstOverall, NeymanPearson, VerticalClassifier
from evenhand.constraints.binding import bind, inequalities
from evenhand.constraints.groups import PATTERNS, with_crossing
from evenhand.constraints.presence import ANY, FEWEST_IN_PATTERN, NOBODY, OTHERS, patterns_of, with_patterns
from evenhand.errors import ConstraintError, DataError, InputError, SmallSliceWarning
from evenhand.privacy import RandomizedResponse
from evenhand.protocol.terms import VerticalTerms
from evenhand.solvers.roles import vertical_terms

ROWS = 4000
ASKED = EqualOpportunity(0.02, measure="error", by_presence=True)


def _people(shares: dict[str, float], seed: int = 0) -> tuple[np.ndarray, pd.DataFrame, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(ROWS) < 0.5, 1.0, -1.0)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], ROWS)})
    return labels, frame, {name: rng.random(ROWS) < share for name, share in shares.items()}


def test_each_row_has_the_names_of_the_parties_that_have_it() -> None:
    held = {"shop": np.array([True, True, False, False]), "phone": np.array([True, False, True, False])}
    assert list(patterns_of(held)) == ["shop + phone", "shop", "phone", NOBODY]


def test_rare_patterns_share_one() -> None:
    labels, frame, held = _people({"shop": 0.5, "phone": 0.03})
    found = with_patterns(ASKED, labels, frame, held)[PATTERNS]
    # "phone" and "shop + phone" have some 60 rows each: together they are too few, and take the next pattern in.
    assert set(found) == {OTHERS, NOBODY} or set(found) == {OTHERS, "shop"}
    for pattern in set(found):
        for sex in "fm":
            assert ((found == pattern) & (labels == 1) & (frame["sex"] == sex)).sum() >= FEWEST_IN_PATTERN
    with pytest.warns(SmallSliceWarning, match="by_presence bounds all rows together"):
        few = with_patterns(ASKED, labels[:300], frame[:300], {name: one[:300] for name, one in held.items()})
    assert set(few[PATTERNS]) == {ANY}


def test_held_out_rows_have_the_patterns_of_training_rows() -> None:
    labels, frame, held = _people({"shop": 0.5, "phone": 0.5})
    training = np.arange(ROWS) < 3000
    held["phone"][training] = False
    found = with_patterns(ASKED, labels, frame, held, training)[PATTERNS]
    assert set(found[training]) == {"shop", NOBODY}
    assert set(found) == {"shop", NOBODY}


def test_every_pattern_has_the_inequalities_of_all_rows() -> None:
    labels, frame, held = _people({"shop": 0.5})
    found = with_patterns(ASKED, labels, frame, held)
    scores = np.random.default_rng(1).normal(size=ROWS)
    bound = bind(ASKED, labels, found)
    values, _ = bound.reported(labels, scores)
    assert bound.names == [
        f"false-negative rate, f vs. m (sex), also at {pattern}" for pattern in sorted({"shop", NOBODY})
    ]
    for pattern, value in zip(sorted({"shop", NOBODY}), values, strict=True):
        rows = (found[PATTERNS] == pattern).to_numpy()
        alone = bind(replace(ASKED, by_presence=False), labels[rows], frame[rows]).reported(labels[rows], scores[rows])
        assert value == pytest.approx(alone[0][0], abs=1e-12)


def test_kinds_without_groups_and_against_everybody_hold_by_pattern_too() -> None:
    labels, frame, held = _people({"shop": 0.5})
    overall = GroupAgainstOverall(0.1, measure="positive", by_presence=True)
    rows = bind(overall, labels, with_patterns(overall, labels, frame, held)).rows
    assert {part.pattern for row in rows for _, part in row.terms} == {"shop", NOBODY}
    limit = NeymanPearson(0.2, measure="error", by_presence=True)
    alone = with_patterns(limit, labels, pd.DataFrame(index=range(ROWS)), held)
    assert [str(row) for row in bind(limit, labels, alone).rows] == [
        f"false-negative rate, also at {pattern}" for pattern in sorted({"shop", NOBODY})
    ]


def test_attributes_are_crossed_within_patterns() -> None:
    labels, frame, held = _people({"shop": 0.5})
    frame["old"] = np.arange(ROWS) % 2
    asked = EqualizedOdds(0.05, measure="error", cross=True, by_presence=True)
    found = with_patterns(asked, labels, frame, held)
    named = {part.attribute for row in bind(asked, labels, found).rows for _, part in row.terms}
    assert named == {"sex", "old", "sex × old"}
    assert list(with_crossing(found).columns) == ["sex", "old", PATTERNS, "sex × old"]


def test_other_constraints_do_not_see_patterns() -> None:
    groups: dict[str, tuple[Any, ...]] = {"sex": ("f", "m")}
    plain = EqualOpportunity(0.02)
    assert inequalities([plain], groups) == inequalities([plain], {**groups, PATTERNS: ("shop", NOBODY)})
    with pytest.raises(ConstraintError, match=r"by_presence=True.*left"):
        inequalities([ASKED], groups)


def test_terms_hold_the_patterns() -> None:
    job = VerticalClassifier(constraint=ASKED)._job()
    terms = replace(
        vertical_terms(job, {"bank": "active", "shop": "passive"}, ROWS, {}),
        groups={"sex": ("f", "m"), PATTERNS: ("shop", NOBODY)},
    )
    assert VerticalTerms.from_text(json.dumps(terms.to_plain())).inequalities == terms.inequalities
    assert len(terms.inequalities) == 2


def _tables(seed: int = 0, rows: int = 6000) -> tuple[dict[str, pd.DataFrame], pd.Series, pd.Series]:
    """Presence at the shop depends on the group and the label: a proxy for both."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    base, spend = rng.normal(size=(2, rows))
    spend += 1.5 * (sex == "m")
    label = (base + spend + 0.8 * (sex == "m") + rng.logistic(size=rows) > 0.4).astype(int)
    known = rng.random(rows) < np.where(sex == "m", 0.75, 0.35) * np.where(label == 1, 1.0, 0.8)
    bank = pd.DataFrame({"base": base, "job": (sex == "m") + rng.normal(size=rows)})
    tables = {"bank": bank, "shop": pd.DataFrame({"spend": spend})[known]}
    return tables, pd.Series(label), pd.Series(sex, name="sex")


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_a_bound_for_each_pattern_is_met_where_the_bound_over_all_rows_hides_gaps(model: str) -> None:
    if model == "trees":
        pytest.importorskip("lightgbm")
    tables, label, sex = _tables()
    asked = EqualOpportunity(0.05, measure="error", by_presence=True)
    settings: dict[str, Any] = {"model": model, "max_rounds": 12 if model == "trees" else 60}
    worst = {}
    for one in (replace(asked, by_presence=False), asked):
        fitted = VerticalClassifier(constraint=one, missing_party="absent", **settings)
        fitted.fit(tables, label, sensitive_features=sex, ids="left")
        held = {"shop": pd.Series(range(len(label))).isin(tables["shop"].index).to_numpy()}
        signs = np.where(label == 1, 1.0, -1.0)
        bound = bind(asked, signs, with_patterns(asked, signs, sex.to_frame(), held))
        worst[one.by_presence] = np.abs(bound.reported(signs, fitted.decision_function(tables))[0]).max()
    assert worst[True] <= 0.055 < worst[False]


def test_wrong_uses_are_refused() -> None:
    tables, label, sex = _tables(rows=800)
    whole = {"bank": tables["bank"], "shop": tables["bank"][["base"]]}
    with pytest.raises(ConstraintError, match=r'by_presence=True.*ids = "left"'):
        VerticalClassifier(constraint=ASKED).fit(whole, label, sensitive_features=sex)
    with pytest.raises(InputError, match="by_presence and label_privacy"):
        VerticalClassifier(constraint=ASKED, label_privacy=RandomizedResponse(epsilon=2.0)).fit(
            tables, label, sensitive_features=sex, ids="left"
        )
    with pytest.raises(DataError, match="reserved for presence"):
        VerticalClassifier(constraint=ASKED).fit(tables, label, sensitive_features=sex.rename(PATTERNS), ids="left")
    with pytest.raises(ConstraintError, match="by_presence is 'yes'; it must be True or False"):
        EqualOpportunity(0.1, by_presence="yes")  # type: ignore[arg-type]
