"""Regression across columns: against scikit-learn's GLMs and a general solver on the pooled rows; constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import GammaRegressor, PoissonRegressor, Ridge, TweedieRegressor
from sklearn.metrics import d2_tweedie_score

from evenhand import (
    BoundedGroupLoss,
    EqualizedOdds,
    GroupAgainstOverall,
    LossParity,
    MeanPredictionParity,
    VerticalRegressor,
)
from evenhand.constraints.families import OF_NUMBERS, find_loss
from evenhand.data import PartyEncoder
from evenhand.errors import ConstraintError, DataError, InputError

ROWS, COLUMNS = 600, 9
PLAIN = PartyEncoder(scale=False, numbers="standard")


def draw(name: str, seed: int = 0, rows: int = ROWS, tail: float = 0.5) -> tuple[Any, Any, Any, Any]:
    """Return columns, targets with zeros and long tails where the family has them, exposures and groups."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, COLUMNS)) @ (np.eye(COLUMNS) + 0.2 * rng.normal(size=(COLUMNS, COLUMNS)))
    group = np.where(rng.random(rows) < 0.4, "a", "b")
    matrix[:, 0] += 0.8 * (group == "a")
    scores = matrix @ rng.normal(size=COLUMNS) * tail / 3.0 + 0.4 * (group == "a") - 0.5
    exposure, mean = rng.uniform(0.05, 1.0, rows), np.exp(scores)
    counts = rng.poisson(mean * exposure)
    targets = {
        "squared": scores + rng.standard_t(4, rows),
        "poisson": counts / exposure,
        "gamma": 1000.0 * mean * rng.gamma(0.7, 1.0 / 0.7, rows) + 1e-3,
        "tweedie": np.array([rng.gamma(0.8, 100.0, count).sum() for count in counts]) / exposure,
    }
    return matrix, targets[name], exposure, group


def split(matrix: Any, parties: int = 3) -> list[Any]:
    return np.array_split(matrix, parties, axis=1)


def pooled(name: str, alpha: float, matrix: Any, targets: Any, exposure: Any) -> Any:
    if name == "squared":
        return Ridge(alpha=alpha * exposure.sum(), tol=1e-12).fit(matrix, targets, exposure)
    made = {"poisson": PoissonRegressor, "gamma": GammaRegressor, "tweedie": TweedieRegressor}[name]
    settings: dict[str, Any] = {"alpha": alpha, "solver": "newton-cholesky", "tol": 1e-9, "max_iter": 1000}
    if name == "tweedie":
        settings |= {"power": 1.5, "link": "log"}
    return made(**settings).fit(matrix, targets, exposure)


def objective(name: str, alpha: float, weights: Any, intercept: float, given: Any) -> float:
    matrix, targets, exposure, _ = given
    losses = find_loss(name).value(matrix @ weights + intercept, targets)
    return float(exposure @ losses / exposure.sum() + 0.5 * alpha * weights @ weights)


@pytest.mark.parametrize("tail", [0.5, 1.2])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_it_is_the_pooled_generalised_linear_model_in_few_rounds(name: str, tail: float) -> None:
    given, alpha = draw(name, tail=tail), 0.01
    matrix, targets, exposure, _ = given
    model = VerticalRegressor(loss=name, alpha=alpha, encoder=PLAIN).fit(split(matrix), targets, exposure)
    reference = pooled(name, alpha, matrix, targets, exposure)
    best = objective(name, alpha, reference.coef_, reference.intercept_, given)
    assert objective(name, alpha, model.coef_, model.intercept_, given) <= 1.001 * best
    assert model.certificate_.objective == pytest.approx(
        objective(name, alpha, model.coef_, model.intercept_, given), rel=1e-9
    )
    assert model.certificate_.converged
    assert model.n_iter_ <= 10
    assert "masked" in set(model.run_.transcript.frame()["kind"])


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_coefficients_and_predictions_are_those_of_scikit_learn(name: str) -> None:
    matrix, targets, exposure, _ = draw(name, seed=1)
    model = VerticalRegressor(loss=name, alpha=0.02, encoder=PLAIN, tol=1e-9).fit(split(matrix), targets, exposure)
    reference = pooled(name, 0.02, matrix, targets, exposure)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict(split(matrix)), reference.predict(matrix), rtol=1e-3, atol=1e-3)
    power = {"squared": 0.0, "poisson": 1.0, "gamma": 2.0, "tweedie": 1.5}[name]
    told = d2_tweedie_score(targets, model.predict(split(matrix)), sample_weight=exposure, power=power)
    assert model.score(split(matrix), targets, exposure) == pytest.approx(told, rel=1e-6)


def test_another_power_is_another_model() -> None:
    matrix, targets, exposure, _ = draw("tweedie")
    settings: dict[str, Any] = {"loss": "tweedie", "alpha": 0.02, "encoder": PLAIN, "tol": 1e-8}
    model = VerticalRegressor(power=1.9, **settings).fit(split(matrix), targets + 0.01, exposure)
    reference = TweedieRegressor(power=1.9, link="log", alpha=0.02, solver="newton-cholesky", tol=1e-9, max_iter=500)
    reference.fit(matrix, targets + 0.01, exposure)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-3)
    assert clone(model).get_params()["power"] == 1.9


@pytest.mark.parametrize("name", ["poisson", "tweedie"])
def test_the_split_and_masks_change_nothing(name: str) -> None:
    matrix, targets, exposure, _ = draw(name, seed=3)
    settings: dict[str, Any] = {"loss": name, "alpha": 0.02, "encoder": PLAIN, "tol": 1e-10}
    found = [
        VerticalRegressor(protection=level, **settings).fit(split(matrix, parties), targets, exposure)
        for level, parties in (("masked", 4), ("none", 2), ("none", 1))
    ]
    for model in found[1:]:
        np.testing.assert_allclose(model.coef_, found[0].coef_, atol=1e-5)


def constrained(name: str, alpha: float, given: Any, rows: Any) -> float:
    """Return the least objective under inequalities over weights with an intercept, by a general solver."""
    matrix, targets, exposure, _ = given
    design, loss = np.column_stack([matrix, np.ones(len(targets))]), find_loss(name)
    shares = exposure / exposure.sum()

    def value(weights: Any) -> tuple[float, Any]:
        losses, slopes = loss.value_and_derivative(design @ weights, targets)
        penalty = alpha * np.append(weights[:-1], 0.0)
        return shares @ losses + 0.5 * penalty @ weights, design.T @ (shares * slopes) + penalty

    start = np.zeros(COLUMNS + 1)
    start[-1] = np.average(targets, weights=exposure) if name == "squared" else np.log(np.average(targets))
    limits = [{"type": "ineq", "fun": lambda weights, row=row: row(design @ weights)} for row in rows]
    found = minimize(
        value, start, jac=True, method="SLSQP", constraints=limits, options={"ftol": 1e-13, "maxiter": 1000}
    )
    return float(found.fun)


def gap_of(measured: Any, exposure: Any, group: Any) -> float:
    means = [np.average(measured[group == one], weights=exposure[group == one]) for one in ("a", "b")]
    return float(means[0] - means[1])


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("kind", ["prediction", "loss"])
def test_constraints_hold_exactly_and_cost_what_they_must(name: str, kind: str) -> None:
    given, alpha = draw(name, seed=4), 0.02
    matrix, targets, exposure, group = given
    loss, parts = find_loss(name), split(matrix)

    def measured(scores: Any) -> Any:
        return loss.mean(scores)[0] if kind == "prediction" else loss.value(scores, targets)

    settings: dict[str, Any] = {"loss": name, "alpha": alpha, "encoder": PLAIN, "tol": 1e-5}
    free = VerticalRegressor(**settings).fit(parts, targets, exposure)
    epsilon = 0.3 * abs(gap_of(measured(free._scores_of(parts)), exposure, group))
    constraint = MeanPredictionParity(epsilon) if kind == "prediction" else LossParity(epsilon)
    fair = VerticalRegressor(constraint=constraint, **settings)
    fair.fit(parts, targets, exposure, sensitive_features=pd.Series(group, name="sex"))
    gap = gap_of(measured(fair._scores_of(parts)), exposure, group)
    assert abs(gap) <= epsilon * (1.0 + 1e-5) + 1e-6
    assert fair.certificate_.converged
    assert fair.certificate_.violation <= 1e-6
    rows = [lambda z, sign=sign: epsilon - sign * gap_of(measured(z), exposure, group) for sign in (1.0, -1.0)]
    best = constrained(name, alpha, given, rows)
    own = objective(name, alpha, fair.coef_, fair.intercept_, given)
    assert own <= 1.001 * best
    assert own >= best * (1.0 - 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_on_losses_of_large_amounts_is_met_from_the_start(seed: int) -> None:
    """The best constant under the bound alone is far away, with derivatives too large to be masked."""
    matrix, targets, exposure, group = draw("tweedie", seed=seed)
    parts, loss, targets = split(matrix, 4), find_loss("tweedie"), 100.0 * targets
    settings: dict[str, Any] = {"loss": "tweedie", "encoder": PLAIN}
    free = VerticalRegressor(**settings).fit(parts, targets, exposure)
    epsilon = 0.3 * abs(gap_of(loss.value(free._scores_of(parts), targets), exposure, group))
    model = VerticalRegressor(constraint=LossParity(epsilon), **settings)
    model.fit(parts, targets, exposure, sensitive_features=pd.Series(group, name="sex"))
    assert abs(gap_of(loss.value(model._scores_of(parts), targets), exposure, group)) <= epsilon * 1.0001
    assert model.n_iter_ <= 15


@pytest.mark.parametrize("name", ["poisson", "squared"])
def test_the_loss_of_the_worst_group_can_be_bounded(name: str) -> None:
    matrix, targets, exposure, group = draw(name, seed=5)
    parts, loss = split(matrix), find_loss(name)
    settings: dict[str, Any] = {"loss": name, "encoder": PLAIN}
    groups = pd.Series(group, name="sex")

    def worst(model: VerticalRegressor) -> float:
        losses = loss.value(model._scores_of(parts), targets)
        return max(np.average(losses[group == one], weights=exposure[group == one]) for one in ("a", "b"))

    free = VerticalRegressor(**settings).fit(parts, targets, exposure)
    # Less than a model without the group's sign can do would be infeasible.
    limit = 0.999 * worst(free)
    model = VerticalRegressor(constraint=BoundedGroupLoss(limit), **settings)
    model.fit(parts, targets, exposure, sensitive_features=groups)
    assert worst(model) <= limit + 1e-6


def test_confidence_widens_the_distance_to_the_bound() -> None:
    matrix, targets, _, group = draw("poisson", seed=1, rows=3000)
    parts, groups = split(matrix), pd.Series(group, name="sex")
    fits = [
        VerticalRegressor(loss="poisson", encoder=PLAIN, constraint=MeanPredictionParity(0.15, confidence=level))
        for level in (None, 0.95)
    ]
    gaps = [
        abs(gap_of(model.fit(parts, targets, sensitive_features=groups).predict(parts), np.ones(3000), group))
        for model in fits
    ]
    assert gaps[1] < gaps[0] <= 0.15 + 1e-6
    assert fits[1].proofs_[0].bound <= 0.15


def test_each_group_against_everybody() -> None:
    matrix, targets, _, group = draw("gamma", seed=7)
    model = VerticalRegressor(loss="gamma", encoder=PLAIN, constraint=GroupAgainstOverall(20.0, "prediction"))
    means = model.fit(split(matrix), targets, sensitive_features=pd.Series(group, name="sex")).predict(split(matrix))
    assert max(abs(means[group == one].mean() - means.mean()) for one in ("a", "b")) <= 20.0 + 1e-4


def test_what_a_regression_cannot_have_is_refused_before_training() -> None:
    matrix, targets, _, group = draw("poisson")
    parts, groups = split(matrix), pd.Series(group, name="sex")
    with pytest.raises(DataError, match="targets are negative"):
        VerticalRegressor(loss="poisson").fit(parts, targets - 5.0)
    with pytest.raises(DataError, match="zero or negative"):
        VerticalRegressor(loss="gamma").fit(parts, targets)
    with pytest.raises(InputError, match="choose one of"):
        VerticalRegressor(loss="absolute").fit(parts, targets)
    with pytest.raises(ConstraintError, match="MeanPredictionParity"):
        VerticalRegressor(constraint=EqualizedOdds(0.1)).fit(parts, targets, sensitive_features=groups)
    with pytest.raises(InputError, match="does not support constraints with the squared loss; choose 'subspace'"):
        VerticalRegressor(solver="vfb2-svrg", constraint=LossParity(0.1)).fit(parts, targets, sensitive_features=groups)
    with pytest.raises(InputError, match="only the logistic loss has; choose 'masked'"):
        VerticalRegressor(loss="poisson", protection="dealer").fit(parts, targets)
    with pytest.raises(InputError, match="does not support the poisson loss; choose 'subspace'"):
        VerticalRegressor(solver="trees", loss="poisson").fit(parts, targets)


def test_a_target_that_outweighs_all_others_is_refused_by_name() -> None:
    matrix, targets, _, _ = draw("gamma", rows=300)
    targets[7] = 1e9
    with pytest.raises(DataError, match="cap large targets"):
        VerticalRegressor(loss="gamma").fit(split(matrix), targets)


@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
def test_the_unit_of_the_target_does_not_matter() -> None:
    """In thousandths the same model comes after as many rounds, as near to the optimum: tolerances are relative."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=(600, 3))
    tables = [np.c_[hidden + 0.5 * random.normal(size=(600, 3)), random.normal(size=(600, 3))] for _ in range(3)]
    target = hidden.sum(axis=1) + random.normal(size=600)
    one, thousand = (
        VerticalRegressor(loss="squared", tol=1e-6, protection="none").fit(tables, unit * target)
        for unit in (1.0, 1000.0)
    )
    assert one.n_iter_ == thousand.n_iter_
    assert one.certificate_.converged
    assert thousand.certificate_.objective == pytest.approx(1e6 * one.certificate_.objective, rel=1e-6)
    assert thousand.certificate_.bound == pytest.approx(one.certificate_.bound, rel=0.2)
    assert one.certificate_.bound <= 2e-5
