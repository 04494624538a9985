"""Compute ∇P of several clients' logistic losses under inequalities, each at its own point, in stacked operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array
from evenhand.programs.slices import SliceProgram

LARGEST = 700.0
"""Above this, the logistic loss equals its argument, and exp would overflow."""


class StackedSlices:
    """Programs with equal numbers of rows of data, `bounded_rows`, weights and scalar constraints.

    The first axis of all arrays is that of the programs. Rows of data are multiplied by −y, so losses are functions of
    one number. Rows of data in constraints come first, because only they need the loss itself.

    Attributes
    ----------
    size, sides, most
        Numbers of weights, scalar constraints and rows of data in constraints, padded to be even.
    """

    def __init__(self, programs: Sequence[SliceProgram]) -> None:
        orders = [np.argsort(~program.combinations.any(axis=0), kind="stable") for program in programs]
        both, most = list(zip(programs, orders, strict=True)), bounded_rows(programs[0])
        self.features = stacked([-p.labels[order, None] * p.features[order] for p, order in both])
        self.objective = stacked([p.objective[order] for p, order in both])
        self.regulariser = stacked([p.regulariser for p in programs])
        self.scalar = stacked([p.own.sign[:, None] * p.combinations[p.own.row][:, order[:most]] for p, order in both])
        self.bound = stacked([p.own.sign * p.own.bound for p in programs])
        self.size = self.features.shape[2]
        self.sides, self.most = self.scalar.shape[1:]

    def gradients(self, points: Array, multipliers: Array, centres: Array, penalty: float, proximity: float) -> Array:
        """Return ∇P_i (proximal AL Eq. 14) of each client."""
        scores = (self.features @ points[:, :, None])[:, :, 0]
        far = float(scores.max()) > LARGEST
        tail = np.exp(np.minimum(scores, LARGEST) if far else scores)
        losses = np.log1p(tail[:, : self.most])
        if far:
            losses += np.maximum(scores[:, : self.most] - LARGEST, 0.0)
        excess = (self.scalar @ losses[:, :, None])[:, :, 0] - self.bound
        pushed = np.maximum(multipliers + penalty * excess, 0.0)
        slopes = np.add(tail, 1.0, out=scores)
        np.divide(tail, slopes, out=slopes)
        tilt = (pushed[:, None, :] @ self.scalar)[:, 0]
        tilt *= slopes[:, : self.most]
        slopes *= self.objective
        slopes[:, : self.most] += tilt
        found: Array = (slopes[:, None, :] @ self.features)[:, 0]
        found += self.regulariser * points
        found += proximity * (points - centres)
        return found


def bounded_rows(program: SliceProgram) -> int:
    """Return the number of rows of data in constraints, rounded up to a quarter of all, so that few clients differ."""
    rows, bounded = len(program.labels), int(program.combinations.any(axis=0).sum())
    return -(-rows * -(-4 * bounded // max(rows, 1)) // 4)


def stacked(arrays: Sequence[Array]) -> Array:
    """Stack arrays, zero-padded to even sizes along each axis, so that each begins at a multiple of 16 bytes."""
    shape = np.shape(arrays[0])
    found: Array = np.zeros((len(arrays), *(size + size % 2 for size in shape)))
    found[:, *(slice(size) for size in shape)] = arrays
    return found
