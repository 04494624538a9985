"""Let the label holder grow a few trees alone, at the end of a run of trees with label privacy."""

from __future__ import annotations

from typing import Final

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.evaluation import Lagrangian
from evenhand.models.trees import TreesModel
from evenhand.programs.combining.leaf_values import LeafProblem, is_better
from evenhand.programs.combining.leaves import LeafColumns
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.trees.options import Trees

MOST_TREES: Final = 5
"""Number of trees that the label holder grows alone. Those after the best are discarded."""
_HOLDS: Final = 1e-5
"""Violations below this count as zero."""


def grow_on(model: TreesModel, lagrangian: Lagrangian, scores: Array, terms: VerticalTerms) -> None:
    """Grow a few more trees on the label holder's own columns, with the other parties' trees fixed."""
    options = terms.job.settings(Trees)
    problem = LeafProblem(lagrangian, options.shrinkage, terms.regulariser, options.exact_rates)
    values, intercept = model.values, model.intercept_value
    multipliers, held_out = lagrangian.constraints.bounds.no_multipliers(), scores
    missed = problem.violation(lagrangian.at(scores), scores)
    best, loss, kept = max(missed, _HOLDS), float(lagrangian.losses(scores).sum()), len(values)
    for _ in range(MOST_TREES):
        point = lagrangian.at(scores)
        leaves = model.grow(*problem.derivatives(point, multipliers), 1, options.shrinkage)
        fit = problem.fit(LeafColumns(leaves, np.array(model.leaf_counts[-1:])), scores, held_out, multipliers)
        scores, held_out, multipliers = fit.scores, fit.held_out, fit.solution.multipliers
        values = [*values, fit.values]
        now = max(fit.violation, _HOLDS), float(lagrangian.losses(held_out).sum())
        if is_better(*now, best, loss, terms.job.tol)[0]:
            (best, loss), kept = now, len(values)
    model.keep(values[:kept], intercept)
