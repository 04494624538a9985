"""Signs of weights that are bounded: the constrained optimum, compared with independent solvers on the pooled rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, minimize
from support.contracts import assert_goes_on_from_any_checkpoint
from support.problems import deal, small

from evenhand import EqualizedOdds, HorizontalClassifier, LossParity, VerticalClassifier
from evenhand.arrays import Array
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.programs.combining.elastic import Box, elastic_step
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import VirtualClock
from evenhand.vertical.subspace.blocks import DirectionBlock, OwnBlock
from evenhand.vertical.subspace.party import Subspace
from evenhand.vertical.subspace.signs import SignBounds, box_of, classes_of, least_gradient
from evenhand_reproductions.in_memory import Holdings, train_vertical

Tables = dict[str, pd.DataFrame]


def people(rows: int, parties: int, seed: int, correlated: bool) -> tuple[Tables, Array]:
    """Draw columns with humps and straight effects; correlated ones are close to three factors."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 3 * parties))
    if correlated:
        values = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 3 * parties)) + 0.4 * values
    scores = np.tanh(values) @ rng.normal(size=3 * parties) + 0.5 * np.abs(values[:, 0])
    labels = (rng.random(rows) < 1.0 / (1.0 + np.exp(1.0 - scores))).astype(int)
    frame = pd.DataFrame(values, columns=[f"x{k}" for k in range(3 * parties)])
    frame.loc[rng.random(rows) < 0.1, "x1"] = np.nan
    return {f"p{k}": frame.iloc[:, 3 * k : 3 * k + 3] for k in range(parties)}, labels


def ordered(tables: Tables) -> dict[str, PartyEncoder]:
    """Ask for a direction in most columns: some with the effect, some against it, some free."""
    asked = ("up", "down", None)
    encoders = {}
    for place, (name, table) in enumerate(tables.items()):
        found = {column: asked[(place + k) % 3] for k, column in enumerate(table)}
        encoders[name] = PartyEncoder(monotone={column: way for column, way in found.items() if way})
    return encoders


def pooled(model: VerticalClassifier, tables: Tables) -> tuple[Array, Array]:
    """Return all encoded columns with the intercept's, and the sign of each weight."""
    matrices = [model.encoders_[name].transform(table) for name, table in tables.items()]
    signs = [model.encoders_[name].signs for name in tables]
    return np.hstack([*matrices, np.ones((len(matrices[0]), 1))]), np.append(np.concatenate(signs), 0)


def optimum(columns: Array, signs: Array, labels: Array, regulariser: float) -> float:
    """Return the smallest regularised logistic loss with weights of these signs."""
    y, shrunk = 2.0 * labels - 1.0, np.append(np.ones(columns.shape[1] - 1), 0.0)

    def value(weights: Array) -> tuple[float, Array]:
        margins = y * (columns @ weights)
        slopes = columns.T @ (-y / (1.0 + np.exp(margins))) / len(y)
        penalty = 0.5 * regulariser * float(weights @ (shrunk * weights))
        return float(np.logaddexp(0.0, -margins).mean()) + penalty, slopes + regulariser * shrunk * weights

    box = Bounds(np.where(signs > 0, 0.0, -np.inf), np.where(signs < 0, 0.0, np.inf))
    options = {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9}
    return float(minimize(value, np.zeros(len(signs)), jac=True, method="L-BFGS-B", bounds=box, options=options).fun)


@pytest.mark.parametrize("parties", [2, 3])
def test_model_is_the_constrained_optimum(parties: int) -> None:
    tables, labels = people(900, parties, parties, correlated=parties > 2)
    model = VerticalClassifier(encoder=ordered(tables), protection="none", tol=1e-7, random_state=0)
    model.fit(tables, labels)
    columns, signs = pooled(model, tables)
    weights, found = model.coef_.ravel(), model.certificate_
    assert (signs[:-1] * weights >= 0.0).all()
    assert 0 < int((weights[signs[:-1] != 0] == 0.0).sum()) < int((signs != 0).sum())
    least = optimum(columns, signs, labels, model._job().regulariser(len(labels)))
    gap = (found.objective - least) / found.objective
    assert found.converged
    assert found.bound is not None
    assert -1e-9 <= gap <= found.bound + 1e-9
    assert found.bound <= 5e-7


def test_default_tolerance_is_kept_where_columns_of_parties_are_close_to_dependent() -> None:
    """The reach of each column limits rounds, so that little gain alone does not tell that the optimum is near."""
    tables, labels = people(900, 6, 1, correlated=True)
    model = VerticalClassifier(encoder=ordered(tables), protection="none", random_state=0).fit(tables, labels)
    columns, signs = pooled(model, tables)
    least = optimum(columns, signs, labels, model._job().regulariser(len(labels)))
    assert model.certificate_.converged
    assert (model.certificate_.objective - least) / least <= 1e-3


@pytest.mark.parametrize(
    "constraint", [EqualizedOdds(0.02, measure="error"), LossParity(0.01)], ids=["rates", "losses"]
)
def test_signs_and_a_constraint_hold_together(constraint: Any) -> None:
    tables, labels = people(900, 3, 7, correlated=False)
    noise = np.random.default_rng(0).normal(size=900)
    groups = pd.DataFrame({"group": (tables["p0"]["x0"].to_numpy() + noise > 0.3).astype(int)})
    # So few rows cannot keep so narrow a bound for new people, too.
    solver = Subspace(leave_one_out=False)
    model = VerticalClassifier(
        constraint=constraint, encoder=ordered(tables), solver=solver, protection="none", random_state=0
    )
    model.fit(tables, labels, sensitive_features=groups)
    assert model.certificate_.converged
    assert model.certificate_.violation <= 1e-3
    _, signs = pooled(model, tables)
    assert (signs[:-1] * model.coef_.ravel() >= 0.0).all()


def test_scores_rise_with_the_column_and_a_missing_value_is_free() -> None:
    tables, labels = people(600, 2, 3, correlated=False)
    encoders = {name: PartyEncoder(monotone=dict.fromkeys(table, "up")) for name, table in tables.items()}
    model = VerticalClassifier(encoder=encoders, random_state=0).fit(tables, labels)
    lines = pd.DataFrame({"x0": np.zeros(300), "x1": np.linspace(-5.0, 5.0, 300), "x2": np.zeros(300)})
    fixed = tables["p1"].iloc[:1].loc[np.zeros(300, dtype=int)].reset_index(drop=True)
    assert (np.diff(model.decision_function({"p0": lines, "p1": fixed})) >= 0.0).all()
    assert model.encoders_["p0"].signs.tolist().count(0) == 1


def test_a_party_that_sends_directions_and_holds_the_labels_keeps_its_signs() -> None:
    tables, labels = people(600, 3, 5, correlated=True)
    solver = Subspace(own_columns=False)
    model = VerticalClassifier(solver=solver, encoder=ordered(tables), protection="none", tol=1e-6, random_state=0)
    model.fit(tables, labels)
    columns, signs = pooled(model, tables)
    least = optimum(columns, signs, labels, model._job().regulariser(len(labels)))
    assert (model.certificate_.objective - least) / least <= 1e-6
    assert (signs[:-1] * model.coef_.ravel() >= 0.0).all()


@pytest.mark.parametrize("own_columns", [True, False])
def test_a_run_under_bounds_can_be_gone_on_with_from_any_checkpoint(own_columns: bool) -> None:
    problem = small(3, 120, 6, "ab")
    parties = [replace(one, signs=np.array([1, -1])) for one in deal(problem, [[0, 1], [2, 3], [4, 5]], active=(0,))]
    options = {"monotone": True, "own_columns": own_columns}
    job = Job("subspace", (), tol=1e-6, protection="none", options=options)

    def make() -> dict[str, Any]:
        one, others = Holdings.of(job, parties, problem.labels, problem.sensitive).roles()
        return {role.name: role for role in (one, *others)}

    assert_goes_on_from_any_checkpoint(make, VirtualClock(latency=3e-7, speeds={"p1": 3e7}))
    run = train_vertical(job, parties, problem.labels, problem.sensitive)
    for model in run.models.values():
        assert (np.array([1, -1]) * model.weights[:2] >= 0.0).all()


# -- one party


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 9))
def test_direction_is_the_optimum_of_the_quadratic_model(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(size, size))
    hessian, gradient = half @ half.T + 0.1 * np.eye(size), rng.normal(size=size)
    signs = rng.integers(-1, 2, size)
    weights = np.where(signs == 0, 1.0, signs) * np.abs(rng.normal(size=size)) * (rng.random(size) < 0.7)
    bounds = SignBounds.of(signs)
    parts, gain = bounds.direction(lambda given: np.linalg.solve(hessian, given), gradient, weights)

    def value(step: Array) -> tuple[float, Array]:
        return float(gradient @ step + 0.5 * step @ hessian @ step), gradient + hessian @ step

    box = Bounds(np.where(signs > 0, -weights, -np.inf), np.where(signs < 0, -weights, np.inf))
    options = {"ftol": 1e-16, "gtol": 1e-10}
    best = minimize(value, np.zeros(size), jac=True, method="L-BFGS-B", bounds=box, options=options)
    step = parts.sum(axis=0)
    assert value(step)[0] == pytest.approx(best.fun, abs=1e-7)
    assert gain == pytest.approx(-value(step)[0], abs=1e-9)
    assert (signs * (weights + step) >= 0.0).all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), steps=st.integers(0, 5), members=st.integers(1, 3))
def test_all_coefficients_in_reach_of_all_parties_keep_every_bound(seed: int, steps: int, members: int) -> None:
    rng = np.random.default_rng(seed)
    counts, parties = np.zeros(()), []
    for _ in range(members):
        signs = rng.integers(-1, 2, 6)
        weights = np.where(signs == 0, 1.0, signs) * np.abs(rng.normal(size=6)) * (rng.random(6) < 0.7)
        bounds = SignBounds.of(signs)
        directions, _ = bounds.direction(lambda given: given, rng.normal(size=6), weights)
        past = rng.normal(size=(steps, 6)) * (rng.random((steps, 6)) < 0.5)
        parties.append((signs, weights, np.vstack([directions, past])))
        counts = counts + classes_of(*bounds.reach(directions, past, weights), 8)
    box = box_of(counts, 2 + steps)
    assert (box.upper[:2] >= 1.0).all()
    for _ in range(20):
        ends = np.where(rng.random(2 + steps) < 0.5, box.lower, box.upper)
        coefficients = np.where(np.isfinite(ends), ends, np.sign(ends) * 50.0)
        for signs, weights, columns in parties:
            assert (signs * (weights + coefficients @ columns) >= -1e-12).all()


def test_gradient_within_bounds_tells_the_gain_that_is_left() -> None:
    """Along one weight: the largest decrease of g·t + μt²/2 that keeps the sign, as a squared gradient over 2μ."""
    weights, gradient = np.array([0.0, 0.0, 0.3, 2.0, -0.5]), np.array([1.0, -1.0, 1.0, 1.0, -2.0])
    signs, regulariser = np.array([1, 1, 1, 1, -1]), 0.5
    steps = np.linspace(-8.0, 8.0, 160_001)
    for one, slope, sign, found in zip(
        weights, gradient, signs, least_gradient(gradient, weights, signs, regulariser), strict=True
    ):
        kept = steps[sign * (one + steps) >= 0.0]
        best = float((-slope * kept - 0.5 * regulariser * kept**2).max())
        assert found**2 / (2.0 * regulariser) == pytest.approx(best, abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 8))
def test_quadratic_program_keeps_a_box(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(size, size))
    hessian, gradient = half @ half.T + 0.1 * np.eye(size), rng.normal(size=size)
    lower = np.where(rng.random(size) < 0.5, -rng.exponential(size=size) * (rng.random(size) < 0.6), -np.inf)
    upper = np.where(rng.random(size) < 0.5, rng.exponential(size=size) * (rng.random(size) < 0.6), np.inf)
    root, none = np.linalg.inv(np.linalg.cholesky(hessian)).T, np.zeros(0)
    found = elastic_step(root, gradient, np.zeros((0, size)), none, none, 1.0, Box(lower, upper))
    best = minimize(
        lambda step: (float(gradient @ step + 0.5 * step @ hessian @ step), gradient + hessian @ step),
        np.zeros(size),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(lower, upper),
        options={"ftol": 1e-16, "gtol": 1e-10},
    )
    assert (found.step >= lower - 1e-9).all()
    assert (found.step <= upper + 1e-9).all()
    np.testing.assert_allclose(found.step, best.x, atol=1e-4)


# -- what is refused


def test_orders_that_cannot_be_had_are_refused() -> None:
    tables, labels = people(120, 3, 0, correlated=False)
    tables["p1"] = tables["p1"].assign(town=np.where(np.arange(120) % 2, "a", "b"))

    def fit(party: str = "p0", column: str = "x0", way: Any = "up", numbers: Any = "auto", **settings: Any) -> None:
        encoder = {party: PartyEncoder(monotone={column: way}, numbers=numbers)}
        VerticalClassifier(encoder=encoder, **{"protection": "none", **settings}).fit(tables, labels)

    for settings_of, told in (
        ({"way": "sideways"}, "choose 'up' or 'down'"),
        ({"solver": "fedbcd"}, "does not support monotone; choose 'subspace' or 'trees'"),
        ({"protection": "dealer"}, "nobody knows the weights.*choose 'none'"),
        ({"protection": "masked"}, "reads one party alone. Choose 'none', with which the server reads"),
        ({"protection": "auto"}, "reads one party alone. Choose 'none', with which the server reads"),
    ):
        with pytest.raises(InputError, match=told):
            fit(**settings_of)
    for settings_of, told in (
        ({"column": "age"}, "p0: monotone names 'age', which is not a column"),
        ({"party": "p1", "column": "town"}, "p1: monotone names 'town'.*only numbers"),
        ({"numbers": "bins"}, "which has bins"),
    ):
        with pytest.raises(DataError, match=told):
            fit(**settings_of)
    with pytest.raises(InputError, match="give 'up' or 'down' by column"):
        PartyEncoder(monotone="up")  # type: ignore[arg-type]
    across = HorizontalClassifier(encoder=PartyEncoder(monotone={"x0": "up"}))
    with pytest.raises(InputError, match="not supported across clients"):
        across.fit(tables["p0"].fillna(0), labels, clients=np.arange(120) % 2)


def test_signs_and_reaches_that_no_party_has_are_refused() -> None:
    own = OwnBlock(np.ones((2, 5)), np.zeros(2), 0.1, intercept=False)
    own.bound(np.array([1, -1]))
    with pytest.raises(ProtocolError, match="none of -1, 0 and 1"):
        own.bound(np.array([1, 7]))
    block = DirectionBlock(2, 1, bounded=True)
    told = classes_of(np.array([0.0, 1.0]), np.array([1.0, np.inf]), 3)
    block.limit(told)
    for wrong in (np.zeros_like(told), np.ones_like(told), -told, 2.0 * told, 0.5 * (told + np.roll(told, 1, axis=2))):
        with pytest.raises(ProtocolError, match="one count for each column and side"):
            block.limit(wrong)
