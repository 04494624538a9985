"""The front of horizontal training: labels, clients, tables, images, every refusal, and scikit-learn's own checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_classifier_not_supporting_multiclass, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data
from support.problems import small

from evenhand import (
    EqualizedOdds,
    EqualOpportunity,
    HorizontalClassifier,
    LossParity,
    NeymanPearson,
    VirtualClock,
)
from evenhand.constraints.scope import ConstraintScope
from evenhand.data import PartyEncoder
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.models import MLP, Linear
from evenhand.privacy.accounting import PrivacyStatement, privacy_statement
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise
from evenhand.solvers import HORIZONTAL, SQP, FairFedAvgALM, FedAvg, ProxAL, Subspace
from evenhand.training.protection import NoStatement

torch = pytest.importorskip("torch")

RAW = PartyEncoder(scale=False)
PROBLEM = small(seed=1, rows=120)
X, LABELS, GROUPS = PROBLEM.matrix, PROBLEM.labels, PROBLEM.groups
CLIENTS = np.array(["ghent", "lyon", "turin"])[np.arange(120) % 3]
NAMES = ["age", "income", "visits", "friends"]
FRAME = pd.DataFrame(X, columns=NAMES)
SGD = {"step": 1.0, "batch_size": None, "clip": None, "local_epochs": 1}
ROW = "mean loss among positives, a vs. b (group)"


def _fitted(classifier: HorizontalClassifier, **changes: Any) -> HorizontalClassifier:
    given = {"X": X, "y": LABELS, "sensitive_features": GROUPS, "clients": CLIENTS} | changes
    return classifier.fit(given.pop("X"), given.pop("y"), **given)


def _averaging(solver: str = "fedavg", options: dict[str, Any] = SGD, **changes: Any) -> HorizontalClassifier:
    settings: dict[str, Any] = {"solver": HORIZONTAL[solver].options(**options), "max_rounds": 5, "random_state": 0}
    return HorizontalClassifier(**{**settings, **changes})


def _mean_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.logaddexp(0.0, -labels * scores).mean())


def _gap(model: HorizontalClassifier, rows: np.ndarray | None = None) -> float:
    """DEO from the definition: difference of the groups' mean losses over positives."""
    inside = np.ones(120, dtype=bool) if rows is None else rows
    scores = model.decision_function(X)
    means = [
        _mean_loss(scores[chosen], LABELS[chosen])
        for group in ("a", "b")
        for chosen in [inside & (LABELS > 0) & (group == GROUPS)]
    ]
    return abs(means[0] - means[1])


# -- what is there after fitting


@pytest.mark.parametrize("solver", ["sqp", "prox-al", "fairfedavgalm"])
def test_a_fitted_model_has_all_it_promises(solver: str) -> None:
    options = SGD if solver == "fairfedavgalm" else {}
    rounds = 5 if solver == "fairfedavgalm" else None
    model = HorizontalClassifier(
        solver=HORIZONTAL[solver].options(**options), constraint=EqualOpportunity(0.05), max_rounds=rounds
    )
    _fitted(model)
    assert model.coef_.shape == (1, 4)
    assert model.intercept_.shape == (1,)
    assert list(model.classes_) == [-1.0, 1.0]
    assert model.clients_ == ["ghent", "lyon", "turin"]
    assert model.n_iter_ == model.certificate_.rounds > 0
    assert model.bytes_sent_ == model.run_.transcript.total_bytes > 0
    assert {"round", "objective", "violation", "bytes", "time"} <= set(model.history_.columns)
    assert list(model.run_.row_names) == [ROW]
    assert model.run_.multipliers.shape == (2, 1)
    assert model.n_features_in_ == 4
    assert model.privacy_ is None
    assert {entry.sender for entry in model.run_.transcript} == {"server", "ghent", "lyon", "turin"}


def test_scores_probabilities_and_labels_agree_with_the_weights() -> None:
    model = _fitted(HorizontalClassifier(encoder=RAW))
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, X @ model.coef_[0] + model.intercept_, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, 1.0, -1.0))


@pytest.mark.parametrize("solver", ["sqp", "prox-al"])
def test_without_a_constraint_it_is_logistic_regression(solver: str) -> None:
    model = _fitted(HorizontalClassifier(solver=solver, alpha=0.05, encoder=RAW, tol=1e-6))
    pooled = LogisticRegression(C=1 / (120 * 0.05), tol=1e-12, solver="newton-cholesky").fit(X, LABELS)
    np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, atol=1e-4)
    assert model.certificate_.converged


def test_fedavg_of_full_batches_and_one_step_goes_there_as_well() -> None:
    model = _fitted(_averaging(max_rounds=400, encoder=RAW), sensitive_features=None)
    pooled = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky").fit(X, LABELS)
    np.testing.assert_allclose(model.coef_, pooled.coef_, atol=1e-3)


@pytest.mark.parametrize("solver", ["sqp", "prox-al"])
def test_a_global_constraint_holds_and_the_optimum_is_the_pooled_one(solver: str) -> None:
    given = ProxAL(rho_rule="balanced") if solver == "prox-al" else solver
    model = HorizontalClassifier(solver=given, constraint=EqualOpportunity(0.02), alpha=0.05, encoder=RAW, tol=1e-5)
    _fitted(model)
    assert _gap(model) <= 0.02 + 1e-4
    columns = np.hstack([X, np.ones((120, 1))])

    def objective(w: np.ndarray) -> float:
        return _mean_loss(columns @ w, LABELS) + 0.025 * float(w[:-1] @ w[:-1])

    def difference(w: np.ndarray) -> float:
        parts = [(LABELS > 0) & (group == GROUPS) for group in ("a", "b")]
        first, second = (_mean_loss(columns[part] @ w, LABELS[part]) for part in parts)
        return first - second

    bounds = [{"type": "ineq", "fun": lambda w, s=s: 0.02 - s * difference(w)} for s in (1.0, -1.0)]
    pooled = minimize(objective, np.zeros(5), method="SLSQP", constraints=bounds, options={"ftol": 1e-12})
    assert model.certificate_.objective == pytest.approx(pooled.fun, abs=1e-4)
    free = _fitted(HorizontalClassifier(alpha=0.05, encoder=RAW))
    assert _gap(free) > 0.02 + 1e-3


def test_local_constraints_hold_at_each_client_and_limits_are_their_own() -> None:
    inside = {name: name == CLIENTS for name in ("ghent", "lyon", "turin")}
    local = _fitted(HorizontalClassifier(constraint=EqualOpportunity(0.05), scope="local", tol=1e-5))
    for rows in inside.values():
        assert _gap(local, rows) <= 0.05 + 1e-4
    assert len(local.run_.row_names) == 3
    assert local.run_.row_names[1] == f"lyon: {ROW}"
    scope = ConstraintScope("both", {"turin": 0.25})
    own = HorizontalClassifier(constraint=EqualOpportunity(0.05), scope=scope, tol=1e-5)
    _fitted(own)
    assert len(own.run_.row_names) == 4
    assert _gap(own, inside["ghent"]) <= 0.05 + 1e-4
    assert _gap(own) <= 0.05 + 1e-4
    assert 0.05 + 1e-3 < _gap(own, inside["turin"]) <= 0.25 + 1e-4
    assert own.certificate_.objective < local.certificate_.objective


def test_the_server_may_have_rows_and_a_limit_of_its_own() -> None:
    theirs = {"X": X[40:], "y": LABELS[40:], "sensitive_features": GROUPS[40:], "clients": CLIENTS[40:]}
    rows = (X[:40], LABELS[:40], GROUPS[:40])
    model = HorizontalClassifier(
        constraint=EqualOpportunity(0.3),
        scope=ConstraintScope(limits={"server": 0.01}),
        tol=1e-5,
        solver="sqp",
        alpha=0.05,
    )
    _fitted(model, **theirs, server_rows=rows)
    inside = np.arange(120) < 40
    assert _gap(model, inside) <= 0.01 + 1e-4
    assert list(model.run_.row_names) == [f"server: {ROW}"]
    without = _fitted(HorizontalClassifier(constraint=EqualOpportunity(0.3), alpha=0.05), **theirs, server_rows=rows)
    assert _gap(without, inside) > 0.02


def test_a_client_without_a_slice_is_refused_or_left_out() -> None:
    groups = np.where(CLIENTS == "turin", "a", GROUPS)
    model = HorizontalClassifier(constraint=EqualOpportunity(0.05), scope="local")
    with pytest.raises(ConstraintError, match=r"client 'turin' has no rows in the slice \[positives with group = b\]"):
        _fitted(model, sensitive_features=groups)
    _fitted(model.set_params(scope=ConstraintScope("local", missing_slices="leave out")), sensitive_features=groups)
    assert [name.split(":")[0] for name in model.run_.row_names] == ["ghent", "lyon"]
    assert model.run_.multipliers.shape == (2, 2)


def test_neyman_pearson_limits_one_class_at_each_client() -> None:
    model = HorizontalClassifier(constraint=NeymanPearson(0.6), scope=ConstraintScope("local", {"lyon": 0.3}), tol=1e-5)
    _fitted(model, sensitive_features=None)
    scores = model.decision_function(X)
    for name, limit in {"ghent": 0.6, "lyon": 0.3, "turin": 0.6}.items():
        inside = (name == CLIENTS) & (LABELS > 0)
        assert _mean_loss(scores[inside], LABELS[inside]) <= limit + 1e-4
    assert model.run_.multipliers[0, 1] > 1e-3


def test_several_constraints_can_be_given() -> None:
    model = _fitted(HorizontalClassifier(constraint=[EqualizedOdds(0.1), NeymanPearson(0.6)]))
    assert len(model.run_.row_names) == 3
    assert model.certificate_.violation < 1e-3


@pytest.mark.parametrize("solver", ["fedavg", "fairfedavgalm", "fairalm", "fairfed", "fpfl"])
def test_every_averaging_solver_can_be_chosen(solver: str) -> None:
    model = _fitted(_averaging(solver))
    assert model.n_iter_ == 5
    assert len(model.history_) == 6
    assert model.history_["objective"].iloc[-1] < model.history_["objective"].iloc[0]


def test_auto_chooses_what_applies() -> None:
    def chosen(**changes: Any) -> set[str]:
        model = _fitted(HorizontalClassifier(max_rounds=2, **changes))
        kinds = {entry.kind for entry in model.run_.transcript if entry.sender != "server"}
        # Before training everybody accepts the terms, and sums up its rows.
        return kinds - {"accepted", "summary"}

    assert chosen() == chosen(constraint=LossParity(0.1)) == {"sqp judged"}
    multipliers = {"model": "mlp", "constraint": LossParity(0.1)}
    assert "update" in chosen(model="mlp")
    assert len(_fitted(HorizontalClassifier(max_rounds=2, **multipliers)).run_.row_names) == 1
    assert chosen(update_noise=ClippedGaussian(1.0, None, 1.0)) == {"update"}


def test_the_order_of_rows_and_of_clients_does_not_matter() -> None:
    order = np.random.default_rng(0).permutation(120)
    plain = _fitted(HorizontalClassifier(tol=1e-6))
    mixed = _fitted(HorizontalClassifier(tol=1e-6), X=X[order], y=LABELS[order], clients=CLIENTS[order])
    np.testing.assert_allclose(plain.coef_, mixed.coef_, atol=1e-6)
    one = _fitted(HorizontalClassifier(tol=1e-6), clients=np.zeros(120, dtype=int))
    np.testing.assert_allclose(plain.coef_, one.coef_, atol=1e-6)
    assert one.clients_ == ["0"]


def test_the_seed_decides_and_a_clock_changes_the_time_only() -> None:
    settings = {"model": MLP(hidden=(6,)), "options": {"step": 0.1, "batch_size": 8}}
    first, again, other, slow = (
        _fitted(_averaging(**settings, random_state=seed, runtime=clock))
        for seed, clock in ((0, "auto"), (np.int64(0), "auto"), (1, "auto"), (0, VirtualClock(latency=1.0)))
    )
    np.testing.assert_array_equal(first.decision_function(X), again.decision_function(X))
    assert not np.allclose(first.decision_function(X), other.decision_function(X))
    np.testing.assert_array_equal(first.decision_function(X), slow.decision_function(X))
    assert slow.history_["time"].iloc[-1] > 10 > first.history_["time"].iloc[-1]
    assert not hasattr(first, "coef_")


# -- labels


@pytest.mark.parametrize(("negative", "positive"), [(0, 1), (False, True), ("no", "yes"), (7, 3)])
def test_labels_may_be_any_two_values(negative: Any, positive: Any) -> None:
    settings = {"constraint": EqualOpportunity(0.05)}
    reference = _fitted(HorizontalClassifier(**settings))
    model = HorizontalClassifier(**settings, pos_label=positive)
    _fitted(model, y=np.where(LABELS > 0, positive, negative))
    assert list(model.classes_) == sorted([negative, positive])
    sign = 1 if positive > negative else -1
    np.testing.assert_array_equal(model.coef_, sign * reference.coef_)
    np.testing.assert_array_equal(model.predict(X), np.where(reference.predict(X) > 0, positive, negative))
    column = list(model.classes_).index(positive)
    np.testing.assert_array_equal(model.predict_proba(X)[:, column], reference.predict_proba(X)[:, 1])


def _three_classes() -> np.ndarray:
    return np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])]


def test_more_than_two_classes_go_by_softmax() -> None:
    labels = _three_classes()
    model = _averaging(max_rounds=150)
    _fitted(model, y=labels)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    assert list(model.classes_) == ["high", "low", "middle"]
    assert (model.predict(X) == labels).mean() > 0.85
    assert model.decision_function(X).shape == (120, 3)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-6)
    fair = _fitted(_averaging("fairfedavgalm", constraint=LossParity(0.0)), y=labels)
    assert len(fair.run_.row_names) == 1


# -- tables and images


def _mixed() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    jobs = rng.choice(["clerk", "farmer"], size=120)
    jobs[CLIENTS == "lyon"] = "nurse"
    return FRAME.assign(job=jobs, owner=rng.random(120) < 0.5)


def test_one_encoder_serves_all_and_is_that_of_the_pooled_rows() -> None:
    frame = _mixed()
    model = _fitted(HorizontalClassifier(), X=frame)
    assert model.encoder_.feature_names_out == [
        *NAMES,
        *("job=clerk", "job=farmer", "job=nurse", "owner=False", "owner=True"),
    ]
    pooled = PartyEncoder().fit(frame)
    np.testing.assert_allclose(model.encoder_.transform(frame), pooled.transform(frame), atol=1e-12)
    assert list(model.feature_names_in_) == list(frame.columns)
    scores = model.decision_function(frame)
    shuffled = frame[[*reversed(frame.columns)]].assign(extra=1.0)
    np.testing.assert_array_equal(model.decision_function(shuffled), scores)
    with pytest.raises(DataError, match="income"):
        model.predict(frame.drop(columns="income"))


def test_an_agreed_encoder_is_used_as_it_is() -> None:
    agreed = PartyEncoder().fit(_mixed().iloc[:10])
    model = _fitted(HorizontalClassifier(encoder=agreed), X=_mixed())
    assert model.encoder_ is agreed
    other = clone(model)
    _fitted(other, X=_mixed())
    np.testing.assert_array_equal(other.coef_, model.coef_)


def test_arrays_lists_frames_and_sparse_matrices_give_the_same_model() -> None:
    plain = _fitted(HorizontalClassifier(encoder=RAW))
    for rows in (X.tolist(), FRAME, sp.csr_array(X)):
        np.testing.assert_allclose(_fitted(HorizontalClassifier(encoder=RAW), X=rows).coef_, plain.coef_, atol=1e-9)


def test_pandas_indexes_bring_rows_together_and_may_repeat_where_they_are_the_same() -> None:
    ids = [f"id{place:03d}" for place in range(120)]
    order = np.random.default_rng(2).permutation(120)
    frame = FRAME.set_axis(ids)
    labels, clients = pd.Series(LABELS, index=ids), pd.Series(CLIENTS, index=ids)
    plain = _fitted(HorizontalClassifier(), X=frame, y=labels, clients=clients)
    mixed = _fitted(HorizontalClassifier(), X=frame, y=labels.iloc[order], clients=clients.iloc[order[::-1]])
    np.testing.assert_array_equal(plain.coef_, mixed.coef_)
    twice = np.arange(120) % 40
    repeated = _fitted(
        HorizontalClassifier(), X=FRAME.set_axis(twice), y=pd.Series(LABELS, index=twice), clients=CLIENTS
    )
    np.testing.assert_array_equal(repeated.coef_, plain.coef_)
    with pytest.raises(DataError, match="y lacks"):
        _fitted(HorizontalClassifier(), X=frame, y=labels.rename({"id003": "other"}))


def _images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = rng.normal(size=(60, 1, 6, 6)).astype(np.float32)
    images[np.arange(60), 0, :, labels * 2] += 2.0
    return images, labels


def _module(outputs: int) -> Any:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, outputs))


@pytest.mark.parametrize("made", ["function", "module"])
def test_images_train_a_module_of_ones_own(made: str) -> None:
    images, labels = _images()
    torch.manual_seed(0)
    network = _module(3) if made == "module" else (lambda: _module(3))
    model = HorizontalClassifier(
        solver=FedAvg(step=0.3, step_decay_every=None), model=network, max_rounds=30, random_state=0
    )
    model.fit(images, labels, clients=np.arange(60) % 4)
    assert (model.predict(images) == labels).mean() > 0.9
    assert model.encoder_ is None
    assert model.predict_proba(images).shape == (60, 3)
    with pytest.raises(DataError, match="36 features"):
        model.predict(images[:, :, :5])


def test_resnet18_trains_on_images() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(8, 3, 16, 16)).astype(np.float32), np.arange(8) % 2
    model = HorizontalClassifier(
        model="resnet18", solver=FedAvg(optimizer="adam", local_epochs=1), max_rounds=1, random_state=0
    )
    model.fit(images, labels, clients=["p", "q"] * 4)
    assert np.isfinite(model.decision_function(images)).all()
    assert model.run_.statistics.size > 0


# -- privacy

AGREED = {"group": ["a", "b"]}


def test_a_statement_counts_the_rounds_each_client_took_part_in() -> None:
    noise = ClippedGaussian(0.5, 0.1, 4.0)
    model = _averaging(
        "fairfedavgalm",
        update_noise=noise,
        max_rounds=6,
        options={**SGD, "participation": 0.34},
        encoder=RAW,
    )
    _fitted(model, group_values=AGREED)
    frame = model.run_.transcript.frame()
    rounds = frame[frame.kind == "update"].groupby("sender").size().to_dict()
    assert sum(rounds.values()) == 6
    assert len(set(rounds.values())) > 1
    assert set(model.privacy_) == {"ghent", "lyon", "turin"}
    for name, statement in model.privacy_statements(delta=1e-6).items():
        assert isinstance(statement, PrivacyStatement)
        assert model.privacy_[name].epsilon == privacy_statement(noise, rounds.get(name, 0), 1e-5).epsilon
        assert statement.rounds == rounds.get(name, 0)
        assert statement.epsilon == privacy_statement(noise, rounds.get(name, 0), 1e-6).epsilon
        assert not statement.secret_noise


@pytest.mark.parametrize(
    ("solver", "changes", "reason"),
    [
        ("fedavg", {"encoder": None}, "means, deviations and levels of columns"),
        ("fedavg", {"group_values": None}, "which groups occur"),
        ("fedavg", {"options": {**SGD, "report_every": 1}}, "'sums'"),
        ("fairfed", {}, "'rates'"),
        ("fedavg", {"update_noise": GaussianNoise(0.01)}, "not clipped"),
        ("fedavg", {"update_noise": ClippedGaussian(1.0, None, 0.0)}, "no noise"),
    ],
    ids=["scaled", "groups", "reports", "fairfed", "unclipped", "no noise"],
)
def test_where_nothing_can_be_proved_the_reason_is_kept(solver: str, changes: dict[str, Any], reason: str) -> None:
    settings = {"encoder": RAW, "update_noise": ClippedGaussian(1.0, None, 4.0), **changes}
    values = settings.pop("group_values", AGREED)
    model = _fitted(_averaging(solver, **settings), group_values=values)
    for statement in model.privacy_.values():
        assert isinstance(statement, NoStatement)
        assert statement.epsilon is None
        assert reason in statement.words


def test_protections_by_client_are_stated_by_client() -> None:
    update_noise = {"ghent": ClippedGaussian(1.0, None, 4.0), "lyon": ClippedGaussian(1.0, None, 8.0)}
    model = _fitted(_averaging(update_noise=update_noise, encoder=RAW), group_values=AGREED)
    first, second, third = (model.privacy_[name] for name in ("ghent", "lyon", "turin"))
    assert first.epsilon > second.epsilon > 0
    assert "sent without noise" in third.words


# -- refusals


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"clients": None}, "clients is missing: give one client id for each row"),
        ({"clients": CLIENTS[:-1]}, "clients has 119 rows, X has 120"),
        ({"clients": [None, *CLIENTS[1:]]}, "clients has 1 missing"),
        ({"clients": ["server", *CLIENTS[1:]]}, "name"),
        ({"clients": [1, "1"] * 60}, "ids with the same text"),
        ({"y": LABELS[:-1]}, "y has 119 rows, X has 120"),
        ({"y": np.ones(120)}, "1 class"),
        ({"sensitive_features": GROUPS[:-1]}, "sensitive_features has 119 rows"),
        ({"sensitive_features": None}, "compares groups: give sensitive_features"),
        ({"sensitive_features": np.full(120, "a")}, "one group only"),
        ({"X": X[:, 0]}, "1 dimension"),
        ({"X": np.where(np.arange(480).reshape(120, 4) == 0, 1j, X)}, r"client 'ghent'.*x0"),
        ({"y": np.arange(120) % 3}, "there are 3 labels .0, 1, 2.; name one in of_class"),
        ({"server_rows": (X,)}, "server_rows"),
        ({"server_rows": (X, np.full(120, 5.0))}, "server_rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_cannot_be_used_are_refused_with_what_and_where(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        _fitted(HorizontalClassifier(solver="sqp", constraint=EqualOpportunity(0.05)), **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"solver": "magic"}, "solver is 'magic'.*'fedavg'.*'sqp'"),
        ({"solver": "fedavg"}, "'fedavg' does not support constraints"),
        ({"solver": "sqp", "model": "mlp"}, "'sqp' trains linear models"),
        ({"solver": "sqp", "update_noise": GaussianNoise(0.1)}, "'sqp' does not support noise on updates"),
        ({"solver": "fpfl", "scope": "local"}, "solver 'fpfl' does not support scope 'local'"),
        ({"model": "mlp", "scope": "both"}, "does not support scope 'both'"),
        ({"scope": "near"}, "scope is 'near'"),
        ({"scope": ConstraintScope(), "scope__missing_slices": "ignore"}, "missing_slices is 'ignore'"),
        ({"runtime": "cloud"}, "runtime is 'cloud'"),
        ({"scope": ConstraintScope(), "scope__limits": {"lyon": 0.1}}, "'lyon' has its own limit"),
        ({"scope": ConstraintScope("local", {"paris": 0.1})}, "'paris', which is not a client"),
        ({"scope": ConstraintScope("local"), "scope__limits": {"server": 0.1}}, "'server' has its own limit"),
        ({"scope": ConstraintScope("local"), "scope__limits": {"lyon": -0.1}}, "limit of 'lyon' is -0.1"),
        ({"solver": FedAvg(), "solver__speed": 3}, "FedAvg has no parameter 'speed'"),
        ({"solver": FairFedAvgALM(), "solver__step": -1.0}, "step is -1.0"),
        ({"solver": "fedavg", "solver__step": 1.0}, "solver__step needs one object as solver"),
        ({"solver": Subspace()}, "solver is Subspace.*give a name such as 'fedavg', or an object of .*FedAvg"),
        ({"model": "forest"}, "model is 'forest'"),
        ({"model": 3}, "model is 3.*give Linear.*or a torch.nn.Module"),
        ({"model": lambda: 3, "solver": "fairfedavgalm"}, "must make a torch.nn.Module"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"tol": -1.0}, "tol is -1.0"),
        (
            {"tol": 1e-3, "solver": SQP(stationarity=1e-5)},
            "tol is 0.001 and the solver.s stationarity is 1e-05",
        ),
        ({"max_rounds": 3, "solver": SQP(max_rounds=5)}, "max_rounds is 3 and the solver's max_rounds is 5"),
        ({"model": Linear(fit_intercept=False)}, "always has an intercept"),
        ({"model": MLP(), "model__hidden": 3}, "hidden is 3"),
        ({"model": MLP(), "model__depth": 3}, "MLP has no parameter 'depth'; it has hidden"),
        ({"model": "mlp", "model__hidden": (3,)}, "model__hidden needs one object as model"),
        ({"encoder": "ours"}, "encoder is a str"),
        ({"pos_label": "maybe"}, "pos_label is 'maybe'"),
        ({"constraint": "equal-opportunity"}, "is not a constraint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_cannot_be_used_are_refused_by_name(changes: dict[str, Any], told: str) -> None:
    model = HorizontalClassifier(constraint=EqualOpportunity(0.05), max_rounds=2)
    with pytest.raises(InputError, match=told):
        _fitted(model.set_params(**changes))


def test_an_encoder_that_is_not_fitted_gives_the_rules_of_the_one_that_is_learned() -> None:
    frame = pd.DataFrame(
        {"ward": np.random.default_rng(0).permutation(np.resize(list("aabbbc"), 120)), "age": np.arange(120.0)}
    )
    model = HorizontalClassifier(encoder=PartyEncoder(max_levels=1), max_rounds=2)
    assert {"encoder__scale", "encoder__max_levels"} <= model.get_params().keys()
    names = _fitted(model, X=frame).get_feature_names_out().tolist()
    more = _fitted(clone(model).set_params(encoder__max_levels=2), X=frame).get_feature_names_out().tolist()
    assert (len(names), len(more)) == (3, 4)
    assert not model.encoder.is_fitted


def test_groups_and_delta_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InputError, match="'b', which is not among the agreed groups"):
        _fitted(HorizontalClassifier(constraint=EqualOpportunity(0.05)), group_values={"group": ["a", "c"]})
    model = _fitted(HorizontalClassifier(max_rounds=2))
    assert model.privacy_ is None
    with pytest.raises(InputError, match=r"delta is 0\.0"):
        model.privacy_statements(delta=0.0)


def test_a_refused_fit_leaves_the_fitted_model_usable() -> None:
    model = _fitted(HorizontalClassifier())
    before = model.predict(X)
    with pytest.raises(DataError):
        _fitted(model, y=np.ones(120))
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_an_unfitted_model_says_so(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(HorizontalClassifier(), method)(X)


# -- scikit-learn


class DealtRows(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One table whose rows are dealt to clients in turn: scikit-learn's checks know no client ids."""

    def __init__(self, classifier: Any = None) -> None:
        self.classifier = classifier

    def fit(self, X: Any, y: Any) -> DealtRows:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        self.classifier_ = clone(self.classifier).fit(X, y, clients=np.arange(X.shape[0]) % 2)
        self.classes_, self.n_iter_ = self.classifier_.classes_, self.classifier_.n_iter_
        return self

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "classifier_")
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)

    def predict(self, X: Any) -> Any:
        rows = self._checked(X)
        return self.classifier_.predict(rows)

    def decision_function(self, X: Any) -> Any:
        rows = self._checked(X)
        return self.classifier_.decision_function(rows)

    def predict_proba(self, X: Any) -> Any:
        rows = self._checked(X)
        return self.classifier_.predict_proba(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = get_tags(self.classifier).classifier_tags.multi_class
        tags.input_tags.sparse = True
        return tags


@parametrize_with_checks(
    [
        DealtRows(HorizontalClassifier(solver="sqp")),
        DealtRows(_averaging(max_rounds=40)),
    ],
    expected_failed_checks=lambda _: {},
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("settings", "several"),
    [
        ({}, True),
        ({"solver": "sqp"}, True),
        ({"solver": "fpfl", "model": "mlp"}, True),
        ({"solver": "prox-al"}, False),
        ({"solver": ProxAL()}, False),
        ({"model": "trees"}, False),
        ({"solver": "magic"}, False),
    ],
)
def test_the_tag_of_several_classes_is_that_of_the_solver(settings: dict[str, Any], several: bool) -> None:
    assert get_tags(HorizontalClassifier(**settings)).classifier_tags.multi_class is several


def test_a_solver_of_two_classes_refuses_more_as_scikit_learn_asks() -> None:
    check_classifier_not_supporting_multiclass("DealtRows", DealtRows(HorizontalClassifier(solver="prox-al")))


def test_clone_and_params_go_both_ways() -> None:
    scope = ConstraintScope("local", {"lyon": 0.2})
    model = HorizontalClassifier(constraint=EqualOpportunity(0.1), scope=scope, model=MLP(hidden=(3,)))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(alpha=0.5).get_params()["alpha"] == 0.5
    assert model.alpha is None


def test_client_ids_travel_through_cross_validation_by_metadata_routing() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = HorizontalClassifier(constraint=EqualOpportunity(0.1))
        model.set_fit_request(clients=True, sensitive_features=True)
        params = {"clients": CLIENTS, "sensitive_features": GROUPS}
        found = cross_validate(model, X, LABELS, params=params, cv=3, return_estimator=True)
    assert found["test_score"].mean() > 0.6
    assert all(one.clients_ == ["ghent", "lyon", "turin"] for one in found["estimator"])
