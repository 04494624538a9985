"""Estimate how much better a model looks on its training rows: each row's score as if it had been left out.

Leaving out row i removes its loss and changes its slice means, so weights and multipliers change. To first order, with
H the curvature of the Lagrangian, J the gradients of the active inequalities, ν_i and w_i the first and second
derivative of the Lagrangian in the row's score and h_i = x_iᵀMx_i,

    M = H⁻¹ − H⁻¹Jᵀ (J H⁻¹ Jᵀ)⁻¹ J H⁻¹,    K = (J H⁻¹ Jᵀ)⁻¹ J H⁻¹,
    z_i + h_i ν_i / (1 − w_i h_i) + (K x_i)ᵀ a_i (φ_i − φ̄),

where a_i (φ_i − φ̄) is what the row adds to each inequality beyond the mean of its slice.

Where the variables are few combinations of the model's columns, h_i is too small. Participants can then say how far
each row's score follows its own derivative in all their columns (`models/leverage.py`), at curvature ¼ on every row.
The sum over participants, divided by a mean curvature w̄, is the row's response h at that mean. A row that has a
larger curvature of its own holds its score back itself, and is left out with it: what remains is h ν_i / (1 − w̄ h).

The curvature of a bounded rate changes its sign with the score, so that it holds scores back less than its value at one
point says. With few positives under a limit on their misses, values at the Lagrangian's curvature are too good, and
those at the curvature of the loss too bad. Refits without the row lie between: w̄ is the geometric mean of the two.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.slices import Bounds

_MOST_LEVERAGE: Final = 0.9
"""Largest leverage that the first-order estimate is used for."""
_LEAST_CURVED: Final = 0.3
"""Least mean curvature, as a share of that of the loss alone."""


class Response(NamedTuple):
    """M, (d, d), and K, (active rows, d): how weights respond to changes of the gradient, and of inequalities."""

    free: Array
    held: Array

    @classmethod
    def of(cls, curvature: Array, slopes: Array) -> Response:
        """Compute the response from H and J; directions without curvature do not respond."""
        values, vectors = np.linalg.eigh((curvature + curvature.T) / 2.0)
        known = values > 1e-10 * max(float(values.max(initial=0.0)), 1e-300)
        inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
        towards = slopes @ inverse
        held = np.linalg.pinv(towards @ slopes.T, rcond=1e-10, hermitian=True) @ towards
        return cls(inverse - towards.T @ held, held)

    def left_out(
        self, columns: Matrix, nu: Array, bends: Array | float, surprise: Array, response: Array | None = None
    ) -> Array:
        """Return each row's change of score if it is left out.

        Parameters
        ----------
        bends
            w_i, or w̄.
        surprise
            a_i (φ_i − φ̄), (n, active rows).
        response
            h; None computes h_i from dense columns.
        """
        if response is None:
            response = np.einsum("ij,ij->i", columns @ self.free, columns)
        alone = response * nu / (1.0 - np.clip(bends * response, -np.inf, _MOST_LEVERAGE))
        return alone + np.einsum("ij,ij->i", columns @ self.held.T, surprise)


def optimism(bounds: Bounds, values: Array, left_out: Array) -> Array:
    """Return how much larger the values of inequalities are on left-out scores, or zero."""
    two_sided = np.isfinite(bounds.lower) & np.isfinite(bounds.upper)
    growth = np.where(two_sided, np.abs(left_out) - np.abs(values), left_out - values)
    return np.maximum(growth, 0.0)


class LeftOutValues(NamedTuple):
    """Values of inequalities at given scores, their standard errors, and their values at leave-one-out scores."""

    values: Array
    errors: Array
    left_out: Array


def measured(
    lagrangian: Lagrangian,
    scores: Array,
    multipliers: Array,
    columns: Array,
    quadratic: Array,
    follows: Array | None = None,
) -> LeftOutValues:
    """Measure all inequalities on training rows and on left-out ones, from all labels, groups and scores.

    Parameters
    ----------
    columns
        (n, d): derivative of the scores in the variables that were solved for.
    quadratic
        (d, d): curvature of the regulariser.
    follows
        How far each row's score follows its own derivative, in all columns of all participants; None takes the
        leverage in `columns`.
    """
    rows, labels, point = lagrangian.constraints, lagrangian.labels, lagrangian.at(scores)
    bends = point.curvature(multipliers)
    holding = np.flatnonzero(multipliers.any(axis=0))
    surprise, slope = np.zeros((2, len(scores), len(holding)))
    for place, index in enumerate(holding):
        value, derivative = rows.rows[index].measure.value_and_derivative(lagrangian.loss, scores, labels)
        weight = rows.weighted(rows.weights[index][rows.stratum])
        slope[:, place] = weight * derivative
        # Rows of data with equal weights are in the same slice.
        part = np.unique(rows.weights[index], return_inverse=True)[1][rows.stratum]
        people = np.bincount(part, weights=rows.weighted(np.ones_like(value)))
        mean = np.bincount(part, weights=rows.weighted(value)) / np.maximum(people, np.finfo(float).tiny)
        surprise[:, place] = weight * (value - mean[part])
    curvature = columns.T @ (columns * bends[:, None]) + quadratic
    response = Response.of(curvature, slope.T @ columns)
    alone: Array | None = None
    holding_back: Array | float = bends
    if follows is not None:
        holding_back = _mean_curvature(point.loss_curvature(), bends)
        alone = follows / holding_back
    nu = point.derivative(multipliers)
    without = scores + response.left_out(columns, nu, holding_back, surprise, alone)
    values, errors = rows.reported(labels, scores, lagrangian.loss)
    return LeftOutValues(values, errors, rows.reported(labels, without, lagrangian.loss)[0])


def _mean_curvature(of_loss: Array, bends: Array) -> float:
    """Return w̄. Rates may make some rows concave, but hardly all of them together."""
    least = float(of_loss.mean())
    return float(np.sqrt(least * max(float(bends.mean()), _LEAST_CURVED * least)))
