"""A horizontal run's certificate, computed again from outside: from the returned model and multipliers, on all rows.

Written from the definitions; nothing of the package is used but the constraints' own fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.problems import Problem, ReferenceRow, phi

from evenhand.constraints.kinds import Constraint

Array = np.ndarray

_LABELS = {
    "equal-opportunity": (1,),
    "equalized-odds": (1, -1),
    "loss-parity": (None,),
    "demographic-parity": (None,),
}


def definition(constraint: Constraint, problem: Problem, bound: float | None = None) -> list[ReferenceRow]:
    """The rows of a constraint on some data with groups a and b, perhaps with another bound than its own."""
    given: Any = constraint
    measured = {"measure": given.measure, "temperature": given.temperature}
    if constraint.kind == "neyman-pearson":
        limit = given.limit if bound is None else bound
        return [ReferenceRow([(1.0, problem.slice(given.label))], -np.inf, limit, **measured)]
    epsilon = given.epsilon if bound is None else bound
    if constraint.kind == "group-against-overall":
        everybody = problem.slice()
        pairs = [[(1.0, everybody), (-1.0, problem.slice(None, group))] for group in "ab"]
    else:
        labels = _LABELS[constraint.kind]
        pairs = [[(1.0, problem.slice(label, "a")), (-1.0, problem.slice(label, "b"))] for label in labels]
    return [ReferenceRow(pair, -epsilon, epsilon, **measured) for pair in pairs]


@dataclass(frozen=True, eq=False)
class Outside:
    """The conditions at (w, λ), from everybody's rows.

    Attributes
    ----------
    gradient
        Of the Lagrangian in the weights (the intercept last).
    excess
        (2, R): of the inequalities, in the order of the run's names.
    """

    objective: float
    gradient: Array
    excess: Array
    multipliers: Array

    @property
    def violation(self) -> float:
        return float(np.max(self.excess, initial=0.0))

    @property
    def complementarity(self) -> float:
        known = np.isfinite(self.excess)
        return float(np.max(np.abs(self.multipliers[known] * self.excess[known]), initial=0.0))


def from_outside(
    weights: Array,
    multipliers: Array,
    everybody: Problem,
    held: Sequence[tuple[Problem, ReferenceRow]],
    regulariser: Array,
    counted: bool = False,
) -> Outside:
    """Measure a linear model.

    Parameters
    ----------
    everybody
        All clients' rows: the mean loss is over them.
    held
        The inequalities, each with the data it is over.
    regulariser
        μ of each weight.
    counted
        Whether bounds on rates are meant of people counted.
    """
    weights = np.asarray(weights, dtype=np.float64)
    z, design = scores(everybody, weights)
    loss, slope = phi("loss", 1.0, z, everybody.labels)
    gradient = design.T @ slope / len(z) + regulariser * weights
    excess = np.zeros((2, len(held)))
    for place, (data, row) in enumerate(held):
        z, design = scores(data, weights)
        net = multipliers[0, place] - multipliers[1, place]
        gradient = gradient + net * design.T @ row.slope(z, data.labels)
        value = row.counted(z, data.labels) if counted else row.value(z, data.labels)
        excess[:, place] = value - row.upper, row.lower - value
    objective = float(loss.mean() + 0.5 * regulariser @ weights**2)
    return Outside(objective, gradient, excess, np.asarray(multipliers))


def scores(data: Problem, weights: Array) -> tuple[Array, Array]:
    design = np.column_stack([data.matrix, np.ones(len(data.labels))])
    return design @ weights, design


def part(problem: Problem, rows: Sequence[int]) -> Problem:
    chosen = list(rows)
    sensitive = problem.sensitive.iloc[chosen].reset_index(drop=True)
    return Problem(problem.matrix[chosen], problem.labels[chosen], sensitive)


def held_rows(
    constraints: Sequence[Constraint],
    everybody: Problem,
    clients: Mapping[str, Problem],
    server: Problem | None,
    scope: str,
    limits: Mapping[str, float] | None = None,
) -> list[tuple[Problem, ReferenceRow]]:
    """Inequalities with the data they are over: each client's own, then the global ones, as a run names them."""
    limits, found = limits or {}, []
    places = [(clients[name], limits.get(name)) for name in sorted(clients)] if scope != "global" else []
    if scope != "local":
        places.append((everybody if server is None else server, limits.get("server")))
    for data, bound in places:
        found += [(data, row) for constraint in constraints for row in definition(constraint, data, bound)]
    return found
