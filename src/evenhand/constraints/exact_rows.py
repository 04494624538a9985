"""Constraint rows as one would report them, with their standard errors, where all rows of data are at hand."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.confidence import mean_variance, rate_variance
from evenhand.constraints.losses import Logistic, Loss


def exact_rows(bound: BoundConstraints, labels: Array, scores: Array, loss: Loss | None = None) -> tuple[Array, Array]:
    """Each constraint row's exact value at these scores, and its standard error, for given sizes of the slices.

    Exact is the rate one would report for the measures ``"error"`` and ``"positive"``; a mean loss is exact as it is.
    """
    values, errors = np.zeros((2, len(bound)))
    for measure, places in bound.measures.items():
        is_loss = measure.name == "loss"
        measured: Array = (
            (loss or Logistic()).value(scores, labels) if is_loss else measure.exact(scores, labels).astype(np.float64)
        )
        values[places] = bound.row_values(measured, places)
        one = np.ones_like(measured)
        sums = [bound.cell_sums(values) for values in (one, measured, measured**2, bound.counted(one))]
        for place in places:
            # Rows of data that weigh the same in the row form a part; parts are disjoint even if its slices are not.
            weight, part = np.unique(bound.weights[place], return_inverse=True)
            people, hits, squared, squared_people = (np.bincount(part, weights=one) for one in sums)
            # People of one row of data are no evidence of each other: as many rows as would vary like these (Kish).
            alone = np.divide(people, squared_people, out=np.ones_like(people), where=squared_people > 0.0)
            rows, hits, squared = people * alone, hits * alone, squared * alone
            variance = mean_variance(hits, squared, rows) if is_loss else rate_variance(hits, rows)
            inside = weight != 0
            errors[place] = np.sqrt(np.sum((weight * people)[inside] ** 2 * variance[inside]))
    return values, errors
