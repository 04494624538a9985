"""The scikit-learn front: labels, ids, tables of every kind, every refusal, and scikit-learn's own checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.problems import small

from evenhand import (
    EqualizedOdds,
    EqualOpportunity,
    NeymanPearson,
    OneVsRestClassifier,
    SplitTableClassifier,
    VerticalClassifier,
    VirtualClock,
)
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.models import MLP, Linear, ResNet18
from evenhand.solvers import FairVFL, FedBCD, Subspace

RAW = PartyEncoder(scale=False)
PROBLEM = small(seed=1, rows=80)
LABELS, GROUPS = PROBLEM.labels, PROBLEM.groups
NAMES = ["age", "income", "visits", "friends"]
IDS = [f"id{place:03d}" for place in range(80)]


def _tables() -> list[np.ndarray]:
    return [PROBLEM.matrix[:, :2], PROBLEM.matrix[:, 2:]]


def _frames() -> list[pd.DataFrame]:
    whole = pd.DataFrame(PROBLEM.matrix, columns=NAMES, index=IDS)
    return [whole[NAMES[:2]], whole[NAMES[2:]]]


def _classifier(**changes: Any) -> VerticalClassifier:
    settings: dict[str, Any] = {"solver": FairVFL(step="auto"), "max_rounds": 60, "tol": 1e-6}
    return VerticalClassifier(**{**settings, "random_state": 0, **changes})


def _fair(**changes: Any) -> VerticalClassifier:
    return _classifier(constraint=EqualOpportunity(0.05), **changes)


# -- what is there after fitting


def test_a_fitted_model_has_all_it_promises() -> None:
    model = _fair().fit(_tables(), LABELS, sensitive_features=GROUPS)
    assert model.coef_.shape == (1, 4)
    assert model.intercept_.shape == (1,)
    assert list(model.classes_) == [-1.0, 1.0]
    assert model.n_iter_ == model.certificate_.rounds
    assert model.bytes_sent_ == model.run_.transcript.total_bytes > 0
    row = "mean loss among positives, a vs. b (group)"
    assert list(model.history_.columns) == [
        "round",
        "objective",
        "violation",
        f"value[{row}]",
        f"exact[{row}]",
        f"upper multiplier[{row}]",
        f"lower multiplier[{row}]",
        "gap",
        "bytes",
        "time",
    ]
    assert len(model.history_) == model.n_iter_ + 1
    for name in ("stationarity", "violation", "complementarity"):
        assert getattr(model.certificate_, name) >= 0


def test_scores_probabilities_and_labels_agree_with_the_weights() -> None:
    model = _fair(encoder=RAW).fit(_tables(), LABELS, sensitive_features=GROUPS)
    expected = np.hstack(_tables()) @ model.coef_[0] + model.intercept_
    scores = model.decision_function(_tables())
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(_tables())[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(_tables()).sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(_tables()), np.where(scores > 0, 1.0, -1.0))


def test_without_a_constraint_it_is_logistic_regression() -> None:
    settings = {"alpha": 0.05, "encoder": RAW, "max_rounds": 2000, "tol": 1e-9}
    model = VerticalClassifier(solver=FedBCD(step=1.0), **settings).fit(_tables(), LABELS)
    pooled = LogisticRegression(C=1 / (80 * 0.05), tol=1e-12, solver="newton-cholesky").fit(PROBLEM.matrix, LABELS)
    np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, atol=1e-6)


def test_a_constraint_is_met_and_costs_accuracy_of_the_loss() -> None:
    settings = {
        "max_rounds": 3000,
        "tol": 1e-7,
        "alpha": 0.05,
        "solver": FairVFL(step=0.3, dual_step=0.5, damping=0.0),
    }
    free = VerticalClassifier(**settings).fit(_tables(), LABELS)
    fair = VerticalClassifier(constraint=EqualOpportunity(0.01), **settings).fit(
        _tables(), LABELS, sensitive_features=GROUPS
    )
    assert fair.certificate_.violation < 1e-6
    assert fair.certificate_.objective > free.certificate_.objective + 1e-4


def test_the_defaults_meet_a_constraint() -> None:
    model = VerticalClassifier(constraint=EqualOpportunity(0.01)).fit(_tables(), LABELS, sensitive_features=GROUPS)
    assert model.certificate_.converged
    assert model.certificate_.violation < 1e-4
    assert abs(model.history_["value[mean loss among positives, a vs. b (group)]"].iloc[-1]) < 0.01 + 1e-4


def test_several_constraints_can_be_given() -> None:
    model = _classifier(constraint=[EqualizedOdds(0.1), NeymanPearson(0.5)]).fit(
        _tables(), LABELS, sensitive_features=GROUPS
    )
    assert len(model.run_.row_names) == 3


def test_every_party_active_is_the_first_version() -> None:
    model = _fair(roles="all-active", solver=FairVFL(step=0.3, local_steps=4)).fit(
        _tables(), LABELS, sensitive_features=GROUPS
    )
    kinds = {entry.kind for entry in model.run_.transcript}
    assert "weighted-derivative" not in kinds
    assert "combined-scores" in kinds


def test_roles_say_who_is_active() -> None:
    model = _fair(roles=["passive", "active"]).fit(_tables(), LABELS, sensitive_features=GROUPS)
    frame = model.run_.transcript.frame()
    told = frame[frame.sender == "server"].groupby("receiver").kind.unique()
    assert {name: list(kinds) for name, kinds in told.items()} == {
        "party0": ["offer", "outcome", "common-rows", "weighted-derivative"],
        "party1": ["offer", "outcome", "common-rows", "combined-scores"],
    }


def test_a_mapping_names_the_parties() -> None:
    tables = dict(zip(["bank", "shop"], _tables(), strict=True))
    model = _fair().fit(tables, LABELS, sensitive_features=GROUPS)
    assert set(model.run_.transcript.frame().sender) == {"server", "bank", "shop"}
    unnamed = _fair().fit(_tables(), LABELS, sensitive_features=GROUPS)
    np.testing.assert_array_equal(model.decision_function(tables), unnamed.decision_function(_tables()))
    swapped = dict(reversed(list(tables.items())))
    np.testing.assert_array_equal(model.decision_function(swapped), model.decision_function(tables))


def test_a_virtual_clock_changes_the_time_and_not_the_model() -> None:
    fast, slow = (
        _fair(runtime=clock).fit(_tables(), LABELS, sensitive_features=GROUPS)
        for clock in ("messages", VirtualClock(latency=1.0))
    )
    np.testing.assert_array_equal(fast.coef_[0], slow.coef_[0])
    assert slow.history_["time"].iloc[-1] > 2 * slow.n_iter_ > fast.history_["time"].iloc[-1]


# -- labels


@pytest.mark.parametrize(
    ("negative", "positive"),
    [(-1, 1), (0, 1), (False, True), ("no", "yes"), (1.0, 2.0), (7, 3)],
)
def test_labels_may_be_any_two_values(negative: Any, positive: Any) -> None:
    reference = _fair().fit(_tables(), LABELS, sensitive_features=GROUPS)
    labels = np.where(LABELS > 0, positive, negative)
    model = _fair(pos_label=positive).fit(_tables(), labels, sensitive_features=GROUPS)
    assert list(model.classes_) == sorted([negative, positive])
    sign = 1 if positive > negative else -1
    np.testing.assert_array_equal(model.coef_, sign * reference.coef_)
    np.testing.assert_array_equal(model.intercept_, sign * reference.intercept_)
    expected = np.where(reference.predict(_tables()) > 0, positive, negative)
    np.testing.assert_array_equal(model.predict(_tables()), expected)
    column = list(model.classes_).index(positive)
    np.testing.assert_array_equal(model.predict_proba(_tables())[:, column], reference.predict_proba(_tables())[:, 1])


def test_the_larger_label_is_positive_unless_told_otherwise() -> None:
    labels = np.where(LABELS > 0, "yes", "no")
    plain, told = (
        _fair().fit(_tables(), labels, sensitive_features=GROUPS),
        _fair(pos_label="yes").fit(_tables(), labels, sensitive_features=GROUPS),
    )
    np.testing.assert_array_equal(plain.coef_[0], told.coef_[0])
    flipped = _fair(pos_label="no").fit(_tables(), labels, sensitive_features=GROUPS)
    assert "among positives" in flipped.run_.row_names[0]
    assert not np.allclose(flipped.certificate_.objective, plain.certificate_.objective, atol=1e-9)
    free, free_flipped = (_classifier(pos_label=positive).fit(_tables(), labels) for positive in ("yes", "no"))
    np.testing.assert_allclose(free.coef_, free_flipped.coef_, atol=1e-12)
    np.testing.assert_array_equal(free.predict(_tables()), free_flipped.predict(_tables()))
    np.testing.assert_allclose(free.predict_proba(_tables()), free_flipped.predict_proba(_tables()), atol=1e-12)


@pytest.mark.parametrize("kind", ["list", "series", "category", "column"])
def test_labels_come_in_any_container(kind: str) -> None:
    values = np.where(LABELS > 0, "yes", "no")
    labels = {
        "list": list(values),
        "series": pd.Series(values),
        "category": pd.Series(values, dtype="category"),
        "column": pd.DataFrame({"label": values})["label"],
    }[kind]
    model = _fair().fit(_tables(), labels, sensitive_features=GROUPS)
    np.testing.assert_array_equal(model.coef_[0], _fair().fit(_tables(), values, sensitive_features=GROUPS).coef_[0])


# -- ids


def test_shuffled_rows_are_aligned_by_their_ids() -> None:
    frames, order = _frames(), np.random.default_rng(0).permutation(80)
    labels, groups = pd.Series(LABELS, index=IDS), pd.Series(GROUPS, index=IDS, name="group")
    plain = _fair().fit(frames, labels, sensitive_features=groups)
    shuffled = _fair().fit(
        [frames[0], frames[1].iloc[order]], labels.iloc[order[::-1]], sensitive_features=groups.iloc[order]
    )
    np.testing.assert_array_equal(plain.coef_, shuffled.coef_)
    scores = shuffled.decision_function([frames[0], frames[1].iloc[order]])
    np.testing.assert_array_equal(scores, plain.decision_function(frames))


def test_shuffling_everything_gives_the_same_model() -> None:
    frames, order = _frames(), np.random.default_rng(1).permutation(80)
    labels = pd.Series(LABELS, index=IDS)
    plain = _fair().fit(frames, labels, sensitive_features=pd.Series(GROUPS, index=IDS))
    mixed = _fair().fit(
        [frame.iloc[order] for frame in frames], labels, sensitive_features=pd.Series(GROUPS, index=IDS)
    )
    np.testing.assert_allclose(plain.coef_[0], mixed.coef_[0], atol=1e-10)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda a, b, y, s: ([a, b.rename(index={"id003": "id999"})], y, s), r"party1 lacks.*id003"),
        (lambda a, b, y, s: ([a, b.iloc[1:]], y, s), r"party1 lacks.*id000"),
        (lambda a, b, y, s: ([a, b], y.iloc[2:], s), r"y lacks.*id000"),
        (lambda a, b, y, s: ([a, b], y, s.iloc[:-1]), r"sensitive_features lacks.*id079"),
        (lambda a, b, y, s: ([a, pd.concat([b, b.iloc[:1]])], y, s), r"party1.*more than once.*id000"),
        (lambda a, b, y, s: ([a, b.reset_index(drop=True)], y, s), r"different kinds"),
    ],
    ids=["other id", "missing row", "missing label", "missing group", "duplicate", "other kind"],
)
def test_ids_that_do_not_match_are_refused_by_name(spoil: Any, told: str) -> None:
    tables, labels, groups = spoil(*_frames(), pd.Series(LABELS, index=IDS), pd.Series(GROUPS, index=IDS))
    with pytest.raises(DataError, match=told):
        _fair().fit(tables, labels, sensitive_features=groups)


# -- tables of every kind


def _mixed() -> list[pd.DataFrame]:
    rng = np.random.default_rng(5)
    first, second = _frames()
    jobs = rng.choice(["clerk", "farmer", "nurse"], size=80)
    first = first.assign(job=pd.Series(jobs, index=IDS, dtype="category"))
    return [first, second.assign(owner=rng.random(80) < 0.5, town=rng.choice(["x", "y"], size=80))]


def test_categories_text_and_booleans_are_encoded_by_each_party() -> None:
    frames = _mixed()
    model = _fair().fit(frames, LABELS, sensitive_features=GROUPS)
    assert model.encoders_["party0"].feature_names_out == ["age", "income", "job=clerk", "job=farmer", "job=nurse"]
    assert model.coefficients().groupby("party").size().tolist() == [5, 2 + 2 + 2]
    assert model.predict(frames).shape == (80,)


def test_columns_are_found_by_name_and_others_ignored() -> None:
    frames = _mixed()
    model = _fair().fit(frames, LABELS, sensitive_features=GROUPS)
    scores = model.decision_function(frames)
    changed = [frames[0][["job", "income", "age"]], frames[1].assign(extra=1.0)]
    np.testing.assert_array_equal(model.decision_function(changed), scores)
    with pytest.raises(DataError, match=r"party0.*income.*missing"):
        model.decision_function([frames[0].drop(columns="income"), frames[1]])


def test_a_category_not_seen_before_counts_as_none() -> None:
    frames = _mixed()
    model = _fair().fit(frames, LABELS, sensitive_features=GROUPS)
    job = frames[0].assign(job="astronaut")
    weights = model.coefficients().loc["party0", "weight"]
    seen = np.array([weights[f"job={value}"] for value in frames[0]["job"]])
    difference = model.decision_function(frames) - model.decision_function([job, frames[1]])
    np.testing.assert_allclose(difference, seen, atol=1e-12)


def test_sparse_tables_train_the_same_model_as_dense_ones() -> None:
    dense = _fair(encoder=RAW).fit(_tables(), LABELS, sensitive_features=GROUPS)
    blocks = [sp.csr_array(table) for table in _tables()]
    sparse = _fair(encoder=RAW).fit(blocks, LABELS, sensitive_features=GROUPS)
    np.testing.assert_allclose(sparse.coef_[0], dense.coef_[0], atol=1e-10)
    np.testing.assert_allclose(sparse.decision_function(blocks), dense.decision_function(_tables()), atol=1e-10)
    matrix = _fair().fit([sp.csr_matrix(table) for table in _tables()], LABELS, sensitive_features=GROUPS)
    assert matrix.predict(blocks).shape == (80,)


def test_scaling_is_learned_from_the_training_rows_alone() -> None:
    model = _fair().fit([table[:60] for table in _tables()], LABELS[:60], sensitive_features=GROUPS[:60])
    whole = model.decision_function(_tables())
    np.testing.assert_allclose(model.decision_function([table[:3] for table in _tables()]), whole[:3], atol=1e-12)
    np.testing.assert_allclose(model.decision_function([table[60:] for table in _tables()]), whole[60:], atol=1e-12)


def test_one_party_is_enough_and_a_party_may_hold_nothing_useful() -> None:
    alone = _fair(encoder=RAW).fit([PROBLEM.matrix], LABELS, sensitive_features=GROUPS)
    with_nothing = _fair(encoder=RAW).fit([PROBLEM.matrix, np.zeros((80, 2))], LABELS, sensitive_features=GROUPS)
    np.testing.assert_allclose(with_nothing.coef_[0, :4], alone.coef_[0], atol=1e-12)
    np.testing.assert_array_equal(with_nothing.coef_[0, 4:], [0.0, 0.0])


# -- neural parties


def test_neural_parties_train_and_the_seed_decides() -> None:
    settings = {"model": MLP(hidden=(6, 4)), "max_rounds": 40, "solver": FairVFL(step=0.1)}
    first, again, other = (
        _fair(**{**settings, "random_state": seed}).fit(_tables(), LABELS, sensitive_features=GROUPS)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.decision_function(_tables()), again.decision_function(_tables()))
    assert not np.allclose(first.decision_function(_tables()), other.decision_function(_tables()))
    assert first.history_["objective"].iloc[-1] < first.history_["objective"].iloc[0]
    assert not hasattr(first, "coef_")
    assert not hasattr(first, "intercept_")


@pytest.mark.parametrize("seed", [np.int64(3), np.int32(3)])
def test_a_seed_is_the_same_seed_as_a_numpy_integer(seed: Any) -> None:
    settings = {"model": MLP(hidden=(3,)), "max_rounds": 1, "solver": FairVFL(step=0.1)}
    plain = _classifier(**{**settings, "random_state": 3}).fit(_tables(), LABELS)
    other = _classifier(**{**settings, "random_state": seed}).fit(_tables(), LABELS)
    np.testing.assert_array_equal(plain.models_["party0"].weights, other.models_["party0"].weights)


# -- refusals


def _with(value: float) -> list[np.ndarray]:
    first, second = _tables()
    second = second.copy()
    second[3, 1] = value
    return [first, second]


@pytest.mark.parametrize(
    ("tables", "labels", "groups", "told"),
    [
        (_with(1e308), LABELS, GROUPS, r"party1.*x1"),
        ([_tables()[0], sp.csr_array(_with(np.nan)[1])], LABELS, GROUPS, r"party1.*missing or infinite"),
        (_tables(), np.ones(80), GROUPS, r"y has 1 class"),
        (_tables(), np.arange(80) % 3, GROUPS, r"there are 3 classes, and solver 'fairvfl' trains two"),
        (_tables(), LABELS[:-1], GROUPS, r"y has 79 rows, party0 has 80"),
        (_tables(), LABELS, GROUPS[:-1], r"sensitive_features has 79 rows, party0 has 80"),
        ([_tables()[0], _tables()[1][:-1]], LABELS, GROUPS, r"party1 has 79 rows, party0 has 80"),
        ([_tables()[0][:, 0], _tables()[1]], LABELS, GROUPS, r"party0: expected a table of two dimensions"),
        ([_tables()[0], "shop.csv"], LABELS, GROUPS, r"party1: expected a table"),
        ([], LABELS, GROUPS, r"there is no table"),
        ([table[:0] for table in _tables()], LABELS[:0], GROUPS[:0], r"party0 has no rows"),
        (_tables(), LABELS, np.full(80, "a"), r"'group' has one group only"),
        (_tables(), LABELS, None, r"equal-opportunity compares groups: give sensitive_features"),
        (_tables(), LABELS, np.where(LABELS > 0, GROUPS, "c"), r"\[positives with group = c\] is empty"),
        (_tables(), LABELS, pd.Series([None, *GROUPS[1:]], name="sex"), r"'sex' has 1 missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_cannot_be_used_are_refused_with_what_and_where(
    tables: Any, labels: Any, groups: Any, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        _fair().fit(tables, labels, sensitive_features=groups)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_label_is_refused(missing: Any) -> None:
    labels = pd.Series(np.where(LABELS > 0, "yes", "no"), dtype=object)
    labels.iloc[4] = missing
    with pytest.raises(ValueError, match=r"(?i)y .*missing|nan|none"):
        _fair().fit(_tables(), labels, sensitive_features=GROUPS)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"solver": "magic"}, "solver is 'magic'.*'fairvfl'"),
        ({"solver": "fedbcd"}, "'fedbcd' does not support constraints"),
        ({"solver": 3}, "solver is 3; give a name such as 'subspace', or an object of .*Subspace"),
        ({"solver__speed": 3}, "FairVFL has no parameter 'speed'"),
        ({"solver__pace": "slow"}, "pace is 'slow'"),
        ({"solver__step": -1.0}, "step is -1.0"),
        ({"runtime": "cloud"}, "runtime is 'cloud'"),
        ({"roles": "all-passive"}, "roles is 'all-passive'"),
        ({"roles": ["active"]}, "roles has 1 entries for 2 parties"),
        ({"roles": ["active", "lazy"]}, "a role is 'lazy'"),
        ({"roles": ["passive", "passive"]}, "no party is active"),
        ({"model": "forest"}, "model is 'forest'"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": "large"}, "alpha is 'large'"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"max_rounds": "ten"}, "max_rounds is 'ten'"),
        ({"tol": -1e-3}, "tol is -0.001"),
        ({"model": MLP(), "model__hidden": (0,)}, "hidden is"),
        ({"model": MLP(), "model__hidden": 32}, "hidden is 32"),
        ({"model": ResNet18()}, "no model of vertical training; choose 'linear', 'mlp', 'trees'"),
        ({"encoder": "ours"}, "encoder is 'ours'; give an evenhand.data.PartyEncoder"),
        ({"encoder": {"paris": PartyEncoder()}}, "encoder names 'paris', which is not a party"),
        ({"pos_label": "maybe"}, "pos_label is 'maybe'"),
        ({"constraint": "equal-opportunity"}, "is not a constraint"),
        ({"constraint": 0.01}, "is not a constraint"),
        ({"constraint": EqualOpportunity}, "is not a constraint"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        _fair().set_params(**changes).fit(_tables(), LABELS, sensitive_features=GROUPS)


def test_models_and_encoders_are_objects_that_a_grid_can_tune() -> None:
    model = VerticalClassifier(model=Linear(), encoder={"party0": PartyEncoder(scale=False)})
    assert model.get_params()["model__fit_intercept"] is True
    plain = clone(model).fit(_tables(), LABELS)
    through_zero = clone(model).set_params(model__fit_intercept=False).fit(_tables(), LABELS)
    assert plain.intercept_[0] != 0.0
    assert through_zero.intercept_[0] == 0.0
    assert [plain.encoders_[name].scale for name in ("party0", "party1")] == [False, True]
    by_name = VerticalClassifier(model="linear").fit(_tables(), LABELS)
    fitted = VerticalClassifier(encoder=by_name.encoders_).fit(_tables(), LABELS)
    np.testing.assert_array_equal(fitted.coef_, by_name.coef_)
    assert fitted.encoders_["party0"] is by_name.encoders_["party0"]


def test_a_negative_epsilon_is_refused_where_it_is_written() -> None:
    with pytest.raises(InputError, match=r"epsilon is -0.01"):
        EqualOpportunity(-0.01)


@pytest.mark.parametrize("name", ["server", ""])
def test_a_party_cannot_take_the_servers_name_or_none(name: str) -> None:
    with pytest.raises(InputError, match="name"):
        _fair().fit({"bank": _tables()[0], name: _tables()[1]}, LABELS, sensitive_features=GROUPS)


def test_predicting_with_other_tables_is_refused() -> None:
    model = _fair().fit(_tables(), LABELS, sensitive_features=GROUPS)
    with pytest.raises(DataError, match="party0, party1"):
        model.predict(_tables()[:1])
    with pytest.raises(DataError, match="party1"):
        model.predict([_tables()[0], _tables()[1][:, :1]])
    with pytest.raises(DataError, match="party1 has 79 rows"):
        model.predict([_tables()[0], _tables()[1][:-1]])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize("model", [VerticalClassifier(), SplitTableClassifier()], ids=["vertical", "split"])
def test_an_unfitted_model_says_so(model: Any, method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(model, method)(_tables() if isinstance(model, VerticalClassifier) else PROBLEM.matrix)


def test_a_refused_fit_leaves_the_fitted_model_usable() -> None:
    model = _fair().fit(_tables(), np.where(LABELS > 0, "yes", "no"), sensitive_features=GROUPS)
    before = model.predict(_tables())
    with pytest.raises(DataError):
        model.fit(_tables(), np.ones(80), sensitive_features=GROUPS)
    with pytest.raises(DataError):
        model.fit(_with(1e308), LABELS, sensitive_features=GROUPS)
    np.testing.assert_array_equal(model.predict(_tables()), before)


# -- scikit-learn


def test_clone_and_params_go_both_ways() -> None:
    model = _fair(alpha=0.3, roles="all-active")
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy is not model
    assert model.set_params(alpha=0.5).get_params()["alpha"] == 0.5
    split = SplitTableClassifier(model, parties=3)
    assert split.get_params()["classifier__alpha"] == 0.5
    assert clone(split).set_params(classifier__tol=0.1).classifier.tol == 0.1
    assert model.tol == 1e-6


@parametrize_with_checks(
    [SplitTableClassifier(), SplitTableClassifier(_classifier(max_rounds=200, tol=1e-4))],
    # The next test has it with both given.
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": "parties scale columns, and alpha is chosen, by rows alone"
        for kind in ("dense", "sparse")
    },
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("settings", "several"),
    [
        ({}, True),
        ({"model": Linear()}, True),
        ({"solver": Subspace(history=4)}, True),
        ({"solver": "fairvfl"}, False),
        ({"model": "mlp"}, False),
        ({"model": "trees"}, False),
        ({"solver": "magic"}, False),
    ],
)
def test_the_tag_of_several_classes_is_that_of_the_solver(settings: dict[str, Any], several: bool) -> None:
    for one in (VerticalClassifier(**settings), SplitTableClassifier(VerticalClassifier(**settings))):
        assert get_tags(one).classifier_tags.multi_class is several
    assert get_tags(OneVsRestClassifier(VerticalClassifier(**settings))).classifier_tags.multi_class


def test_a_row_of_weight_two_is_the_row_twice_where_nothing_else_counts_rows() -> None:
    times = np.random.default_rng(0).integers(0, 4, 80)
    settings: dict[str, Any] = {"solver": "subspace", "tol": 1e-8, "alpha": 0.05, "encoder": RAW}
    split = SplitTableClassifier(_fair(**settings))
    labels, groups = np.asarray(LABELS), np.asarray(GROUPS)
    weighted = split.fit(PROBLEM.matrix, labels, sensitive_features=groups, sample_weight=times).decision_function(
        PROBLEM.matrix
    )
    many = [one.repeat(times, axis=0) for one in (PROBLEM.matrix, labels, groups)]
    np.testing.assert_allclose(
        clone(split).fit(*many[:2], sensitive_features=many[2]).decision_function(PROBLEM.matrix), weighted, atol=1e-4
    )
    plain = clone(split).fit(PROBLEM.matrix, labels, sensitive_features=groups).decision_function(PROBLEM.matrix)
    assert np.abs(plain - weighted).max() > 0.05


def test_a_split_table_is_the_vertical_classifier_over_its_parts() -> None:
    vertical = _fair().fit(_tables(), LABELS, sensitive_features=GROUPS)
    for parties in (2, [[0, 1], [2, 3]]):
        split = SplitTableClassifier(_fair(), parties=parties).fit(PROBLEM.matrix, LABELS, sensitive_features=GROUPS)
        np.testing.assert_array_equal(split.decision_function(PROBLEM.matrix), vertical.decision_function(_tables()))
        assert split.columns_ == [[0, 1], [2, 3]]
    named = SplitTableClassifier(_fair(), parties=[NAMES[:2], NAMES[2:]])
    frame = pd.DataFrame(PROBLEM.matrix, columns=NAMES)
    named.fit(frame, LABELS, sensitive_features=GROUPS)
    np.testing.assert_array_equal(named.decision_function(frame), vertical.decision_function(_tables()))


@pytest.mark.parametrize("positive", [1.0, -1.0])
def test_a_split_table_has_weights_in_scikit_learns_shapes(positive: float) -> None:
    model = SplitTableClassifier(_fair(pos_label=positive, encoder=RAW), parties=2)
    assert not hasattr(model, "coef_")
    model.fit(PROBLEM.matrix, LABELS, sensitive_features=GROUPS)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 4), (1,))
    assert str(model.get_feature_names_out()[0]).startswith("party0__")
    scores = PROBLEM.matrix @ model.coef_[0] + model.intercept_
    np.testing.assert_allclose(scores, model.decision_function(PROBLEM.matrix))


def test_a_split_table_takes_categories() -> None:
    frame = pd.concat(_mixed(), axis=1)
    model = SplitTableClassifier(_fair(), parties=3).fit(frame, LABELS, sensitive_features=GROUPS)
    assert (model.predict(frame) == LABELS).mean() > 0.6
    np.testing.assert_allclose(model.predict_proba(frame).sum(axis=1), 1.0)


def test_a_split_table_does_not_mind_repeated_row_labels() -> None:
    """One table: its rows belong together whatever its index says, as after `concat` or a bootstrap."""
    frame = pd.DataFrame(PROBLEM.matrix, columns=NAMES, index=np.arange(80) % 40)
    plain = SplitTableClassifier(_fair()).fit(frame.reset_index(drop=True), LABELS, sensitive_features=GROUPS)
    repeated = SplitTableClassifier(_fair()).fit(frame, LABELS, sensitive_features=GROUPS)
    np.testing.assert_array_equal(repeated.decision_function(frame), plain.decision_function(frame))


@pytest.mark.parametrize(
    ("parties", "told"),
    [([[0], [9]], "no column 9"), ([["age"], ["height"]], "no column 'age'"), (0, "parties is 0"), ([], "no table")],
)
def test_parties_of_a_split_table_that_make_no_sense_are_refused(parties: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        SplitTableClassifier(_fair(), parties=parties).fit(PROBLEM.matrix, LABELS, sensitive_features=GROUPS)


def test_it_works_in_pipelines_cross_validation_and_searches() -> None:
    model = SplitTableClassifier(_classifier(), parties=2)
    pipeline = make_pipeline(StandardScaler(), model)
    scores = cross_val_score(pipeline, PROBLEM.matrix, LABELS, cv=3)
    pooled = cross_val_score(make_pipeline(StandardScaler(), LogisticRegression()), PROBLEM.matrix, LABELS, cv=3)
    assert scores.mean() > pooled.mean() - 0.05
    search = GridSearchCV(model, {"classifier__alpha": [1e-3, 10.0], "parties": [1, 3]}, cv=2)
    search.fit(PROBLEM.matrix, LABELS)
    assert search.best_params_["classifier__alpha"] == 1e-3
