"""What a client minimises on a batch, as a derivative in the scores (needs the `torch` extra).

The papers' local objectives differ only in how strongly they pull at slice means. A pull at a mean is a weight on the
rows of its slice, so one formula gives the derivative in every row's score, for any constraint, and the network only
has to carry it back to the weights. Everything has a first axis for clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.constraints.measures import Measure
from evenhand.horizontal.averaging.bound_tensors import BoundTensors
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.options import RoundSettings
from evenhand.horizontal.slice_means import SliceMeans


def loss_value(scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    """Logistic loss for labels of ±1, softmax cross-entropy for class indices."""
    if classes is None:
        return torch.nn.functional.softplus(-labels * scores)
    chosen = scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return torch.logsumexp(scores, dim=-1) - chosen


def loss_slope(scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    if classes is None:
        return torch.sigmoid(labels * -scores).mul_(labels).neg_()
    slope = torch.softmax(scores, dim=-1)
    return slope.scatter_add_(-1, labels.unsqueeze(-1), torch.full_like(slope[..., :1], -1.0))


def measured(measure: Measure, scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    """φ(z, y) on each row."""
    if measure.name == "loss":
        return loss_value(scores, labels, classes)
    direction = -labels if measure.name == "error" else 1.0
    return torch.sigmoid(direction * scores / measure.temperature)


def measure_slope(measure: Measure, scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    """∂φ/∂z on each row."""
    if measure.name == "loss":
        return loss_slope(scores, labels, classes)
    direction = -labels if measure.name == "error" else torch.ones_like(labels)
    rate = torch.sigmoid(direction * scores / measure.temperature)
    return rate * (1.0 - rate) * direction / measure.temperature


def spread(weights: Tensor, slope: Tensor) -> Tensor:
    """One weight a row times the slope in the row's one score or several."""
    return weights * slope if slope.ndim == weights.ndim else weights.unsqueeze(-1) * slope


@dataclass(frozen=True, eq=False)
class Batches:
    """An epoch's batches, padded to (steps, clients, rows), and what follows from them alone.

    Attributes
    ----------
    weights
        1/|B| for rows of the batch, zero for padding.
    pulls
        (steps, clients, R, rows): what a row of data contributes to each constraint row, Σ a_s / |s ∩ B| over the
        constraint row's slices; all zero where the batch lacks one of them.
    bulk
        The same with |a_s| in place of a_s, summed over the constraint rows of each measure: (steps, clients, measures,
        rows); None unless slice means are weighted themselves.
    valid
        (steps, clients, R): one where the batch has all slices of the constraint row, zero where it lacks one.
    """

    labels: Tensor
    weights: Tensor
    pulls: Tensor
    bulk: Tensor | None
    valid: Tensor


class LocalObjective:
    """mean loss + Σ_rows pull over slice means, on batches of several clients at once."""

    def __init__(self, rows: SliceMeans, formulation: Formulation, classes: int | None) -> None:
        self.classes = classes
        self.formulation = formulation
        self.rows = len(rows.constraint_rows)
        self.coefficients = torch.from_numpy(rows.coefficients).float()
        self.measures = {measure: torch.from_numpy(indices) for measure, indices in rows.row_measures.items()}
        self.needed = (self.coefficients != 0).float()
        self._bounds = BoundTensors(rows.bounds)

    def batches(
        self, labels: Tensor, membership: Tensor, numbers: Tensor, inside: Tensor, slice_weight: float = 0.0
    ) -> Batches:
        """Gather what the epoch's batches need: everything that does not depend on the weights, in a few calls."""
        flat, shape = numbers.reshape(-1), numbers.shape
        weights = inside / inside.sum(dim=2, keepdim=True).clamp_(min=1.0)
        chosen = labels.index_select(0, flat).view(shape)
        if self.rows == 0:
            nothing = torch.zeros((*shape[:2], 0))
            return Batches(chosen, weights, nothing.unsqueeze(3), None, nothing)
        members = membership.index_select(0, flat).view(*shape, -1).transpose(2, 3) * inside.unsqueeze(2)
        counts = members.sum(dim=3)
        shares = members * torch.where(counts > 0, 1.0 / counts.clamp(min=1.0), 0.0).unsqueeze(3)
        valid = ((counts == 0).float() @ self.needed.T == 0).float()
        pulls = _over_parts(self.coefficients, shares) * valid.unsqueeze(3)
        bulk = None
        if slice_weight:
            each = _over_parts(self.coefficients.abs(), shares) * valid.unsqueeze(3)
            bulk = torch.stack([each[:, :, rows].sum(dim=2) for rows in self.measures.values()], dim=2)
        return Batches(chosen, weights, pulls, bulk, valid)

    def derivative(
        self,
        scores: Tensor,
        batches: Batches,
        step: int,
        multipliers: Tensor,
        settings: RoundSettings,
        values: Tensor | None = None,
    ) -> Tensor:
        """∂L/∂z of FairFedAvgALM Eq. 10 (or of other methods' objectives) for the first clients and rows of a step.

        Parameters
        ----------
        scores
            (clients, rows) or (clients, rows, classes); fewer clients or rows than the batches have are the first ones.
        multipliers
            (clients, L).
        values
            The constraint rows' values, if they are known already.
        """
        clients, rows = scores.shape[:2]
        labels, weights = batches.labels[step, :clients, :rows], batches.weights[step, :clients, :rows]
        slope = loss_slope(scores, labels, self.classes)
        if self.rows == 0:
            return spread(weights, slope)
        pulls = batches.pulls[step, :clients, :, :rows]
        if values is None and self.formulation.needs_values(settings):
            values = self._values(scores, labels, pulls)
        tilts = self.formulation.push(values, multipliers, self._bounds, settings).unsqueeze(2) * pulls
        others: list[Tensor] = []
        for place, (measure, indices) in enumerate(self.measures.items()):
            tilt = (tilts if len(self.measures) == 1 else tilts[:, indices]).sum(dim=1)
            if batches.bulk is not None:
                tilt = tilt + settings.slice_weight * batches.bulk[step, :clients, place, :rows]
            if measure.name == "loss":
                weights = weights + tilt
            else:
                others.append(spread(tilt, measure_slope(measure, scores, labels, self.classes)))
        return sum(others, spread(weights, slope))

    def values(self, scores: Tensor, batches: Batches, step: int) -> Tensor:
        """(clients, R): the constraint rows' values on the batches of a step; zero where a batch lacks a slice."""
        clients, rows = scores.shape[:2]
        labels, pulls = batches.labels[step, :clients, :rows], batches.pulls[step, :clients, :, :rows]
        return self._values(scores, labels, pulls)

    def _values(self, scores: Tensor, labels: Tensor, pulls: Tensor) -> Tensor:
        if len(self.measures) == 1:
            (measure,) = self.measures
            return (measured(measure, scores, labels, self.classes).unsqueeze(1) * pulls).sum(dim=2)
        values = torch.empty(pulls.shape[:2])
        for measure, indices in self.measures.items():
            value = measured(measure, scores, labels, self.classes).unsqueeze(1)
            values[:, indices] = (value * pulls[:, indices]).sum(dim=2)
        return values


def _over_parts(coefficients: Tensor, shares: Tensor) -> Tensor:
    """From (steps, clients, P, rows) to (steps, clients, R, rows); one product for each batch, whoever has another."""
    pulls = torch.empty((*shares.shape[:2], len(coefficients), shares.shape[3]))
    np.matmul(coefficients.numpy(), shares.numpy(), out=pulls.numpy())
    return pulls


def as_labels(labels: np.ndarray, classes: int | None) -> Tensor:
    """±1 as numbers, class indices as integers."""
    return torch.from_numpy(labels.astype(np.float32 if classes is None else np.int64))
