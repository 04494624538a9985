"""Find models near a given one that meet bounds on exact rates: other cuts through the same ranking of rows.

The exact rates of a linear model depend on its ranking of rows and on the cut. So one pass over the sorted scores gives
the rates at every cut, and the feasible cuts nearest to the model's own. At such a cut the best scale of the scores
minimises the loss: with a smaller scale, rows are moved by less. Bounds that follow exact rates in small steps
(`ShiftedBounds`) often end at worse models, or at none, if slices are small.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.debiased import DebiasedLagrangian
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.proving import NOTHING, ShiftedBounds
from evenhand.programs.combining.columns import Columns, DenseColumns
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, solve_reduced

EACH: Final = 1000
"""Cuts to try near each end of the ranking, and in between."""
ROUNDING: Final = 1e-9
"""Scores that are nearer to each other than this are one score."""
BEYOND: Final = 0.02
"""How far a cut that gives all rows one decision is from the outermost row."""


class CutModel(NamedTuple):
    """A model to start from: coefficients and scores."""

    coefficients: Array
    scores: Array


def feasible_cuts(lagrangian: Lagrangian, shifted: ShiftedBounds, scores: Array) -> list[float]:
    """Return the cuts nearest to the present one, below and above, at which exact rates meet their bounds.

    A cut t gives the decisions of the scores minus t.
    """
    of, rows = lagrangian, lagrangian.constraints
    measures = {one: places for one, places in rows.measures.items() if shifted.exact[places].any()}
    present = next(iter(measures)).cut
    order = np.argsort(-scores, kind="stable")
    ranked, size = scores[order], len(scores)
    tried = np.r_[np.arange(EACH), np.linspace(0, size, EACH + 1), np.arange(size - EACH, size + 1)]
    tried = np.unique(np.clip(tried, 0, size)).astype(np.int64)
    above, below = np.r_[ranked[0] + 2.0 * BEYOND, ranked][tried], np.r_[ranked, ranked[-1] - 2.0 * BEYOND][tried]
    # A cut selects the rows before it in the ranking, and cannot divide rows with one score.
    place = np.searchsorted(tried, np.arange(size), side="right")
    strata, labels = rows.weights.shape[1], np.zeros(rows.weights.shape[1])
    labels[rows.stratum] = of.labels
    cell = place * strata + rows.stratum[order]
    weights = None if rows.sample_weight is None else rows.sample_weight[order]
    counts = np.bincount(cell, weights=weights, minlength=(len(tried) + 1) * strata).reshape(-1, strata)
    everybody = counts.sum(axis=0)
    selected = np.cumsum(counts, axis=0)[: len(tried)]
    holds = above - below > ROUNDING * np.maximum(1.0, np.abs(above))
    for measure, places in measures.items():
        wrong = np.where(labels > 0.0, everybody - selected, selected)
        values = np.zeros((len(tried), len(rows)))
        values[:, places] = (wrong if measure.name == "error" else selected) @ rows.of_measure(measure).T
        beyond = shifted.aim.excess(values).max(axis=0)[:, places]
        holds &= (beyond[:, shifted.exact[places]] <= NOTHING).all(axis=1)
    found = 0.5 * (above + below)[holds] - present
    return [*found[found >= 0.0][-1:], *found[found < 0.0][:1]]


def cut_models(found: ReducedSolution, columns: Columns, norms: Quadratic, shifted: ShiftedBounds) -> list[CutModel]:
    """Return the solution at its feasible cuts, each with the best scale, best first.

    The last column must be the intercept. There are none where labels are randomised responses: rates are then no
    counts of rows.
    """
    lagrangian, scores = found.point.lagrangian, found.point.scores
    if isinstance(lagrangian, DebiasedLagrangian) or scores.ndim == 2:
        return []
    rows = lagrangian.constraints
    unbounded = BoundConstraints((), rows.stratum, rows.weights[:0], rows.sample_weight)
    free = lagrangian.with_constraints(unbounded)
    # The scores as a combination of the columns, as nearly as there is one.
    gram = columns.add_gram(np.zeros((columns.width, columns.width)), np.ones(len(scores)))
    whole: Array = np.linalg.lstsq(gram, columns.sums(scores), rcond=1e-10)[0].astype(np.float64)
    spanned, constant = columns.scores(whole), np.eye(columns.width)[-1]
    models: list[tuple[float, CutModel]] = []
    for cut in feasible_cuts(lagrangian, shifted, scores):
        moved, along = found.coefficients - cut * constant, whole - cut * constant
        norm = Quadratic(
            np.array([[along @ norms.gram @ along]]), np.array([along @ (norms.linear + norms.gram @ moved)])
        )
        line = DenseColumns((spanned - cut)[:, None])
        scale = solve_reduced(free, scores - cut, line, norm, np.zeros((2, 0)))
        coefficients = moved + scale.coefficients[0] * along
        models.append((scale.point.loss + norms.value(coefficients), CutModel(coefficients, scale.point.scores)))
    return [model for _, model in sorted(models, key=lambda one: one[0])]
