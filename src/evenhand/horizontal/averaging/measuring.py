"""Evaluate a model on clients' rows: sums for history and certificate, rates, gradients (needs the `torch` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from evenhand.arrays import Array, dense
from evenhand.constraints.losses import Measure
from evenhand.errors import DataError
from evenhand.horizontal.averaging.client import Measured
from evenhand.horizontal.averaging.local_objective import as_labels, measure_slope, measured, spread
from evenhand.horizontal.problem import ClientRows, Single
from evenhand.horizontal.summaries import SliceMeans
from evenhand.models.networks import Network
from evenhand.models.pictures import Pictures
from evenhand.models.stacked import Passes, SparseRows, StackedPerceptron, one_thread

_LOSS = Measure("loss")
# Each client's first row begins on a boundary of 64 bytes. Otherwise some products would round differently, depending
# on the clients before it.
_ALIGNED_ROWS = 16


class LocalData:
    """Rows of all clients in concatenated tensors.

    Attributes
    ----------
    places
        Positions of each client's rows.
    membership
        (n, P): 1 if a row is in the slice of a part of the inequalities, else 0.
    counts
        Number of each client's rows in each of those slices.
    """

    def __init__(self, clients: Sequence[ClientRows], rows: SliceMeans) -> None:
        self.clients = {client.name: client for client in clients}
        self.places: dict[str, slice] = {}
        end = 0
        for client in clients:
            self.places[client.name] = slice(end, end + client.n_rows)
            end += -(-client.n_rows // _ALIGNED_ROWS) * _ALIGNED_ROWS
        classes = rows.terms.classes
        # Images are read lazily.
        self.pictures = {one.name: one.features for one in clients if isinstance(one.features, Pictures)}
        if self.pictures and len(self.pictures) < len(clients):
            raise DataError("some clients have images as bytes and some as numbers; give all of them in one form")
        self.features = torch.zeros((0 if self.pictures else end, *rows.terms.shape))
        self.labels = torch.zeros(end, dtype=torch.float32 if classes is None else torch.int64)
        # Stored slice by slice, in the order of the sums.
        self.membership = torch.zeros((len(rows.parts), end)).T
        self.counts: dict[str, Array] = {}
        for client in clients:
            place, inside = self.places[client.name], rows.membership(client)
            if not self.pictures:
                self.features.numpy()[place] = dense(client.features)
            self.labels[place] = as_labels(client.labels, classes)
            self.membership.numpy()[place] = inside
            self.counts[client.name] = inside.sum(axis=0).astype(np.float64)

    def count(self, name: str) -> int:
        return self.clients[name].n_rows

    def of(self, name: str) -> Tensor | PictureTensors:
        """Return a client's rows."""
        return PictureTensors(self.pictures[name]) if self.pictures else self.features[self.places[name]]

    def batch(self, name: str, numbers: Tensor, crops: np.random.Generator) -> Tensor:
        """Return some of a client's rows for training, by their numbers among all rows."""
        if not self.pictures:
            return self.features[numbers]
        return torch.from_numpy(self.pictures[name].drawn(numbers.numpy() - self.places[name].start, crops))


class PictureTensors:
    """Images that become tensors of bytes on access."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self._pictures[rows])


class Measuring:
    """Evaluate weights on one client's rows at a time, with the model in evaluation mode."""

    def __init__(self, data: LocalData, rows: SliceMeans, network: Network) -> None:
        self.data = data
        self.rows = rows
        self.network = network
        self._groups: dict[str, Tensor] = {}
        self._memory: tuple[Tensor, Passes] | None = None
        self._prepared: dict[str, list[Tensor | SparseRows]] = {}

    def _threads(self) -> AbstractContextManager[None]:
        return nullcontext() if self.network.stacked is None else one_thread()

    def evaluate(self, name: str, weights: Single, statistics: Single) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, labels and slice membership of a client's rows."""
        place, features = self.data.places[name], self.data.of(name)
        stacked = self.network.stacked
        if stacked is None or isinstance(features, PictureTensors):
            self.network.load(weights, statistics)
            scores = self.network.evaluate(features)
        else:
            # Bypass the module's own calls, which cost more than a small client's arithmetic.
            flat, passes = self._room(stacked)
            flat.numpy()[0, : stacked.size] = weights
            # Copy, because the next pass overwrites the outputs.
            parts = [
                (passes.forward(part[None]) if isinstance(part, Tensor) else passes.forward_sparse(part))[0].clone()
                for part in self._parts(name, features)
            ]
            scores = self.network.as_scores(parts[0] if len(parts) == 1 else torch.cat(parts))
        return scores, self.data.labels[place], self.data.membership[place]

    def _parts(self, name: str, features: Tensor) -> list[Tensor | SparseRows]:
        """Return a client's rows in chunks of a size to evaluate at once."""
        if name not in self._prepared:
            parts = [features[rows] for rows in self.network.chunks(len(features))]
            self._prepared[name] = [SparseRows.of(part) or part for part in parts]
        return self._prepared[name]

    def _room(self, stacked: StackedPerceptron) -> tuple[Tensor, Passes]:
        """Return buffers for one client's weights and layer outputs, shared by all clients."""
        if self._memory is None:
            most = max(len(client.labels) for client in self.data.clients.values())
            flat = stacked.stack([self.network.weights])
            self._memory = (
                flat,
                Passes(stacked, flat, max(rows.stop - rows.start for rows in self.network.chunks(most))),
            )
        return self._memory

    def measure(self, name: str, weights: Single, statistics: Single) -> Measured:
        with self._threads():
            return self._measure(name, *self.evaluate(name, weights, statistics))

    def _measure(self, name: str, scores: Tensor, labels: Tensor, members: Tensor) -> Measured:
        classes = self.network.classes
        wrong = ((scores > 0) != (labels > 0)) if classes is None else (scores.argmax(dim=1) != labels)
        sums, exact = np.zeros(len(self.rows.parts)), np.zeros(len(self.rows.parts))
        for measure, parts in self.rows.measures.items():
            indicator = (scores > 0) if measure.name == "positive" else wrong
            sums[parts] = (measured(measure, scores, labels, classes) @ members).numpy()[parts]
            exact[parts] = (indicator.float() @ members).numpy()[parts]
        loss = float(measured(_LOSS, scores, labels, classes).sum(dtype=torch.float64))
        return Measured(loss, sums, exact, self.data.counts[name])

    def row_values(self, name: str, weights: Single, statistics: Single) -> Array:
        """Return the constraint values over all of a client's rows; NaN if it has no rows in a slice."""
        sums = np.zeros(len(self.rows.parts))
        with self._threads():
            scores, labels, members = self.evaluate(name, weights, statistics)
            for measure, parts in self.rows.measures.items():
                sums[parts] = (measured(measure, scores, labels, self.network.classes) @ members).numpy()[parts]
        return self.rows.values(sums, self.data.counts[name])

    def rates(self, name: str, weights: Single, statistics: Single) -> dict[str, npt.NDArray[np.int64]]:
        """Return FairFed's counts: decisions and correct decisions for each class in each group."""
        with self._threads():
            scores, labels, _ = self.evaluate(name, weights, statistics)
        classes = self.network.classes
        if classes is None:
            decided, real = (scores > 0)[:, None].long(), (labels > 0)[:, None].long()
            correct = int((decided == real).sum())
        else:
            decided, real = (one_hot(codes, classes) for codes in (scores.argmax(dim=1), labels))
            correct = int((decided * real).sum())
        members = self._group_members(name)
        counts = {
            "group_rows": members.sum(dim=0),
            "selected": decided.T @ members,
            "class_rows": real.T @ members,
            "hits": (decided * real).T @ members,
        }
        return {"correct": np.array(correct), **{key: np.asarray(value.numpy()) for key, value in counts.items()}}

    def _group_members(self, name: str) -> Tensor:
        """Return (n, groups): 1 if a row belongs to the group, with the groups of all attributes concatenated."""
        if name not in self._groups:
            groups = self.rows.terms.groups
            codes = self.data.clients[name].codes(groups)
            members = [one_hot(torch.from_numpy(codes[each]), len(values)) for each, values in groups.items()]
            self._groups[name] = torch.cat(members, dim=1)
        return self._groups[name]

    def gradient(self, name: str, weights: Single, statistics: Single, total_rows: int, tilt: Array) -> Single:
        with self._threads():
            return self._gradient(name, weights, statistics, total_rows, tilt)

    def _gradient(self, name: str, weights: Single, statistics: Single, total_rows: int, tilt: Array) -> Single:
        network, place, features = self.network, self.data.places[name], self.data.of(name)
        network.load(weights, statistics)
        network.module.eval()
        share = torch.tensor(tilt, dtype=torch.float32)
        total = [torch.zeros_like(parameter) for parameter in network.parameters]
        for rows in network.chunks(place.stop - place.start):
            chunk = slice(place.start + rows.start, place.start + rows.stop)
            labels, members = self.data.labels[chunk], self.data.membership[chunk]
            scores = network.scores(features[rows])
            known = scores.detach().cpu()
            each = torch.full((len(known),), 1.0 / total_rows)
            pull = spread(each, measure_slope(_LOSS, known, labels, network.classes))
            for measure, parts in self.rows.measures.items():
                weight = members[:, parts] @ share[parts]
                pull = pull + spread(weight, measure_slope(measure, known, labels, network.classes))
            slopes = torch.autograd.grad(scores, network.parameters, pull.to(network.device), allow_unused=True)
            for accumulated, slope in zip(total, slopes, strict=True):
                if slope is not None:
                    accumulated += slope
        return np.array(torch.cat([part.reshape(-1) for part in total]).cpu().numpy(), dtype=np.float32)
