"""Compute the derivative of a client's objective on a batch with respect to the scores (needs the `torch` extra).

The local objectives of the papers differ only in the force on slice means. A force on a mean is a weight on the rows of
its slice. So one formula gives the derivative with respect to every row's score, for any constraint, and the network
only propagates it back to the weights. All tensors have a first axis for clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.arrays import Array
from evenhand.constraints.losses import Measure
from evenhand.horizontal.averaging.bound_tensors import BoundTensors
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.options import RoundSettings
from evenhand.horizontal.summaries import SliceMeans


def loss_value(scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    """Return the logistic loss for labels of ±1, or the softmax cross-entropy for class indices."""
    if classes is None:
        return torch.nn.functional.softplus(-labels * scores)
    chosen = scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return torch.logsumexp(scores, dim=-1) - chosen


def loss_slope(scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    if classes is None:
        against = -labels
        return torch.sigmoid(against * scores).mul_(against)
    slope = torch.softmax(scores, dim=-1)
    return slope.scatter_add_(-1, labels.unsqueeze(-1), torch.full_like(slope[..., :1], -1.0))


def loss_value_and_slope(scores: Tensor, labels: Tensor, classes: int | None) -> tuple[Tensor, Tensor]:
    """Return loss and derivative, sharing intermediate results: calls cost more than arithmetic on a batch."""
    if classes is not None:
        return loss_value(scores, labels, classes), loss_slope(scores, labels, classes)
    against = -labels
    exponents = against * scores
    return torch.nn.functional.softplus(exponents), exponents.sigmoid_().mul_(against)


def measured(measure: Measure, scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    """Return φ(z, y) of each row."""
    if measure.name == "loss":
        return loss_value(scores, labels, classes)
    direction = -labels if measure.name == "error" else 1.0
    return torch.sigmoid(direction * (scores - measure.cut) / measure.temperature)


def measure_slope(measure: Measure, scores: Tensor, labels: Tensor, classes: int | None) -> Tensor:
    """Return ∂φ/∂z of each row."""
    if measure.name == "loss":
        return loss_slope(scores, labels, classes)
    direction = -labels if measure.name == "error" else torch.ones_like(labels)
    rate = torch.sigmoid(direction * (scores - measure.cut) / measure.temperature)
    return rate * (1.0 - rate) * direction / measure.temperature


def spread(weights: Tensor, slope: Tensor) -> Tensor:
    """Multiply one weight a row with the derivative with respect to the row's score or scores."""
    return weights * slope if slope.ndim == weights.ndim else weights.unsqueeze(-1) * slope


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of an epoch, padded to (steps, clients, rows), and tensors that depend on them alone.

    All but `valid` are tuples of tensors, one for each step: slicing a tensor costs as much as a sum over it.

    Attributes
    ----------
    weights
        1/|B| for rows of the batch, zero for padding.
    pulls
        (clients, R, rows): coefficient of a row of data in each inequality, Σ a_s / |s ∩ B| over the slices of the
        inequality. All are zero if the batch has no rows in one of the slices.
    bulk
        The same with |a_s| instead of a_s, summed over the inequalities of each measure: (clients, measures, rows).
        Empty unless slice means have a weight of their own.
    valid
        (steps, clients, R): 1 if the batch has rows in all slices of the inequality, else 0.
    against, signed, signed_pulls
        −y, and weights and pulls times it, if the logistic loss is the only measure; else empty.
    """

    labels: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    pulls: tuple[Tensor, ...]
    bulk: tuple[Tensor, ...]
    valid: Tensor
    against: tuple[Tensor, ...] = ()
    signed: tuple[Tensor, ...] = ()
    signed_pulls: tuple[Tensor, ...] = ()


class LocalObjective:
    """Mean loss + Σ force on inequalities over slice means, on batches of several clients at once."""

    def __init__(self, rows: SliceMeans, formulation: Formulation, classes: int | None) -> None:
        self.classes = classes
        self.formulation = formulation
        self.rows = len(rows.inequalities)
        self.coefficients = torch.from_numpy(rows.coefficients).float()
        self.measures = {measure: torch.from_numpy(indices) for measure, indices in rows.row_measures.items()}
        self._uses: list[list[int]] = self.coefficients.nonzero().tolist()
        self._bounds = BoundTensors(rows.bounds)
        self._plain = classes is None and all(measure.name == "loss" for measure in self.measures)

    def batches(
        self,
        labels: Tensor,
        membership: Tensor,
        numbers: Tensor,
        inside: Tensor,
        slice_weight: float = 0.0,
        emphasis: Tensor | None = None,
    ) -> Batches:
        """Compute all tensors of an epoch's batches that do not depend on the weights, in a few calls.

        `emphasis` is the weight of each row in the mean loss, (clients, all rows); None if rows count alike.
        """
        flat, shape = numbers.reshape(-1), numbers.shape
        weights = inside / inside.sum(dim=2, keepdim=True).clamp_(min=1.0)
        if emphasis is not None:
            weights = weights * torch.stack([own[numbers[:, place]] for place, own in enumerate(emphasis)], dim=1)
        chosen = labels.index_select(0, flat).view(shape)
        plain = self._plain and not slice_weight
        against = -chosen if plain else torch.zeros((0, *shape[1:]))
        known = (against.unbind(), (weights * against).unbind()) if plain else ((), ())
        if self.rows == 0:
            return Batches(chosen.unbind(), weights.unbind(), (), (), torch.zeros((*shape[:2], 0)), *known)
        members = membership.T.index_select(1, flat).view(-1, *shape).mul_(inside)
        counts = members.sum(dim=3)
        valid = torch.ones((self.rows, *shape[:2]))
        for row, part in self._uses:
            valid[row].mul_(counts[part] > 0)
        shares = counts.clamp_(min=1.0).reciprocal_()
        pulls = self._over_parts(self.coefficients, members, shares, valid)
        bulk: tuple[Tensor, ...] = ()
        if slice_weight:
            each = self._over_parts(self.coefficients.abs(), members, shares, valid)
            bulk = torch.stack([each[:, :, rows].sum(dim=2) for rows in self.measures.values()], dim=2).unbind()
        signed = (pulls * against.unsqueeze(2)).unbind() if plain else ()
        found = (chosen.unbind(), weights.unbind(), pulls.unbind(), bulk, valid.permute(1, 2, 0))
        return Batches(*found, *known, signed)

    def _over_parts(self, coefficients: Tensor, members: Tensor, shares: Tensor, valid: Tensor) -> Tensor:
        """Map (P, steps, clients, rows) to (steps, clients, R, rows); an inequality uses few of the P parts."""
        steps, clients, rows = members.shape[1:]
        pulls = torch.zeros((steps, clients, self.rows, rows))
        for row, part in self._uses:
            each = valid[row] * shares[part] * coefficients[row, part]
            pulls[:, :, row].addcmul_(members[part], each.unsqueeze(2))
        return pulls

    def derivative(
        self,
        scores: Tensor,
        batches: Batches,
        step: int,
        multipliers: Tensor,
        settings: RoundSettings,
        tally: Tally | None = None,
    ) -> Tensor:
        """Return ∂L/∂z of FairFedAvgALM Eq. 10 (or of other objectives) for the first clients and rows of a step.

        Parameters
        ----------
        scores
            (clients, rows) or (clients, rows, classes). If there are fewer clients or rows than in the batches, they
            are the first ones.
        multipliers
            (clients, L).
        tally
            Collects the values of the inequalities.
        """
        if batches.against:
            return self._plain_derivative(scores, batches, step, multipliers, settings, tally)
        labels, weights = _first(batches.labels[step], scores), _first(batches.weights[step], scores)
        if self.rows == 0:
            return spread(weights, loss_slope(scores, labels, self.classes))
        pulls, values = _first(batches.pulls[step], scores), None
        if tally is None and not self.formulation.needs_values(settings):
            slope = loss_slope(scores, labels, self.classes)
        else:
            loss, slope = loss_value_and_slope(scores, labels, self.classes)
            values = self._values(loss, scores, labels, pulls)
            if tally is not None:
                tally.add(values)
        push = self.formulation.push(values, multipliers, self._bounds, settings)
        others: list[Tensor] = []
        for place, (measure, indices) in enumerate(self.measures.items()):
            some = len(self.measures) > 1
            own, parts = (push[:, indices], pulls[:, indices]) if some else (push, pulls)
            of_loss = measure.name == "loss"
            tilt = _add_tilt(weights if of_loss else torch.zeros(()), own, parts)
            if batches.bulk:
                tilt = tilt + settings.slice_weight * _first(batches.bulk[step], scores)[:, place]
            if of_loss:
                weights = tilt
            else:
                others.append(spread(tilt, measure_slope(measure, scores, labels, self.classes)))
        return sum(others, spread(weights, slope))

    def _plain_derivative(
        self,
        scores: Tensor,
        batches: Batches,
        step: int,
        multipliers: Tensor,
        settings: RoundSettings,
        tally: Tally | None,
    ) -> Tensor:
        """Return the derivative if the logistic loss is the only measure, with fewer calls."""
        exponents, weights = _first(batches.against[step], scores) * scores, _first(batches.signed[step], scores)
        if self.rows == 0:
            return exponents.sigmoid_().mul_(weights)
        values = None
        if tally is not None or self.formulation.needs_values(settings):
            values = _products(_first(batches.pulls[step], scores), torch.nn.functional.softplus(exponents))
            if tally is not None:
                tally.add(values)
        push = self.formulation.push(values, multipliers, self._bounds, settings)
        return _add_tilt(weights, push, _first(batches.signed_pulls[step], scores)).mul_(exponents.sigmoid_())

    def _values(self, loss: Tensor, scores: Tensor, labels: Tensor, pulls: Tensor) -> Tensor:
        """Return (clients, R): the constraint values on the batches of a step; zero if a batch lacks a slice."""
        if len(self.measures) == 1:
            (measure,) = self.measures
            return _products(pulls, loss if measure.name == "loss" else measured(measure, scores, labels, self.classes))
        values = torch.empty(pulls.shape[:2])
        for measure, indices in self.measures.items():
            each = loss if measure.name == "loss" else measured(measure, scores, labels, self.classes)
            values[:, indices] = _products(pulls[:, indices], each)
        return values


class Tally:
    """Sum of the constraint values on the batches of a round, for each client."""

    def __init__(self, clients: int, rows: int) -> None:
        self._sums, self._counts = torch.zeros((clients, rows)), torch.zeros((clients, rows))

    def expect(self, batches: Batches) -> None:
        """Register an epoch's batches, before their values are added."""
        self._counts += batches.valid.sum(dim=0)

    def add(self, values: Tensor) -> None:
        """Add the values of a step's batches, for the first clients."""
        self._sums[: len(values)].add_(values)

    def means(self) -> Array:
        """Return the means over the batches with rows in all slices of an inequality; NaN if there are none."""
        return (self._sums.double() / self._counts.double()).numpy()


def _first(part: Tensor, scores: Tensor) -> Tensor:
    """Return the part for the first clients and rows, those with scores."""
    clients, rows = scores.shape[:2]
    whole = part.shape[0] == clients and part.shape[-1] == rows
    return part if whole else part[:clients, ..., :rows]


def _products(pulls: Tensor, each: Tensor) -> Tensor:
    """Return (clients, R) with numpy, which multiplies client after client (`models/stacked.py`)."""
    return torch.from_numpy(np.matmul(pulls.numpy(), each.unsqueeze(2).numpy())[:, :, 0])


def _add_tilt(weights: Tensor, push: Tensor, pulls: Tensor) -> Tensor:
    """Return (clients, rows): the weights plus Σ over inequalities of the force times the row's coefficient."""
    if pulls.shape[1] == 1:
        return torch.addcmul(weights, push, pulls[:, 0])
    return weights + (push.unsqueeze(2) * pulls).sum(dim=1)


def as_labels(labels: np.ndarray, classes: int | None) -> Tensor:
    """Return labels of ±1 as floats, or class indices as integers."""
    return torch.from_numpy(labels.astype(np.float32 if classes is None else np.int64))
