"""Small problems with known answers: data, ways to deal its columns to parties, and the constrained optimum by scipy.

Everything that serves as a reference here is written from the definitions, row by row, and shares no code with the
package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit

from evenhand.constraints.kinds import Constraint
from evenhand.protocol.job import Job
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import train_vertical

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    """Columns, labels of ±1 and sensitive attributes of the same rows."""

    matrix: Array
    labels: Array
    sensitive: pd.DataFrame

    @property
    def groups(self) -> Array:
        return self.sensitive.iloc[:, 0].to_numpy()

    def slice(self, label: int | None = None, group: Any = None, attribute: str | None = None) -> Array:
        """Which rows have this label and this group of the first (or the named) attribute."""
        inside = np.ones(len(self.labels), dtype=bool)
        if label is not None:
            inside &= self.labels == label
        if group is not None:
            inside &= (self.sensitive[attribute or self.sensitive.columns[0]] == group).to_numpy()
        return inside


def small(seed: int = 0, rows: int = 60, columns: int = 4, groups: str = "ab") -> Problem:
    """A problem on which fairness costs something: columns and labels both depend on the group."""
    rng = np.random.default_rng(seed)
    place = np.arange(rows) % len(groups)
    matrix = rng.standard_normal((rows, columns)) + 0.5 * place[:, None] * rng.standard_normal(columns)
    truth = rng.standard_normal(columns)
    labels = np.where(matrix @ truth + rng.logistic(size=rows) > 0.5 * place, 1.0, -1.0)
    # Every label meets every group, whatever the seed.
    for group in range(len(groups)):
        first, second = np.flatnonzero(place == group)[:2]
        labels[first], labels[second] = 1.0, -1.0
    return Problem(matrix, labels, pd.DataFrame({"group": np.array(list(groups))[place]}))


def two_attributes(seed: int = 0, rows: int = 90) -> Problem:
    problem = small(seed, rows, groups="abc")
    sex = np.where(np.random.default_rng(seed + 1).random(rows) < 0.4, "f", "m")
    return Problem(problem.matrix, problem.labels, problem.sensitive.assign(sex=sex))


def deal(
    problem: Problem, blocks: Sequence[Sequence[int]] | None = None, active: Sequence[int] = (0,)
) -> list[PartyColumns]:
    """Parties p0, p1, ... with these columns each; one party with all of them by default."""
    blocks = [range(problem.matrix.shape[1])] if blocks is None else blocks
    return [
        PartyColumns(f"p{place}", np.ascontiguousarray(problem.matrix[:, list(block)]), place in active)
        for place, block in enumerate(blocks)
    ]


def train(
    problem: Problem,
    constraint: Constraint | None = None,
    blocks: Sequence[Sequence[int]] | None = None,
    active: Sequence[int] = (0,),
    *,
    runtime: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **job: Any,
) -> VerticalRun:
    """Train by `fairvfl` (or the solver in `job`) with `options` for the solver and `runtime` for the runtime."""
    constraints = () if constraint is None else (constraint,)
    full = Job(**{"solver": "fairvfl", "constraints": constraints, "options": options or {}, **job})
    return train_vertical(full, deal(problem, blocks, active), problem.labels, problem.sensitive, **(runtime or {}))


def pooled_weights(run: VerticalRun, blocks: Sequence[Sequence[int]] | None = None) -> Array:
    """A linear run's weights in the order of the pooled columns, the intercept last (if there is one)."""
    models = list(run.models.values())
    if blocks is None:
        return models[0].weights
    width = sum(len(block) for block in blocks)
    columns, intercept = np.zeros(width), []
    for model, block in zip(models, blocks, strict=True):
        columns[list(block)] = model.weights[: len(block)]
        intercept += list(model.weights[len(block) :])
    return np.array([*columns, *intercept])


# -- references, from the definitions


def phi(name: str, temperature: float, z: Array, y: Array) -> tuple[Array, Array]:
    """A measure and its derivative in the score, on each row."""
    if name == "loss":
        return np.logaddexp(0.0, -y * z), -y * expit(-y * z)
    if name == "prediction":
        return expit(z), expit(z) * expit(-z)
    sign = -y if name == "error" else np.ones_like(y)
    rate = expit(sign * z / temperature)
    return rate, sign * rate * expit(-sign * z / temperature) / temperature


@dataclass(frozen=True, eq=False)
class ReferenceRow:
    """lower ≤ Σ coefficient · mean of the measure over the rows of the mask ≤ upper."""

    terms: Sequence[tuple[float, Array]]
    lower: float
    upper: float
    measure: str = "loss"
    temperature: float = 0.5

    def value(self, z: Array, y: Array) -> float:
        values = phi(self.measure, self.temperature, z, y)[0]
        return sum(coefficient * float(np.mean(values[mask])) for coefficient, mask in self.terms)

    def counted(self, z: Array, y: Array) -> float:
        """The value with people counted instead of rates smoothed."""
        if self.measure == "loss":
            return self.value(z, y)
        hits = (z > 0) if self.measure == "positive" else (z > 0) != (y > 0)
        return sum(coefficient * float(np.mean(hits[mask])) for coefficient, mask in self.terms)

    def slope(self, z: Array, y: Array) -> Array:
        """Derivative of the value in each row's score."""
        derivative = phi(self.measure, self.temperature, z, y)[1]
        return sum(coefficient * mask / mask.sum() for coefficient, mask in self.terms) * derivative


@dataclass(frozen=True, eq=False)
class Reference:
    """The pooled constrained problem: weights of all columns and then the intercept, which is not regularised."""

    problem: Problem
    rows: Sequence[ReferenceRow]
    regulariser: float

    @property
    def design(self) -> Array:
        return np.column_stack([self.problem.matrix, np.ones(len(self.problem.labels))])

    def scores(self, weights: Array) -> Array:
        return self.design @ weights

    def objective(self, weights: Array) -> float:
        loss = phi("loss", 1.0, self.scores(weights), self.problem.labels)[0].mean()
        return float(loss + 0.5 * self.regulariser * weights[:-1] @ weights[:-1])

    def nu(self, weights: Array, multipliers: Array) -> Array:
        z, y = self.scores(weights), self.problem.labels
        nu = phi("loss", 1.0, z, y)[1] / len(y)
        for place, row in enumerate(self.rows):
            nu = nu + (multipliers[0, place] - multipliers[1, place]) * row.slope(z, y)
        return nu

    def gradient(self, weights: Array, multipliers: Array) -> Array:
        """Of the Lagrangian, regulariser included."""
        return self.design.T @ self.nu(weights, multipliers) + self.regulariser * np.append(weights[:-1], 0.0)

    def values(self, weights: Array) -> Array:
        z = self.scores(weights)
        return np.array([row.value(z, self.problem.labels) for row in self.rows])

    def excess(self, weights: Array) -> Array:
        values = self.values(weights)
        upper = np.array([row.upper for row in self.rows])
        lower = np.array([row.lower for row in self.rows])
        return np.stack([values - upper, lower - values])

    def no_multipliers(self) -> Array:
        return np.zeros((2, len(self.rows)))

    def optimum(self) -> tuple[Array, Array]:
        """Weights and multipliers by SLSQP with exact gradients; the multipliers from its stationarity condition."""
        y = self.problem.labels
        sides: list[tuple[int, int, Callable[[Array], float], Callable[[Array], Array]]] = []
        for place, row in enumerate(self.rows):

            def room(w: Array, sign: float, row: ReferenceRow = row) -> float:
                return (
                    row.upper - row.value(self.scores(w), y) if sign > 0 else row.value(self.scores(w), y) - row.lower
                )

            def slope(w: Array, sign: float, row: ReferenceRow = row) -> Array:
                return -sign * self.design.T @ row.slope(self.scores(w), y)

            for side, (sign, bound) in enumerate(((1.0, row.upper), (-1.0, row.lower))):
                if np.isfinite(bound):
                    sides.append(
                        (side, place, lambda w, s=sign, f=room: f(w, s), lambda w, s=sign, f=slope: f(w, s)),
                    )
        none = self.no_multipliers()
        found = minimize(
            self.objective,
            np.zeros(self.design.shape[1]),
            jac=lambda w: self.gradient(w, none),
            constraints=[{"type": "ineq", "fun": fun, "jac": jac} for _, _, fun, jac in sides],
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        weights = found.x
        tight = [(side, place, jac(weights)) for side, place, fun, jac in sides if fun(weights) < 1e-7]
        multipliers = self.no_multipliers()
        if tight:
            slopes = np.column_stack([slope for _, _, slope in tight])
            values = np.linalg.lstsq(slopes, self.gradient(weights, none), rcond=None)[0]
            for (side, place, _), value in zip(tight, values, strict=True):
                multipliers[side, place] = value
        return weights, multipliers


def parity_rows(
    problem: Problem, labels: Sequence[int | None], epsilon: float, measure: str = "loss", temperature: float = 0.5
) -> list[ReferenceRow]:
    """Rows that compare groups a and b of the first attribute, for each of the labels."""
    return [
        ReferenceRow(
            [(1.0, problem.slice(label, "a")), (-1.0, problem.slice(label, "b"))],
            -epsilon,
            epsilon,
            measure,
            temperature,
        )
        for label in labels
    ]


def numerical_gradient(function: Callable[[Array], float], at: Array, width: float = 1e-6) -> Array:
    """Central differences, one coordinate at a time."""
    at = np.asarray(at, dtype=np.float64)
    gradient = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[place] = width
        gradient[place] = (function(at + step) - function(at - step)) / (2 * width)
    return gradient
