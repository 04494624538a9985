"""Calibrated equal odds: costs by brute force, equal costs after mixing, calibration kept, infeasible rates refused."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from evenhand.errors import ConstraintError, DataError, InputError
from evenhand_reproductions.central import CalibratedEqualOddsPostprocessor
from evenhand_reproductions.central.calibrated_equal_odds import mixing

COSTS = ["fnr", "fpr", "weighted"]
Sample = tuple[Any, Any, Any]


def calibrated(copies: int = 1) -> Sample:
    """Exactly calibrated probabilities, labels and groups: among rows with probability p, a share p is positive.

    Group b is told apart better than a, its costs are lower, and each can be lifted to a's.
    """
    blocks = {"a": {0.3: 200, 0.4: 200, 0.6: 200, 0.7: 200}, "b": {0.1: 100, 0.2: 200, 0.8: 150, 0.9: 100}}
    rows = [
        (p, label, group)
        for group, counts in blocks.items()
        for p, size in counts.items()
        for label, number in ((1, round(p * size)), (-1, size - round(p * size)))
        for _ in range(number * copies)
    ]
    probabilities, labels, groups = zip(*rows, strict=True)
    return np.array(probabilities), np.array(labels), np.array(groups)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any probabilities, mostly not calibrated, with rows in each (label x group) slice."""
    n = draw(st.integers(8, 40))
    p = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    slices = np.arange(n) % 4
    return np.array(p), slices % 2, slices // 2


def brute_force(cost: str, p: Any, y: Any, rows: Any) -> float:
    """The cost of one group as the definitions have it, one row at a time."""
    positives = [float(q) for q, label, inside in zip(p, y, rows, strict=True) if inside and label == 1]
    negatives = [float(q) for q, label, inside in zip(p, y, rows, strict=True) if inside and label != 1]
    fnr = sum(1 - q for q in positives) / len(positives)
    fpr = sum(negatives) / len(negatives)
    base_rate = len(positives) / (len(positives) + len(negatives))
    return {"fnr": fnr, "fpr": fpr, "weighted": base_rate * fnr + (1 - base_rate) * fpr}[cost]


@pytest.mark.parametrize("cost", COSTS)
@given(sample=samples())
def test_costs_by_brute_force(cost: str, sample: Sample) -> None:
    p, y, s = sample
    table = CalibratedEqualOddsPostprocessor(cost_constraint=cost, on_infeasible="clip").fit(p, y, s).costs_
    for group in (0, 1):
        base_rate = y[s == group].mean()
        assert table.loc[group, "base_rate"] == pytest.approx(base_rate)
        assert table.loc[group, "cost"] == pytest.approx(brute_force(cost, p, y, s == group))
        trivial = brute_force(cost, np.full_like(p, base_rate), y, s == group)
        assert table.loc[group, "trivial_cost"] == pytest.approx(trivial)


@pytest.mark.parametrize("cost", COSTS)
@given(sample=samples())
def test_rate_is_a_probability_and_equalises_or_is_refused(cost: str, sample: Sample) -> None:
    clipped = CalibratedEqualOddsPostprocessor(cost_constraint=cost, on_infeasible="clip").fit(*sample)
    assert 0 <= clipped.mixing_rate_ <= 1
    gap = np.ptp(clipped.costs_["mixed_cost"])
    assert gap <= np.ptp(clipped.costs_["cost"]) + 1e-12  # clipping never widens the gap
    strict = CalibratedEqualOddsPostprocessor(cost_constraint=cost)
    if clipped.feasible_:
        pd.testing.assert_frame_equal(strict.fit(*sample).costs_, clipped.costs_)
        assert gap <= 1e-9
    else:
        assert gap > 0
        with pytest.raises(ConstraintError, match="no mixing rate equalises"):
            strict.fit(*sample)
        with pytest.raises(NotFittedError):
            strict.predict(sample[0], sample[2])


@given(*[st.floats(0, 1)] * 3)
def test_mixing_lifts_one_cost_to_the_other(own: float, trivial: float, other: float) -> None:
    own, other = sorted((own, other))
    required, used, feasible = mixing(own, trivial, other)
    assert 0 <= used <= 1
    assert feasible == (other - own <= max(trivial - own, 0) + 1e-12)
    if feasible:
        assert own + used * (trivial - own) == pytest.approx(other, abs=1e-11)
        assert used == pytest.approx(required)
    elif trivial - own > 1e-12:
        assert used == 1 < required
    else:
        assert used == 0
        assert required < 0 or required == np.inf


@pytest.mark.parametrize("cost", COSTS)
def test_expected_cost_is_equal_in_closed_form_and_over_seeds(cost: str) -> None:
    p, y, s = calibrated()
    model = CalibratedEqualOddsPostprocessor(cost_constraint=cost).fit(p, y, s)
    table, rate = model.costs_, model.mixing_rate_
    assert model.mixed_group_ == "b"
    assert model.feasible_
    assert 0 < rate < 1
    target = brute_force(cost, p, y, s == "a")
    trivial = brute_force(cost, np.full_like(p, table.loc["b", "base_rate"]), y, s == "b")
    assert (1 - rate) * brute_force(cost, p, y, s == "b") + rate * trivial == pytest.approx(target, abs=1e-12)

    seeds = 300
    drawn = [
        brute_force(cost, model.predict_proba(p, s, random_state=seed), y, s == "b") for seed in range(1, seeds + 1)
    ]
    # One draw's cost is a mean over m rows of independent choices between two errors.
    counted = (s == "b") & {"fnr": y == 1, "fpr": y != 1, "weighted": y != 0}[cost]
    change = (p - table.loc["b", "base_rate"])[counted]
    deviation = np.sqrt(rate * (1 - rate) * np.sum(change**2)) / counted.sum()
    # Five standard errors: fails by chance once in about two million.
    assert abs(np.mean(drawn) - target) < 5 * deviation / np.sqrt(seeds)
    # The variance of a sample variance is about 2/seeds: 0.41 is five of its standard errors.
    assert np.var(drawn) / deviation**2 == pytest.approx(1, abs=0.41)


@pytest.mark.parametrize("cost", COSTS)
def test_calibration_is_kept(cost: str) -> None:
    p, y, s = calibrated(copies=40)
    model = CalibratedEqualOddsPostprocessor(cost_constraint=cost).fit(p, y, s)
    mixed = model.predict_proba(p, s)
    np.testing.assert_array_equal(mixed[s == "a"], p[s == "a"])
    values = np.unique(mixed[s == "b"])
    assert len(values) == 5  # the four probabilities and the base rate
    for value in values:
        positive = y[(s == "b") & (mixed == value)] == 1
        # Drawing without looking at labels: the share of positives is within five standard errors of the value.
        assert positive.mean() == pytest.approx(value, abs=5 * np.sqrt(value * (1 - value) / len(positive)))


def test_averaging_instead_of_drawing_would_lose_calibration() -> None:
    p, y, s = calibrated()
    model = CalibratedEqualOddsPostprocessor().fit(p, y, s)
    averaged = (1 - model.mixing_rate_) * p + model.mixing_rate_ * model.costs_.loc["b", "base_rate"]
    lowest = (s == "b") & (p == 0.1)
    assert averaged[lowest][0] > (y[lowest] == 1).mean() + 0.05


@given(copies=st.integers(1, 3), cost=st.sampled_from(COSTS))
def test_calibrated_probabilities_never_cost_more_than_the_base_rate(copies: int, cost: str) -> None:
    p, y, s = calibrated(copies)
    table = CalibratedEqualOddsPostprocessor(cost_constraint=cost).fit(p, y, s).costs_
    assert (table["cost"] <= table["trivial_cost"] + 1e-12).all()


# Group a has a generalised false-negative rate of 0.5; group b's base rate is 0.8, so its trivial rate is 0.2.
INFEASIBLE = {
    "trivial costs too little": ([1.0, 1, 1, 1, 0], 0.0, 2.5, 1.0, "equalise another cost"),
    "mixing changes nothing": ([0.8] * 5, 0.2, np.inf, 0.0, "equalise another cost"),
    "worse than its base rate": ([0.7, 0.7, 0.7, 0.7, 0], 0.3, -2.0, 0.0, "calibrate"),
}


@pytest.mark.parametrize(("own", "cost", "rate", "used", "remedy"), INFEASIBLE.values(), ids=INFEASIBLE.keys())
def test_infeasible_rates_are_detected(own: list[float], cost: float, rate: float, used: float, remedy: str) -> None:
    p = [0.5] * 4 + own
    y = [1, 1, -1, -1, 1, 1, 1, 1, -1]
    s = list("aaaabbbbb")
    with pytest.raises(ConstraintError, match=remedy) as caught:
        CalibratedEqualOddsPostprocessor(cost_constraint="fnr").fit(p, y, s)
    for told in ("'fnr'", f"group 'b' costs {cost:.4g}", "group 'a' costs 0.5", f"have to be {rate:.4g}"):
        assert told in str(caught.value)

    model = CalibratedEqualOddsPostprocessor(cost_constraint="fnr", on_infeasible="clip").fit(p, y, s)
    assert not model.feasible_
    assert model.required_rate_ == pytest.approx(rate)
    assert (model.mixed_group_, model.mixing_rate_) == ("b", used)
    mixed = model.predict_proba(p, s)
    np.testing.assert_allclose(mixed[4:], 0.8 if used else own)


def test_equal_costs_need_no_mixing() -> None:
    p, y, s = [0.2, 0.8] * 2, [-1, 1] * 2, list("aabb")
    model = CalibratedEqualOddsPostprocessor().fit(p, y, s)
    assert (model.mixing_rate_, model.required_rate_, model.feasible_) == (0.0, 0.0, True)
    np.testing.assert_array_equal(model.predict_proba(p, s), p)


def test_seeds() -> None:
    p, y, s = calibrated()
    model = CalibratedEqualOddsPostprocessor().fit(p, y, s)
    first = model.predict_proba(p, s)
    np.testing.assert_array_equal(first, model.predict_proba(p, s))
    np.testing.assert_array_equal(model.predict(p, s), np.where(first > 0.5, 1, -1))
    np.testing.assert_array_equal(
        first, clone(model).set_params(random_state=3).fit(p, y, s).predict_proba(p, s, random_state=0)
    )
    assert (first != model.predict_proba(p, s, random_state=1)).any()


def test_labels_and_groups_of_any_kind() -> None:
    p, y, s = calibrated()
    expected = CalibratedEqualOddsPostprocessor().fit(p, y, s)
    words = pd.Series(np.where(y == 1, "approved", "refused"), index=range(len(y), 0, -1))
    model = CalibratedEqualOddsPostprocessor().fit(
        pd.Series(p), words, pd.DataFrame({"sex": pd.Categorical(s)}), pos_label="approved"
    )
    pd.testing.assert_frame_equal(model.costs_, expected.costs_)
    np.testing.assert_array_equal(model.predict(p[:5].tolist(), s[:5].tolist()), expected.predict(p[:5], s[:5]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [0.1, 0.2, 0.3, 1.5]}, "1 probabilities are outside"),
        ({"p": [0.1, 0.2, 0.3, np.nan]}, "1 values that are missing"),
        ({"p": np.zeros((4, 2))}, "not one number per row"),
        ({"p": []}, "no rows"),
        ({"y": [1, -1, 1]}, "3 labels for 4 scores"),
        ({"y": [1, -1, 1, None]}, "1 missing"),
        ({"y": [1, -1, 0, 1]}, "3 distinct values"),
        ({"y": [1, 1, 1, 1]}, "1 distinct values"),
        ({"y": [1, "x", 1, "x"], "pos_label": "z"}, "'z' does not occur"),
        ({"y": [1, 1, -1, -1]}, "group 'b' has no positives"),
        ({"s": list("abca")}, "two groups, sensitive_features has 3"),
        ({"s": list("aaaa")}, "only the group 'a'"),
        ({"s": list("aab")}, "3 rows"),
        ({"s": [["a", "x"]] * 4}, "2 columns"),
        ({"s": None}, "0 rows"),
        ({"s": 3}, "cannot be used"),
        ({"s": ["a", "b", 3, 3]}, "no common order"),
    ],
)
def test_bad_rows_are_refused(change: dict[str, Any], message: str) -> None:
    rows: dict[str, Any] = {
        "p": [0.1, 0.8, 0.3, 0.6],
        "y": [-1, 1, -1, 1],
        "s": list("aabb"),
        "pos_label": None,
    } | change
    with pytest.raises(DataError, match=message):
        CalibratedEqualOddsPostprocessor().fit(rows["p"], rows["y"], rows["s"], pos_label=rows["pos_label"])


def test_bad_options_unknown_groups_and_early_use() -> None:
    p, y, s = calibrated()
    with pytest.raises(InputError, match="cost_constraint is 'tpr'"):
        CalibratedEqualOddsPostprocessor(cost_constraint="tpr").fit(p, y, s)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="on_infeasible is 'warn'"):
        CalibratedEqualOddsPostprocessor(on_infeasible="warn").fit(p, y, s)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        CalibratedEqualOddsPostprocessor().predict(p, s)
    with pytest.raises(DataError, match="groups \\['c'\\] were not there"):
        CalibratedEqualOddsPostprocessor().fit(p, y, s).predict([0.5], ["c"])


@pytest.mark.parametrize("cost", ["fnr", "fpr"])
def test_mixing_rate_is_that_of_aif360(cost: str) -> None:
    """Where the rate is feasible; AIF360's "weighted" gives false negatives the weight 1 − μ, so it is not compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its optional parts and its pandas are not our business
        try:
            datasets = importlib.import_module("aif360.datasets")
            processing = importlib.import_module("aif360.algorithms.postprocessing")
        except ImportError:
            pytest.skip("aif360 is not installed; it is no dependency of evenhand")
        p, y, s = calibrated()
        frame = pd.DataFrame({"y": (y == 1).astype(float), "s": (s == "b").astype(float)})
        truth = datasets.BinaryLabelDataset(df=frame, label_names=["y"], protected_attribute_names=["s"])
        scored = truth.copy(deepcopy=True)
        scored.scores = p[:, None]
        peer = processing.CalibratedEqOddsPostprocessing([{"s": 0.0}], [{"s": 1.0}], cost_constraint=cost, seed=0)
        peer.fit(truth, scored)
    model = CalibratedEqualOddsPostprocessor(cost_constraint=cost).fit(p, y, s)
    assert model.mixing_rate_ == pytest.approx(peer.priv_mix_rate)
    assert peer.unpriv_mix_rate == 0
