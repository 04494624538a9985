"""Cuts where little can be chosen: few rows, equal scores, one class, all or nobody selected."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import DemographicParity, HorizontalClassifier, VerticalClassifier
from evenhand.constraints.thresholds import Threshold
from evenhand.errors import DataError, EvenhandError, InputError
from evenhand.estimators.shared import ShortfallWarning
from evenhand.report.verdicts import selects_few

RULES = [
    Threshold("accuracy"),
    Threshold("cost", missed=5, false_alarm=1),
    Threshold("rate", capacity=0.3),
    Threshold("recall", target=0.6),
    Threshold("precision", target=0.6),
]


def fitted(split: str, X: pd.DataFrame, y: Any, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortfallWarning)
        if split == "vertical":
            return VerticalClassifier(**given).fit([X[["a"]], X[["b"]]], y)
        return HorizontalClassifier(**given).fit(X, y, clients=np.arange(len(X)) % 2)


def selected(split: str, model: Any, X: pd.DataFrame) -> Any:
    return model.predict([X[["a"]], X[["b"]]] if split == "vertical" else X) == "yes"


def table(size: int, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.normal(size=(size, 2)), columns=["a", "b"])
    y = np.where(X["a"] + random.normal(size=size) > 0.3, "yes", "no")
    return X, y


@pytest.mark.parametrize("split", ["vertical", "horizontal"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_tiny_tables_have_a_cut(split: str, rule: Threshold) -> None:
    X = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "b": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]})
    y = np.array(["no", "no", "yes", "no", "yes", "yes"])
    model = fitted(split, X, y, threshold=rule)
    assert np.isfinite(model.cut_.score)
    if rule.rule == "rate":
        # Cross-fitted scores choose the cut, so the share on the training rows is near.
        assert selected(split, model, X).sum() <= 3


def test_a_fold_with_one_class_does_not_stop_the_search() -> None:
    """Two positives at two clients: single rows are in no fold."""
    X, _ = table(90)
    for count in (1, 2, 3):
        y = np.where(np.arange(90) < count, "yes", "no")
        model = fitted("horizontal", X, y, threshold=Threshold("recall", target=0.5))
        assert np.isfinite(model.cut_.score)


def test_too_few_rows_of_a_class_in_a_fold_are_named() -> None:
    """Parties refuse a fourth round on derivatives of few rows; a fold has two thirds of those of a class."""
    random = np.random.default_rng(1)
    X, y = pd.DataFrame(random.normal(size=(200, 2)), columns=["a", "b"]), np.where(np.arange(200) < 5, "yes", "no")
    given: dict[str, Any] = {"threshold": Threshold("recall", target=0.5), "tol": 1e-6, "alpha": 1e-4}
    fitted("vertical", X, y, tol=1e-6, alpha=1e-4)
    with pytest.raises(DataError, match=r"has 3 of the 133 training rows.*A rule for the cut leaves out a third"):
        fitted("vertical", X, y, **given)
    many = np.where(np.arange(200) < 9, "yes", "no")
    assert np.isfinite(fitted("vertical", X, many, **given).cut_.score)


@pytest.mark.parametrize("split", ["vertical", "horizontal"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_one_class_is_refused(split: str, rule: Threshold) -> None:
    X, _ = table(30)
    with pytest.raises((EvenhandError, ValueError), match="one class"):
        fitted(split, X, np.full(30, "yes"), threshold=rule)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_equal_scores_select_everybody_or_nobody(rule: Threshold) -> None:
    signs, scores = np.resize([1.0, -1.0, -1.0], 30), np.full(30, 0.7)
    chosen = scores > rule.choose(signs, scores)
    assert chosen.all() or not chosen.any()
    if rule.rule == "rate":
        # All of them are more than the capacity.
        assert not chosen.any()
    if rule.rule == "recall":
        assert chosen.all()


@pytest.mark.parametrize("split", ["vertical", "horizontal"])
def test_everybody_or_nobody_is_selected_where_that_is_asked(split: str) -> None:
    X, y = table(120)
    assert selected(split, fitted(split, X, y, threshold=Threshold("rate", capacity=1.0)), X).mean() >= 0.98
    all_found = selected(split, fitted(split, X, y, threshold=Threshold("recall", target=1.0)), X)
    assert all_found[y == "yes"].mean() >= 0.98
    nobody = selected(split, fitted(split, X, y, threshold=Threshold("rate", capacity=0.001)), X)
    assert nobody.mean() <= 0.02


def test_a_capacity_of_all_rows_and_a_bound_hold_together() -> None:
    X, y = table(300)
    sex = np.resize(["f", "m"], 300)
    model = VerticalClassifier(constraint=DemographicParity(0.1), threshold=Threshold("rate", capacity=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortfallWarning)
        model.fit([X[["a"]], X[["b"]]], y, sensitive_features=sex)
    assert selected("vertical", model, X).mean() >= 0.95


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("capacity", 0, "must be a positive number"),
        ("capacity", -0.1, "must be a positive number"),
        ("capacity", 1.01, "at most 1"),
        ("capacity", float("nan"), "must be a positive number"),
        ("capacity", True, "must be a positive number"),
        ("target", 0, "must be a positive number"),
        ("target", 2, "at most 1"),
    ],
)
def test_shares_that_are_none_are_refused(name: str, value: Any, words: str) -> None:
    rule: Any = "rate" if name == "capacity" else "recall"
    with pytest.raises(InputError, match=words):
        Threshold(rule, **{name: value})


@pytest.mark.parametrize(
    ("count", "rule", "words"),
    [
        (0, "0.5", "nearly nobody is selected: 0 of the 100"),
        (1, "cost", "The rule 'cost' chose this cut"),
        (100, "0.5", "nearly everybody is selected: 100 of the 100"),
        (30, "0.5", ""),
        (80, "rate", "more rows are selected than the capacity allows: 80 of 100 rows, where it allows 20. Beside it"),
        (2, "rate", "fewer rows are selected than the capacity allows: 2 of 100 rows, where it allows 20"),
        (22, "rate", ""),
    ],
)
def test_a_remark_says_that_nearly_nobody_or_everybody_is_selected(count: int, rule: str, words: str) -> None:
    one = {"rows": 100, "positives": 30, "selected": count, "hits": min(count, 30)}
    held = [{"row": "selection rate, f vs. m (sex)", "estimate": 0.31, "asked": 0.02}]
    result = {
        "performance": {"train": [one]},
        "cut": {"rule": rule, "asked": 0.2},
        "constraints": {"train": held},
    }
    said = " ".join(selects_few(result))
    assert words in said
    assert bool(words) == bool(said)
    if "Beside it" in words:
        assert "selection rate, f vs. m (sex) is 0.310, where 0.02 is asked" in said
