"""Train all clients of one process together: their rows in one tensor, small networks side by side.

This lowers the cost of a simulation and changes nothing else. Each client has its own mini-batches, in an order drawn
from the job's seed, its name and the round, and trains its own copy of the weights. In a deployment, a process has one
client. On the same machine it gives the same numbers, bit for bit, as among many: nothing here, not even the padding of
batches, depends on the other clients. Perceptrons are trained with one thread. Other modules use all threads of torch,
so their last digits may differ with the number of cores. (Needs the `torch` extra.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evenhand.arrays import Array, Integers
from evenhand.errors import InputError
from evenhand.horizontal.averaging.client import Measured
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.local_objective import Batches, LocalObjective, Tally
from evenhand.horizontal.averaging.measuring import LocalData, Measuring
from evenhand.horizontal.averaging.options import AveragingOptions, RoundSettings
from evenhand.horizontal.averaging.rounds import Trained, TrainRequest
from evenhand.horizontal.problem import ClientRows, Single, generator
from evenhand.horizontal.summaries import SliceMeans
from evenhand.models.networks import Network, seeded
from evenhand.models.stacked import LANES, Passes, StackedPerceptron, one_thread, whole_lanes

LEAST_STEPS: Final = 20
"""Fewest steps in a round if `local_epochs` is automatic."""


@dataclass(frozen=True)
class Batching:
    """Mini-batches of one client.

    Attributes
    ----------
    first, size
        Index of the client's first row among those of the process, and its number of rows.
    batch
        |B|: rows of a full batch.
    padded
        Rows of a batch with padding. Clients that train side by side must have the same.
    steps
        Batches of an epoch, ⌈n / |B|⌉.
    epochs
        Passes over the rows in a round.
    strata
        For batches with equal numbers of each: the client's own row numbers of every combination of slices. Empty if
        rows are shuffled.
    """

    first: int
    size: int
    batch: int
    padded: int
    steps: int
    epochs: int
    strata: tuple[Integers, ...] = ()

    @classmethod
    def of(cls, rows: slice, batch_size: int | None, epochs: int | Literal["auto"] = 1, *, lone_rows: bool) -> Batching:
        """Return the batches of a client with these rows.

        Parameters
        ----------
        epochs
            ``"auto"`` takes as many as give `LEAST_STEPS`.
        lone_rows
            Whether the last batch may have a single row; if not, that row is left out of the epoch.
        """
        size = rows.stop - rows.start
        batch = size if batch_size is None else min(batch_size, size)
        whole, last = divmod(size, batch)
        steps = whole + (last > 1 or (last == 1 and lone_rows))
        passes = -(-LEAST_STEPS // max(steps, 1)) if epochs == "auto" else epochs
        return cls(rows.start, size, batch, _padded(size, batch_size), steps, passes)

    def with_equal(self, membership: npt.NDArray[np.float32]) -> Batching:
        """Return batches with equal numbers of rows of each combination of slices (FairFedAvgALM Lemma 4.1).

        Parameters
        ----------
        membership
            (n, P): 1 if a row is in the slice of a part of the inequalities.
        """
        _, place = np.unique(membership, axis=0, return_inverse=True)
        strata = tuple(np.flatnonzero(place == one) for one in range(int(place.max()) + 1))
        share = self.batch // len(strata)
        if share == 0:
            raise InputError(
                f"batches are of {self.batch} rows, and a client has rows of {len(strata)} combinations of slices; "
                "choose a larger batch_size, or batches 'shuffled'"
            )
        return replace(self, batch=share * len(strata), strata=strata)

    def equal(self, draw: np.random.Generator) -> Integers:
        """Return (steps, batch): the client's own row numbers of an epoch's equal batches."""
        share = self.batch // len(self.strata)
        wanted = self.steps * share
        parts = []
        for rows in self.strata:
            passes = [draw.permutation(rows) for _ in range(-(-wanted // len(rows)))]
            parts.append(np.concatenate(passes)[:wanted].reshape(self.steps, share))
        return np.hstack(parts)


def _padded(size: int, batch_size: int | None) -> int:
    """Round the batch size up to whole lanes, so that other clients do not change how a row is rounded.

    Similar sizes become equal, with at most a quarter more rows, because only batches of equal size train together.
    """
    alike = max(LANES, 2 ** (size.bit_length() - 3))
    padded = -(-size // alike) * alike
    return padded if batch_size is None else min(padded, whole_lanes(batch_size))


def deal(clients: Sequence[Batching], draws: Sequence[np.random.Generator]) -> tuple[Integers, npt.NDArray[np.float32]]:
    """Return (steps, clients, padded): row numbers of an epoch's batches, and 1 for real rows or 0 for padding."""
    shape = (max(client.steps for client in clients), len(clients), clients[0].padded)
    numbers, inside = np.empty(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for place, (client, draw) in enumerate(zip(clients, draws, strict=True)):
        # Padding repeats one of the client's own rows, with weight zero.
        numbers[:, place] = client.first
        if client.strata:
            numbers[: client.steps, place, : client.batch] = client.first + client.equal(draw)
            inside[: client.steps, place, : client.batch] = 1.0
            continue
        drawn = client.first + draw.permutation(client.size)
        whole, batch = client.size // client.batch, client.batch
        numbers[:whole, place, :batch] = drawn[: whole * batch].reshape(whole, batch)
        inside[:whole, place, :batch] = 1.0
        if client.steps > whole:
            rest = client.size - whole * batch
            numbers[whole, place, :rest] = drawn[whole * batch :]
            inside[whole, place, :rest] = 1.0
    return numbers, inside


# Most numbers in one step's batches of all clients that train together; more would not fit the processor's cache.
_STACKED_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class Correction:
    """What a method adds to every local gradient: μ (w − w_t) and a constant vector.

    Attributes
    ----------
    anchor
        w_t of each client.
    """

    proximity: float
    anchor: Tensor
    shift: Tensor | None

    @classmethod
    def of(
        cls, requests: Sequence[TrainRequest], settings: RoundSettings, flat: Tensor, stacked: StackedPerceptron
    ) -> Correction | None:
        shifts = [request.shift for request in requests if request.shift is not None]
        if not settings.proximity and not shifts:
            return None
        return cls(settings.proximity, flat.clone(), stacked.stack(shifts) if shifts else None)

    def add_to(self, gradient: Tensor, weights: Tensor) -> None:
        """Add to the gradients of the first clients."""
        active = len(weights)
        if self.proximity:
            gradient.add_(weights - self.anchor[:active], alpha=self.proximity)
        if self.shift is not None:
            gradient.add_(self.shift[:active])


class BatchedClients:
    """Train all clients that have noted the same round together, and return each client's result on request.

    Parameters
    ----------
    regulariser
        μ of (μ/2)‖w‖².
    """

    def __init__(
        self,
        clients: Sequence[ClientRows],
        rows: SliceMeans,
        formulation: Formulation,
        network: Network,
        options: AveragingOptions,
        seed: int,
        regulariser: float,
    ) -> None:
        self.network = network
        self.options = options
        self.seed = seed
        self.regulariser = regulariser
        self.data = LocalData(clients, rows)
        self.objective = LocalObjective(rows, formulation, network.classes)
        self.measuring = Measuring(self.data, rows, network)
        self._check_normalisation(clients)
        self._batching = {
            name: Batching.of(place, options.batch_size, options.local_epochs, lone_rows=not network.normalises_batches)
            for name, place in self.data.places.items()
        }
        if options.batches == "equal-slices":
            if not rows.parts:
                raise InputError("batches is 'equal-slices', but no constraint names slices; choose 'shuffled'")
            members = self.data.membership.numpy()
            self._batching = {
                name: made.with_equal(members[self.data.places[name]]) for name, made in self._batching.items()
            }
        self._requests: dict[str, TrainRequest] = {}
        self._results: dict[str, Trained] = {}

    def _check_normalisation(self, clients: Sequence[ClientRows]) -> None:
        lonely = [client.name for client in clients if client.n_rows == 1 or self.options.batch_size == 1]
        if self.network.normalises_batches and lonely:
            raise InputError(
                f"client {lonely[0]!r} has batches of one row; a model with batch normalisation cannot train on them; "
                "leave the client out, or choose another model or batch_size"
            )

    def note(self, request: TrainRequest) -> None:
        self._requests[request.name] = request
        self._results.pop(request.name, None)

    def train(self, name: str) -> Trained:
        if name not in self._results:
            wanted = self._requests[name].round
            requests = [request for _, request in sorted(self._requests.items()) if request.round == wanted]
            self._train_all(requests, self.options.settings(wanted))
            for request in requests:
                del self._requests[request.name]
        return self._results.pop(name)

    def _epoch(
        self, requests: Sequence[TrainRequest], draws: Sequence[np.random.Generator], settings: RoundSettings
    ) -> tuple[Tensor, Batches]:
        """Return the row numbers of an epoch's batches, (steps, clients, rows), and the objective's tensors."""
        numbers, inside = map(torch.from_numpy, deal([self._batching[request.name] for request in requests], draws))
        data, added = self.data, [request.emphasis for request in requests if request.emphasis is not None]
        emphasis = None
        if added:
            emphasis = 1.0 + torch.from_numpy(np.stack(added)).float() @ data.membership.T
        return numbers, self.objective.batches(
            data.labels, data.membership, numbers, inside, settings.slice_weight, emphasis
        )

    # -- training

    def _train_all(self, requests: Sequence[TrainRequest], settings: RoundSettings) -> None:
        stacked = self.network.stacked if self.options.optimizer == "sgd" else None
        if stacked is None:
            for request in requests:
                self._results[request.name] = self._train_one(request, settings)
            return
        # Clients with most batches come first, so the clients still training in later steps are the first ones.
        queue = sorted(requests, key=lambda request: (*self._alike(request), -self._steps(request), request.name))
        with one_thread():
            for _, alike in groupby(queue, key=self._alike):
                members = list(alike)
                at_once = max(1, _STACKED_AT_ONCE // (self._padded(members[0]) * math.prod(self.network.shape)))
                for first in range(0, len(members), at_once):
                    self._train_stack(members[first : first + at_once], settings, stacked)

    def _alike(self, request: TrainRequest) -> tuple[int, int]:
        """Return what clients must share to train side by side: the padded batch size and the number of epochs."""
        return -self._padded(request), self._batching[request.name].epochs

    def epochs(self, name: str) -> int:
        return self._batching[name].epochs

    def _padded(self, request: TrainRequest) -> int:
        return self._batching[request.name].padded

    def _steps(self, request: TrainRequest) -> int:
        return self._batching[request.name].steps

    def _train_stack(
        self, requests: Sequence[TrainRequest], settings: RoundSettings, stacked: StackedPerceptron
    ) -> None:
        flat = stacked.stack([request.weights for request in requests])
        correction = Correction.of(requests, settings, flat, stacked)
        multipliers = torch.from_numpy(np.stack([request.multipliers for request in requests])).float()
        gradient = torch.zeros_like(flat)
        draws = [generator(self.seed, request.name, request.round, "batches") for request in requests]
        steps, rows = [self._steps(request) for request in requests], self._padded(requests[0])
        tally = Tally(len(requests), self.objective.rows) if self._tallies else None
        for _ in range(self.epochs(requests[0].name)):
            numbers, batches = self._epoch(requests, draws, settings)
            if tally is not None:
                tally.expect(batches)
            active = 0
            for step in range(max(steps)):
                left = sum(count > step for count in steps)
                if left != active:
                    active, now, slope = left, flat[:left], gradient[:left]
                    passes = Passes(stacked, now, rows, slope)
                features = self.data.features.index_select(0, numbers[step, :active].reshape(-1))
                outputs = passes.forward(features.view(active, rows, -1))
                scores = self.network.as_scores(outputs)
                pull = self.objective.derivative(scores, batches, step, multipliers[:active], settings, tally)
                passes.backward(self.network.as_outputs(pull, outputs.shape[-1]))
                if correction is not None:
                    correction.add_to(slope, now)
                self._descend(now, slope, settings.step)
        means = None if tally is None else tally.means()
        for place, (request, weights) in enumerate(zip(requests, flat[:, : stacked.size].numpy(), strict=True)):
            values = self._values(request.name, weights, request.statistics) if means is None else means[place]
            self._results[request.name] = Trained(weights, request.statistics, values)

    @property
    def _tallies(self) -> bool:
        return self.options.dual_rows == "batches" and self.objective.rows > 0

    def _values(self, name: str, weights: Single, statistics: Single) -> Array:
        """Return the constraint values for the update of the multipliers, unless the batches have given them."""
        return self.measuring.row_values(name, weights, statistics) if self.objective.rows else np.zeros(0)

    def _descend(self, weights: Tensor, gradient: Tensor, step: float) -> None:
        """Update w ← w − η · clipped gradient, with each client's gradient clipped by its own norm."""
        if self.regulariser:
            gradient.add_(weights, alpha=self.regulariser)
        if self.options.clip is None:
            weights.sub_(gradient, alpha=step)
            return
        length = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        weights.addcmul_(gradient, (self.options.clip / length).clamp_(max=1.0), value=-step)

    def _train_one(self, request: TrainRequest, settings: RoundSettings) -> Trained:
        network = self.network
        network.load(request.weights, request.statistics)
        network.module.train()
        multipliers = torch.tensor(request.multipliers[None], dtype=torch.float32)
        draw = generator(self.seed, request.name, request.round, "batches")
        layers = generator(self.seed, request.name, request.round, "layers")
        crops = generator(self.seed, request.name, request.round, "crops")
        tally = Tally(1, self.objective.rows) if self._tallies else None
        adam = None
        if self.options.optimizer == "adam":
            # Its state begins anew in every round and stays at the client.
            adam = torch.optim.Adam(network.parameters, lr=settings.step, weight_decay=self.regulariser)
        with seeded(int(layers.integers(2**63))):
            for _ in range(self.epochs(request.name)):
                numbers, batches = self._epoch([request], [draw], settings)
                if tally is not None:
                    tally.expect(batches)
                for step, inside in enumerate(batches.weights):
                    filled = int((inside > 0).sum())
                    scores = network.scores(self.data.batch(request.name, numbers[step, 0, :filled], crops))
                    known = scores.detach().cpu()[None]
                    pull = self.objective.derivative(known, batches, step, multipliers, settings, tally)
                    pulled = pull[0].to(network.device)
                    gradients = torch.autograd.grad(scores, network.parameters, pulled, allow_unused=True)
                    if adam is None:
                        self._descend_parameters(gradients, settings.step)
                        continue
                    for parameter, slope in zip(network.parameters, gradients, strict=True):
                        parameter.grad = slope
                    adam.step()
        network.module.eval()
        weights, statistics = network.weights, network.statistics
        values = self._values(request.name, weights, statistics) if tally is None else tally.means()[0]
        return Trained(weights, statistics, values)

    def _descend_parameters(self, gradients: Sequence[Tensor | None], step: float) -> None:
        used = [(p, g) for p, g in zip(self.network.parameters, gradients, strict=True) if g is not None]
        with torch.no_grad():
            if self.regulariser:
                used = [(parameter, g + self.regulariser * parameter) for parameter, g in used]
            scale = 1.0
            if self.options.clip is not None:
                length = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for _, g in used])))
                scale = min(1.0, self.options.clip / length) if length > 0 else 1.0
            for parameter, slope in used:
                parameter.sub_(slope, alpha=step * scale)


class BatchedLearner:
    """Learner of one client; all clients of the process train behind it."""

    def __init__(self, clients: BatchedClients, name: str) -> None:
        self.clients = clients
        self.name = name
        self.n_rows = clients.data.count(name)
        self.effort = float(self.n_rows * clients.network.weights.size)
        self.epochs = clients.epochs(name)

    def note(self, request: TrainRequest) -> None:
        self.clients.note(request)

    def train(self) -> Trained:
        return self.clients.train(self.name)

    def measure(self, weights: Single, statistics: Single) -> Measured:
        return self.clients.measuring.measure(self.name, weights, statistics)

    def rates(self, weights: Single, statistics: Single) -> Mapping[str, npt.NDArray[np.int64]]:
        return self.clients.measuring.rates(self.name, weights, statistics)

    def gradient(self, weights: Single, statistics: Single, total_rows: int, tilt: Array) -> Single:
        return self.clients.measuring.gradient(self.name, weights, statistics, total_rows, tilt)
