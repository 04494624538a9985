"""Feasible cuts through a ranking of rows, against counting at every cut; and models at such cuts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar

from evenhand.constraints.binding import bind
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.kinds import Constraint, DemographicParity, EqualizedOdds, EqualOpportunity
from evenhand.constraints.proving import ShiftedBounds
from evenhand.programs.combining.columns import DenseColumns
from evenhand.programs.combining.cuts import cut_models, feasible_cuts
from evenhand.programs.combining.reduced import Quadratic, solve_reduced

ROWS = 400


def problem(seed: int, constraint: Constraint, cut: float = 0.0) -> tuple[Lagrangian, ShiftedBounds, np.ndarray]:
    random = np.random.default_rng(seed)
    group = random.integers(3, size=ROWS)
    # Few values, so that rows share scores.
    columns = np.round(random.normal(size=(ROWS, 3)) + 0.5 * group[:, None], 1)
    columns[:, -1] = 1.0
    labels = np.where(columns[:, 0] - 0.4 * group + random.logistic(size=ROWS) > 0.3, 1.0, -1.0)
    rows = bind([constraint], labels, pd.DataFrame({"group": group}), cut)
    exact = np.ones(len(rows), dtype=bool)
    return Lagrangian(labels, rows), ShiftedBounds(rows.bounds, exact, rows.grain), columns


@pytest.mark.parametrize("cut", [0.0, 0.4])
@pytest.mark.parametrize(
    "constraint",
    [EqualizedOdds(0.12, measure="error"), DemographicParity(0.1), EqualOpportunity(0.08, measure="error")],
)
def test_feasible_cuts_are_the_nearest_of_all(constraint: Constraint, cut: float) -> None:
    for seed in range(5):
        lagrangian, shifted, columns = problem(seed, constraint, cut)
        scores = np.round(columns[:, 0] - 0.2 * columns[:, 1], 2)
        values = np.unique(scores)
        every = np.r_[values[0] - 0.01, 0.5 * (values[1:] + values[:-1]), values[-1] + 0.01] - cut
        good = [t for t in every if shifted.excess(lagrangian.at(scores - t).exact) == 0.0]
        expected = [min(t for t in good if t >= 0.0), max(t for t in good if t < 0.0)]
        found = feasible_cuts(lagrangian, shifted, scores)
        # The ends are any cuts beyond all rows.
        np.testing.assert_allclose(found, expected, atol=0.011)
        assert all(shifted.excess(lagrangian.at(scores - t).exact) == 0.0 for t in found)


def test_models_at_cuts_are_feasible_combinations_of_the_columns_with_the_best_scale() -> None:
    lagrangian, shifted, columns = problem(3, EqualizedOdds(0.12, measure="error"))
    # The score so far is no combination of the columns by itself, but nearly.
    before = columns @ [0.2, 0.1, -0.3]
    norms = Quadratic(0.01 * np.diag([1.0, 1.0, 0.0]), np.array([0.002, 0.001, 0.0]))
    wide = lagrangian.with_constraints(
        lagrangian.constraints.with_inequalities(
            tuple(type(row)(row.terms, -9.0, 9.0, row.measure) for row in lagrangian.constraints.rows)
        )
    )
    multipliers = np.zeros((2, len(lagrangian.constraints)))
    free = solve_reduced(wide, before, columns, norms, multipliers)
    assert shifted.excess(free.point.exact) > 0.0
    models = cut_models(free, DenseColumns(columns), norms, shifted)
    objectives = []
    for model, cut in zip(models, sorted(feasible_cuts(lagrangian, shifted, free.point.scores), key=abs), strict=True):
        np.testing.assert_allclose(before + columns @ model.coefficients, model.scores, atol=1e-9)
        assert shifted.excess(lagrangian.at(model.scores).exact) == 0.0
        objectives.append(lagrangian.at(model.scores).loss + norms.value(model.coefficients))
        assert np.isfinite(cut)
    assert objectives == sorted(objectives)

    def scaled(scale: float) -> float:
        scores = scale * models[0].scores
        whole = np.linalg.lstsq(columns, scores - before, rcond=None)[0]
        return lagrangian.at(scores).loss + norms.value(whole)

    assert objectives[0] == pytest.approx(minimize_scalar(scaled, bounds=(0.1, 3.0), method="bounded").fun, abs=1e-6)
