"""A cut for each group: rates are equal at the level that the rule chooses, and decisions need the group."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import DemographicParity, EqualizedOdds, EqualOpportunity, HorizontalClassifier, VerticalClassifier
from evenhand.constraints import LossParity
from evenhand.constraints.group_cuts import equal_rates
from evenhand.constraints.thresholds import Cut, Ranked
from evenhand.errors import ConstraintError, DataError, GroupDecisionsWarning, InputError
from evenhand.estimators.shared import ShortfallWarning
from evenhand.metrics import Threshold

PARITY = DemographicParity(0.02)
OPPORTUNITY = EqualOpportunity(0.02, measure="error")
ODDS = EqualizedOdds(0.02, measure="error")


def scored(seed: int, size: int = 900, groups: str = "fm") -> tuple[Any, Any, Any]:
    """Return labels ±1, scores and groups; groups differ in their scores and in how well these rank."""
    random = np.random.default_rng(seed)
    group = random.choice(list(groups), size)
    shift = pd.Series(group).map({name: 0.8 * place for place, name in enumerate(groups)}).to_numpy()
    scores = random.normal(shift, 1.0)
    noise = pd.Series(group).map({name: 0.5 + place for place, name in enumerate(groups)}).to_numpy()
    return np.where(scores + noise * random.normal(size=size) > 1.2, 1.0, -1.0), scores, group


def chosen(rule: Threshold, constraint: Any, signs: Any, scores: Any, group: Any) -> Any:
    names = sorted(set(group))
    ranked = [Ranked.of_scores(signs[group == one], scores[group == one]) for one in names]
    places = equal_rates(rule, constraint, ranked)
    cuts = {one: each.cuts[place] for one, each, place in zip(names, ranked, places, strict=True)}
    return scores > np.array([cuts[one] for one in group])


def rates(selected: Any, signs: Any, group: Any, label: int | None) -> list[float]:
    inside = signs == signs if label is None else signs == label
    return [float(selected[inside & (group == one)].mean()) for one in sorted(set(group))]


@pytest.mark.parametrize("groups", ["fm", "abcd"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "rule",
    [
        Threshold("accuracy"),
        Threshold("cost", missed=5, false_alarm=1),
        Threshold("rate", capacity=0.2),
        Threshold("recall", target=0.6),
        Threshold("precision", target=0.8),
    ],
    ids=lambda rule: rule.rule,
)
def test_rates_are_equal_at_the_level_of_the_rule(rule: Threshold, seed: int, groups: str) -> None:
    signs, scores, group = scored(seed, groups=groups)
    grain = 1.0 / min((group == one).sum() for one in groups)
    selected = chosen(rule, PARITY, signs, scores, group)
    assert np.ptp(rates(selected, signs, group, None)) <= grain + 1e-9
    if rule.rule == "rate":
        assert 0.2 - grain <= selected.mean() <= 0.2
    positives = chosen(rule, OPPORTUNITY, signs, scores, group)
    grain = 1.0 / min(((group == one) & (signs > 0)).sum() for one in groups)
    assert np.ptp(rates(positives, signs, group, 1)) <= grain + 1e-9
    if rule.rule == "recall":
        assert 0.6 <= positives[signs > 0].mean() <= 0.6 + grain
    both = chosen(rule, ODDS, signs, scores, group)
    if len(groups) == 2:
        missed, alarms = (np.subtract(*rates(both, signs, group, label)) for label in (1, -1))
        # The two gaps have the same size and opposite signs.
        assert abs(missed + alarms) <= 2.0 * grain


@pytest.mark.parametrize("seed", range(4))
def test_no_pair_of_cuts_beats_the_level(seed: int) -> None:
    """All pairs are tried: the least cost at equal rates, and the smallest worst gap at a level of equalized odds."""
    signs, scores, group = scored(seed, size=120)
    rule = Threshold("cost", missed=3, false_alarm=1)
    by = {one: group == one for one in "fm"}
    tried = [np.r_[-9.0, np.sort(scores[by[one]])] for one in "fm"]
    grain = 1.0 / min(inside.sum() for inside in by.values())

    def cost(selected: Any) -> float:
        return 3.0 * float((~selected & (signs > 0)).sum()) + float((selected & (signs < 0)).sum())

    found = chosen(rule, PARITY, signs, scores, group)
    own = chosen(rule, ODDS, signs, scores, group)
    level = np.mean([rates(own, signs, group, one) for one in (1, -1)])
    worst = max(np.ptp(rates(own, signs, group, one)) for one in (1, -1))
    least, smallest = np.inf, np.inf
    for cuts in product(*tried):
        selected = scores > np.where(by["f"], *cuts)
        if np.ptp(rates(selected, signs, group, None)) <= 0.5 * grain:
            least = min(least, cost(selected))
        two = [rates(selected, signs, group, one) for one in (1, -1)]
        if abs(np.mean(two) - level) <= 1e-9:
            smallest = min(smallest, *(max(np.ptp(one) for one in two),))
    assert cost(found) <= least
    grain = max(1.0 / ((group == one) & (signs == label)).sum() for one in "fm" for label in (1, -1))
    assert worst <= smallest + grain


def tables(seed: int, size: int = 1500) -> tuple[pd.DataFrame, Any, pd.DataFrame]:
    random = np.random.default_rng(seed)
    sex = random.choice(["f", "m"], size, p=[0.4, 0.6])
    X = pd.DataFrame(random.normal(size=(size, 4)), columns=list("abcd"))
    X["a"] += 0.9 * (sex == "f")
    chance = 1.0 / (1.0 + np.exp(2.5 - X["a"] - 0.8 * X["b"]))
    return X, np.where(random.random(size) < chance, "yes", "no"), pd.DataFrame({"sex": sex})


def fitted(split: str, constraint: Any, rule: Threshold, pos_label: Any = None, **more: Any) -> tuple[Any, Any]:
    X, y, sex = tables(0)
    given: dict[str, Any] = {"constraint": constraint, "threshold": rule, "threshold_by": "sex", "pos_label": pos_label}
    model: Any
    if split == "vertical":
        model, of = VerticalClassifier(**given, **more), lambda one: [one[["a", "c"]], one[["b", "d"]]]
        with pytest.warns(GroupDecisionsWarning, match="unlawful in some fields"):
            model.fit(of(X), y, sensitive_features=sex)
    else:
        model, of = HorizontalClassifier(**given, **more), lambda one: one
        with pytest.warns(GroupDecisionsWarning, match="unlawful in some fields"):
            model.fit(X, y, sensitive_features=sex, clients=np.arange(len(X)) % 3)
    return model, of


@pytest.mark.parametrize("split", ["vertical", "horizontal"])
@pytest.mark.parametrize("pos_label", ["yes", "no"])
def test_new_people_are_selected_at_equal_rates(split: str, pos_label: str) -> None:
    model, of = fitted(split, PARITY, Threshold("rate", capacity=0.2), pos_label)
    assert model.cut_.by == "sex"
    assert set(model.cut_.groups) == {"f", "m"}
    assert model.cut_.chosen_on == "cross-fitted scores"
    new, _, sex = tables(1, 20_000)
    selected = model.predict(of(new), sensitive_features=sex) == pos_label
    assert abs(selected.mean() - 0.2) < 0.05
    # 1,500 training rows: a standard error of the gap of rates of 0.2 is 0.021.
    assert np.ptp([selected[sex["sex"] == one].mean() for one in "fm"]) < 0.06
    scores = model.decision_function(of(new)) * (1.0 if pos_label == "yes" else -1.0)
    general = scores > model.cut_.score
    assert np.ptp([general[sex["sex"] == one].mean() for one in "fm"]) > 0.12
    again = deepcopy(model)
    assert (again.predict(of(new), sensitive_features=sex) == model.predict(of(new), sensitive_features=sex)).all()


def test_masked_counts_of_groups_choose_the_same_cuts() -> None:
    pytest.importorskip("cryptography")
    plain, _ = fitted("horizontal", ODDS, Threshold("recall", target=0.6))
    masked, _ = fitted("horizontal", ODDS, Threshold("recall", target=0.6), protection="masked")
    assert masked.cut_.groups == pytest.approx(plain.cut_.groups, abs=1e-4)


@pytest.mark.filterwarnings("ignore:there is a cut for each group")
@pytest.mark.parametrize("split", ["vertical", "horizontal"])
def test_equalized_odds_that_one_cut_a_group_misses_is_a_shortfall(split: str) -> None:
    """Scores rank one group well and the other badly, so that no cuts make both of its rates equal."""
    model: Any
    data: Any
    more: dict[str, Any]
    random = np.random.default_rng(0)
    sex = pd.DataFrame({"sex": random.choice(["f", "m"], 1500)})
    X = pd.DataFrame(random.normal(size=(1500, 4)), columns=list("abcd"))
    along = np.where(sex["sex"] == "f", 0.2, 2.5) * X["a"] + X["b"]
    y = np.where(along + random.logistic(size=1500) > 0.0, "yes", "no")
    given: dict[str, Any] = {"constraint": ODDS, "threshold": "accuracy", "threshold_by": "sex"}
    model, data, more = VerticalClassifier(**given), [X[["a", "c"]], X[["b", "d"]]], {}
    if split == "horizontal":
        model, data, more = HorizontalClassifier(**given), X, {"clients": np.arange(1500) % 3}
    with pytest.warns(ShortfallWarning, match=r"and 0\.02 was asked: a cut for each"):
        model.fit(data, y, sensitive_features=sex, **more)


def test_rows_without_a_known_group_get_the_general_cut() -> None:
    model, of = fitted("vertical", OPPORTUNITY, Threshold("recall", target=0.6))
    X, _, sex = tables(2, 40)
    with pytest.raises(InputError, match="give sensitive_features, the group of each row"):
        model.predict(of(X))
    with pytest.raises(DataError, match="must have the column 'sex'"):
        model.predict(of(X), sensitive_features=sex.rename(columns={"sex": "gender"}))
    with pytest.raises(DataError, match="for each of the 40 rows"):
        model.predict(of(X), sensitive_features=sex["sex"].to_numpy()[:30])
    unknown = sex["sex"].to_numpy().copy()
    unknown[:3] = ["x", None, np.nan]
    with pytest.warns(GroupDecisionsWarning, match="3 of 40 rows have no group of 'sex'"):
        found = model.predict(of(X), sensitive_features=unknown)
    general = model.decision_function(of(X)) > model.cut_.score
    assert ((found == "yes")[:3] == general[:3]).all()
    one = VerticalClassifier().fit(of(X), tables(2, 40)[1])
    with pytest.raises(InputError, match="one cut for all rows; leave it out"):
        one.predict(of(X), sensitive_features=sex)


def test_groups_that_are_numbers_are_found_by_their_value() -> None:
    cut = Cut(0.5, by="ward", groups={"1": 0.1, "2": 0.9})
    frame = pd.DataFrame({"ward": np.array([1, 2, 3])})
    np.testing.assert_array_equal(cut.of_rows(frame), [0.1, 0.9, 0.5])
    assert cut.unknown(frame) == 1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"constraint": PARITY}, InputError, "threshold_by needs a rule"),
        ({"constraint": PARITY, "threshold": 0.3}, InputError, "threshold_by needs a rule"),
        ({"threshold": Threshold("accuracy")}, ConstraintError, "exactly one constraint on rates.*are: none"),
        (
            {"constraint": EqualOpportunity(0.1), "threshold": Threshold("accuracy")},
            ConstraintError,
            "with measure 'error'.*are: equal-opportunity",
        ),
        (
            {"constraint": [PARITY, OPPORTUNITY], "threshold": Threshold("accuracy")},
            ConstraintError,
            "are: demographic-parity, equal-opportunity",
        ),
        (
            {"constraint": DemographicParity(0.1, confidence=0.9), "threshold": Threshold("accuracy")},
            ConstraintError,
            "without confidence and crossings",
        ),
        (
            {"constraint": PARITY, "threshold": Threshold("accuracy"), "threshold_by": "race"},
            InputError,
            "no sensitive",
        ),
        ({"constraint": PARITY, "threshold": Threshold("accuracy"), "threshold_by": 3}, InputError, "give the name of"),
    ],
)
@pytest.mark.parametrize("split", ["vertical", "horizontal"])
def test_what_cuts_by_group_cannot_do_is_refused(
    split: str, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    X, y, sex = tables(0, 100)
    settings = {"threshold_by": "sex"} | given
    if split == "vertical":
        fit = partial(VerticalClassifier(**settings).fit, [X[["a"]], X[["b"]]], y)
    else:
        fit = partial(HorizontalClassifier(**settings).fit, X, y, clients=np.arange(100) % 2)
    with pytest.raises(error, match=words):
        fit(sensitive_features=sex)


def test_further_attributes_are_refused_and_constraints_on_losses_are_trained() -> None:
    X, y, sex = tables(0, 400)
    rule = Threshold("rate", capacity=0.3)
    model = VerticalClassifier(constraint=[PARITY, LossParity(0.5)], threshold=rule, threshold_by="sex")
    two = sex.assign(ward=np.resize(["n", "s"], 400))
    with pytest.raises(InputError, match="groups of 'ward' too"):
        model.fit([X[["a"]], X[["b"]]], y, sensitive_features=two)
    with pytest.warns(GroupDecisionsWarning):
        model.fit([X[["a"]], X[["b"]]], y, sensitive_features=sex)
    assert len(model.run_.row_names) == 1
    assert "loss" in model.run_.row_names[0]
