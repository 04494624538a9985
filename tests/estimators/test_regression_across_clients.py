"""Regression across clients: against scikit-learn's GLMs on the pooled rows, masked, and under constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import GammaRegressor, PoissonRegressor, Ridge, TweedieRegressor

from evenhand import EqualOpportunity, HorizontalRegressor, LossParity, MeanPredictionParity
from evenhand.constraints.families import OF_NUMBERS, find_loss
from evenhand.data import PartyEncoder
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.horizontal.summaries import total_weights

ROWS, COLUMNS, ALPHA = 500, 6, 0.02
PLAIN = PartyEncoder(scale=False)


def draw(name: str, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return columns, targets, groups and clients; one client has no claims."""
    rng = np.random.default_rng(seed)
    group, clients = np.where(rng.random(ROWS) < 0.4, "a", "b"), rng.integers(0, 4, ROWS)
    matrix = rng.normal(size=(ROWS, COLUMNS))
    matrix[:, 0] += 0.8 * (group == "a")
    scores = matrix @ rng.normal(size=COLUMNS) * 0.3 - 0.5
    counts = np.where(clients == 3, 0, rng.poisson(np.exp(scores)))
    targets = {
        "squared": scores + rng.normal(size=ROWS),
        "poisson": counts.astype(float),
        "gamma": 5000.0 * np.exp(scores) * rng.gamma(0.7, 1.0 / 0.7, ROWS) + 1e-3,
        "tweedie": counts * rng.gamma(0.8, 100.0, ROWS),
    }
    return matrix, targets[name], group, clients


def pooled(name: str, matrix: Any, targets: Any) -> Any:
    if name == "squared":
        return Ridge(alpha=ALPHA * ROWS, tol=1e-12).fit(matrix, targets)
    made = {"poisson": PoissonRegressor, "gamma": GammaRegressor, "tweedie": TweedieRegressor}[name]
    power: dict[str, Any] = {"power": 1.5, "link": "log"} if name == "tweedie" else {}
    return made(alpha=ALPHA, solver="newton-cholesky", tol=1e-9, max_iter=500, **power).fit(matrix, targets)


def objective(name: str, weights: Any, intercept: float, matrix: Any, targets: Any) -> float:
    losses = find_loss(name).value(matrix @ weights + intercept, targets)
    return float(losses.mean() + 0.5 * ALPHA * weights @ weights)


@pytest.mark.parametrize("protection", ["none", "masked"])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_it_is_the_pooled_generalised_linear_model_in_few_rounds(name: str, protection: str) -> None:
    matrix, targets, _, clients = draw(name)
    model = HorizontalRegressor(loss=name, alpha=ALPHA, encoder=PLAIN, protection=protection)
    model.fit(matrix, targets, clients=clients)
    reference = pooled(name, matrix, targets)
    best = objective(name, reference.coef_, reference.intercept_, matrix, targets)
    assert objective(name, model.coef_, model.intercept_, matrix, targets) <= 1.001 * best
    assert model.certificate_.converged
    assert model.n_iter_ <= 10
    np.testing.assert_allclose(model.predict(matrix), reference.predict(matrix), rtol=0.02, atol=0.02)
    assert model.score(matrix, targets) == pytest.approx(reference.score(matrix, targets), abs=1e-3)


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("kind", [MeanPredictionParity, LossParity])
def test_constraints_hold_over_all_clients(name: str, kind: Any) -> None:
    matrix, targets, group, clients = draw(name, seed=1)
    loss = find_loss(name)

    def gap(model: HorizontalRegressor) -> float:
        scores = model._scores_of(matrix)
        each = loss.mean(scores)[0] if kind is MeanPredictionParity else loss.value(scores, targets)
        return abs(float(each[group == "a"].mean() - each[group == "b"].mean()))

    settings: dict[str, Any] = {"loss": name, "encoder": PLAIN, "tol": 1e-4}
    given: dict[str, Any] = {"sensitive_features": pd.Series(group, name="sex"), "clients": clients}
    free = gap(HorizontalRegressor(**settings).fit(matrix, targets, **given))
    model = HorizontalRegressor(constraint=kind(0.3 * free), **settings).fit(matrix, targets, **given)
    assert gap(model) <= 0.3 * free + 1e-4
    assert model.certificate_.converged


@pytest.mark.parametrize(("name", "scale"), [("poisson", 0.02), ("poisson", 0.005), ("tweedie", 1e-4)])
def test_narrow_bounds_hold_within_a_share_of_their_width(name: str, scale: float) -> None:
    matrix, targets, group, clients = draw(name, seed=1)
    targets = targets * scale
    settings: dict[str, Any] = {"loss": name, "encoder": PLAIN}

    def gap(model: HorizontalRegressor) -> float:
        losses = find_loss(name).value(model._scores_of(matrix), targets)
        return abs(float(losses[group == "a"].mean() - losses[group == "b"].mean()))

    bound = 0.3 * gap(HorizontalRegressor(**settings).fit(matrix, targets, clients=clients))
    model = HorizontalRegressor(constraint=LossParity(bound), **settings)
    model.fit(matrix, targets, clients=clients, sensitive_features=group)
    assert model.certificate_.converged
    assert gap(model) <= 1.002 * bound


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_exposures_weigh_rows_in_the_loss_and_in_constraints(protection: str) -> None:
    matrix, targets, group, clients = draw("poisson", seed=2)
    exposure = np.random.default_rng(5).uniform(0.05, 2.0, ROWS) * np.where(clients == 1, 40.0, 1.0)
    settings: dict[str, Any] = {"loss": "poisson", "alpha": ALPHA, "encoder": PLAIN, "protection": protection}
    model = HorizontalRegressor(**settings, tol=1e-6).fit(matrix, targets, exposure, clients=clients)
    reference = PoissonRegressor(alpha=ALPHA, solver="newton-cholesky", tol=1e-9).fit(matrix, targets, exposure)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    assert model.score(matrix, targets, exposure) == pytest.approx(reference.score(matrix, targets, exposure), abs=1e-4)

    def gap(one: Any) -> float:
        means = [
            np.average(one.predict(matrix)[inside], weights=exposure[inside]) for inside in (group == "a", group == "b")
        ]
        return abs(float(means[0] - means[1]))

    constraint = MeanPredictionParity(0.3 * gap(model))
    fair = HorizontalRegressor(constraint=constraint, **settings, tol=1e-5)
    fair.fit(matrix, targets, exposure, clients=clients, sensitive_features=group)
    assert gap(fair) == pytest.approx(constraint.epsilon, abs=2e-5)
    # Weights of any unit are the same.
    again = HorizontalRegressor(**settings, tol=1e-6).fit(matrix, targets, 12.0 * exposure, clients=clients)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-6)


def test_a_row_of_weight_two_is_two_rows() -> None:
    matrix, targets, group, clients = draw("gamma", seed=3)
    weights = np.where(np.arange(ROWS) % 3 == 0, 2.0, 1.0)
    places = np.repeat(np.arange(ROWS), weights.astype(int))
    settings: dict[str, Any] = {"loss": "gamma", "alpha": ALPHA, "encoder": PLAIN, "tol": 1e-6}
    settings["constraint"] = LossParity(0.01)
    once = HorizontalRegressor(**settings).fit(matrix, targets, weights, clients=clients, sensitive_features=group)
    twice = HorizontalRegressor(**settings)
    twice.fit(matrix[places], targets[places], clients=clients[places], sensitive_features=group[places])
    np.testing.assert_allclose(once.coef_, twice.coef_, atol=1e-5)


@pytest.mark.parametrize(
    ("weights", "told"),
    [(np.ones(3), "sample_weight has 3 rows"), (-np.ones(ROWS), "zero or more"), (["much"] * ROWS, "not numbers")],
)
def test_weights_that_are_none_are_refused(weights: Any, told: str) -> None:
    matrix, targets, _, clients = draw("poisson")
    with pytest.raises(DataError, match=told):
        HorizontalRegressor(loss="poisson").fit(matrix, targets, weights, clients=clients)


def test_all_clients_have_weights_or_none_has() -> None:
    with pytest.raises(DataError, match="client 'north' has no sample weights, but client 'south' has"):
        total_weights({"north": {"counts": []}, "south": {"weights": [1.0]}}, [])
    with pytest.raises(DataError, match="client 'south' sent totals"):
        total_weights({"south": {"weights": [-1.0]}}, [])


def test_nothing_of_targets_is_summarised_before_training() -> None:
    matrix, targets, group, clients = draw("poisson")
    model = HorizontalRegressor(loss="poisson", encoder=PLAIN, constraint=MeanPredictionParity(0.1, cross=True))
    groups = pd.DataFrame({"sex": group, "old": np.arange(ROWS) % 2})
    model.fit(matrix, targets, sensitive_features=groups, clients=clients)
    assert model.run_.terms.classes is None
    assert all(part.label is None for part in model.run_.terms.slice_counts)


def test_what_it_cannot_have_is_refused_before_training() -> None:
    matrix, targets, group, clients = draw("poisson")
    with pytest.raises(DataError, match="targets are negative"):
        HorizontalRegressor(loss="poisson").fit(matrix, targets - 1.0, clients=clients)
    with pytest.raises(DataError, match="all targets"):
        HorizontalRegressor(loss="poisson").fit(matrix, 0.0 * targets, clients=clients)
    with pytest.raises(ConstraintError, match="MeanPredictionParity"):
        HorizontalRegressor(constraint=EqualOpportunity(0.1)).fit(
            matrix, targets, clients=clients, sensitive_features=group
        )
    with pytest.raises(InputError, match="does not support the squared loss; choose 'sqp'"):
        HorizontalRegressor(solver="prox-al").fit(matrix, targets, clients=clients)
