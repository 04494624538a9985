"""Train locally with noise at every step, to protect single records (needs the `torch` extra).

A row's gradient depends on other rows only through values that were released with noise. It is the gradient of the
row's own loss and, for each of its slices, of the force of the inequalities times n over the slice's noisy count.
So one row changes a step only by its own clipped gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from evenhand.arrays import Array
from evenhand.errors import InputError
from evenhand.horizontal.averaging.batched import BatchedClients, BatchedLearner
from evenhand.horizontal.averaging.bound_tensors import BoundTensors
from evenhand.horizontal.averaging.local_objective import loss_slope, measure_slope, measured, spread
from evenhand.horizontal.averaging.options import RoundSettings
from evenhand.horizontal.averaging.rounds import Trained, TrainRequest
from evenhand.horizontal.problem import Purpose, Single, secret_generator
from evenhand.horizontal.summaries import SliceMeans
from evenhand.models.stacked import one_thread
from evenhand.privacy.record_level import RecordGaussian

_AT_ONCE = 2**24
"""Most numbers of per-row gradients that are held at a time."""
_ROOM = 1e-5
"""Margin for single precision: the true norm of a clipped gradient is below the bound, not only the computed one."""
_LACKING = 3.0
"""A slice counts as missing if its noisy count is below this many standard deviations of the noise, or below one."""


class RecordLearner(BatchedLearner):
    """Learner of one client, which trains separately from other clients.

    Parameters
    ----------
    secret
        The client's own seed of the noise and of the rows of each step. The ε holds only if nobody else knows it. None
        uses the job's seed.
    """

    def __init__(
        self,
        clients: BatchedClients,
        name: str,
        rows: SliceMeans,
        mechanism: RecordGaussian,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(clients, name)
        if clients.network.statistics.size:
            raise InputError(
                "the model has running statistics of its rows, which noise on gradients does not cover; replace "
                "BatchNorm by GroupNorm"
            )
        if clients.options.settings(1).slice_weight:
            raise InputError("record-level noise does not support this solver, which adds slice means to the objective")
        if rows.parts and mechanism.measure_clip is None:
            raise InputError("record-level noise under constraints needs measure_clip and dual_noise_multiplier")
        self._rows = rows
        self._mechanism = mechanism
        self._secret = secret
        self._bounds = BoundTensors(rows.bounds)
        self._request: TrainRequest | None = None
        self._deviation = np.sqrt(most_parts(rows)) * (mechanism.dual_noise_multiplier or 0.0)
        """Standard deviation of the noise on counts."""

    def note(self, request: TrainRequest) -> None:
        self._request = request

    def train(self) -> Trained:
        request, clients = self._request, self.clients
        assert request is not None
        self._request = None
        settings = clients.options.settings(request.round)
        asked = (request.weights, request.statistics, request.multipliers)
        noise = self._draws(request.round, "protection", *asked)
        chosen = self._draws(request.round, "batches", *asked)
        with one_thread():
            counts = self._counts()
            tilt = self._tilt(request, settings, counts, noise)
            clients.network.load(request.weights, request.statistics)
            clients.network.module.eval()
            for _ in range(self._mechanism.steps):
                rows = np.flatnonzero(chosen.random(self.n_rows) < self._mechanism.rate)
                self._step(rows, tilt, settings.step, noise)
            weights = clients.network.weights
            return Trained(weights, request.statistics, self._values(weights, request.statistics, counts, noise))

    def _draws(self, round_number: int, purpose: Purpose, *asked: Array | Single) -> np.random.Generator:
        return secret_generator(self._secret, self.clients.seed, self.name, round_number, purpose, *asked)

    # -- noisy slice means

    def _counts(self) -> Array:
        """Return noisy counts of the slices; the noise is equal in every round, so they are released once."""
        exact = self.clients.data.counts[self.name]
        drawn = self._draws(0, "protection").standard_normal(len(exact))
        counts = exact + self._deviation * drawn
        return np.where(counts >= max(1.0, _LACKING * self._deviation), counts, np.nan)

    def _values(self, weights: Single, statistics: Single, counts: Array, noise: np.random.Generator) -> Array:
        """Return the constraint values from noisy sums; NaN if a slice is missing."""
        if not self._rows.parts:
            return np.zeros(0)
        limit = self._mechanism.measure_clip
        assert limit is not None
        scores, labels, members = self.clients.measuring.evaluate(self.name, weights, statistics)
        sums = np.zeros(len(self._rows.parts))
        for measure, parts in self._rows.measures.items():
            values = measured(measure, scores, labels, self.clients.network.classes).clamp(max=limit)
            sums[parts] = (values @ members).numpy()[parts]
        sums += limit * self._deviation * noise.standard_normal(len(sums))
        needed = self._rows.coefficients != 0
        means = np.nan_to_num(sums / counts)
        return np.where((needed & np.isnan(counts)).any(axis=1), np.nan, self._rows.coefficients @ means)

    def _tilt(
        self, request: TrainRequest, settings: RoundSettings, counts: Array, noise: np.random.Generator
    ) -> Tensor:
        """Return (P,): the weight of a row of each part besides its own loss, times n."""
        if not self._rows.parts:
            return torch.zeros(0)
        values = self._values(request.weights, request.statistics, counts, noise)
        known = torch.from_numpy(np.nan_to_num(values)[None]).float()
        multipliers = torch.from_numpy(request.multipliers[None]).float()
        push = self.clients.objective.formulation.push(known, multipliers, self._bounds, settings)[0].double().numpy()
        weight = np.where(np.isnan(values), 0.0, push) @ self._rows.coefficients
        return torch.from_numpy(np.nan_to_num(weight * self.n_rows / counts)).float()

    # -- steps

    def _step(self, rows: np.ndarray, tilt: Tensor, step: float, noise: np.random.Generator) -> None:
        clients, mechanism = self.clients, self._mechanism
        total = self._shortened_sum(rows, tilt).double().numpy()
        total += mechanism.clip * mechanism.noise_multiplier * noise.standard_normal(len(total))
        gradient = total / (mechanism.rate * self.n_rows)
        weights = clients.network.weights
        moved = weights - step * (gradient + clients.regulariser * weights)
        clients.network.load(moved.astype(np.float32), np.zeros(0, dtype=np.float32))

    def _shortened_sum(self, rows: np.ndarray, tilt: Tensor) -> Tensor:
        """Return the sum of the rows' own gradients, each clipped to the bound."""
        network, data = self.clients.network, self.clients.data
        own, place = data.of(self.name), data.places[self.name]
        parameters = {name: one.detach() for name, one in network.module.named_parameters() if one.requires_grad}

        def pulled(at: Mapping[str, Tensor], features: Tensor, pull: Tensor) -> Tensor:
            outputs: Tensor = functional_call(network.module, dict(at), (features[None],))
            scores = outputs if outputs.ndim == 1 else network.as_scores(outputs)
            return (scores[0] * pull).sum()

        of_each_row = vmap(grad(pulled), in_dims=(None, 0, 0))
        total = torch.zeros(network.weights.size)
        size = max(1, _AT_ONCE // network.weights.size)
        for first in range(0, len(rows), size):
            chosen = rows[first : first + size]
            part = torch.from_numpy(place.start + chosen)
            features = network.as_input(own[chosen])
            pulls = self._pulls(network.evaluate(features), data.labels[part], data.membership[part], tilt)
            slopes = of_each_row(parameters, features, pulls.to(network.device))
            flat = torch.cat([slope.reshape(len(part), -1) for slope in slopes.values()], dim=1).cpu()
            # A row without a finite gradient adds nothing. An error would tell of it, and no noise covers that.
            flat = torch.where(flat.isfinite().all(dim=1, keepdim=True), flat, 0.0)
            lengths = torch.linalg.vector_norm(flat, dim=1)
            total += (self._mechanism.clip * (1 - _ROOM) / lengths).clamp(max=1.0) @ flat
        return total

    def _pulls(self, scores: Tensor, labels: Tensor, members: Tensor, tilt: Tensor) -> Tensor:
        """Return the derivative of each row's own objective with respect to its score or scores."""
        classes = self.clients.network.classes
        pulls = loss_slope(scores, labels, classes)
        for measure, parts in self._rows.measures.items():
            pulls = pulls + spread(members[:, parts] @ tilt[parts], measure_slope(measure, scores, labels, classes))
        return pulls


def most_parts(rows: SliceMeans) -> int:
    """Return the largest number of parts that one row can be in, for any label and groups, from the terms alone."""
    terms = rows.terms
    labels = [-1.0, 1.0] if terms.classes is None else [float(label) for label in range(terms.classes)]
    people = list(itertools.product(labels, *terms.groups.values()))
    columns = list(zip(*people, strict=True))
    groups = {name: np.array(values, dtype=object) for name, values in zip(terms.groups, columns[1:], strict=True)}
    return int(rows.inside(np.array(columns[0]), groups).sum(axis=1).max(initial=0))
