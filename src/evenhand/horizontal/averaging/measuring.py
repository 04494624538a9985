"""A model on clients' rows: sums for the history and the certificate, rates, gradients (needs the `torch` extra)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from evenhand.arrays import Array
from evenhand.constraints.measures import Measure
from evenhand.horizontal.averaging.client import Measured
from evenhand.horizontal.averaging.local_objective import as_labels, measure_slope, measured, spread
from evenhand.horizontal.problem import ClientRows, Single
from evenhand.horizontal.rows import AgreedRows
from evenhand.models.networks import Network
from evenhand.models.stacked import StackedPerceptron, one_thread

_LOSS = Measure("loss")


class LocalData:
    """All clients' rows one after the other, in tensors.

    Attributes
    ----------
    places
        Which rows are whose.
    membership
        (n, P): one where a row is in the slice of a part of the constraint rows.
    counts
        How many rows each client has in each of those slices.
    """

    def __init__(self, clients: Sequence[ClientRows], rows: AgreedRows) -> None:
        self.clients = {client.name: client for client in clients}
        ends = np.cumsum([client.rows for client in clients])
        self.places = {c.name: slice(int(end) - c.rows, int(end)) for c, end in zip(clients, ends, strict=True)}
        self.features = torch.from_numpy(np.concatenate([client.features for client in clients]))
        self.labels = as_labels(np.concatenate([client.labels for client in clients]), rows.agreement.classes)
        inside = np.concatenate([rows.membership(client) for client in clients])
        rows.check_filled(inside.sum(axis=0))
        self.membership = torch.from_numpy(inside.astype(np.float32))
        self.counts = {name: inside[place].sum(axis=0).astype(np.float64) for name, place in self.places.items()}

    def count(self, name: str) -> int:
        return self.clients[name].rows


class Measuring:
    """Evaluates weights on one client's rows at a time, the model in evaluation mode."""

    def __init__(self, data: LocalData, rows: AgreedRows, network: Network, stacked: StackedPerceptron | None) -> None:
        self.data = data
        self.rows = rows
        self.network = network
        self.stacked = stacked
        self._groups: dict[str, Tensor] = {}

    def _evaluate(self, name: str, weights: Single, statistics: Single) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, labels and slice membership of a client's rows."""
        place = self.data.places[name]
        features = self.data.features[place]
        if self.stacked is None:
            self.network.load(weights, statistics)
            scores = self.network.evaluate(features)
        else:
            # Past the module's own machinery, which costs more than a small client's arithmetic.
            views = self.stacked.views(torch.tensor(weights).unsqueeze(0))
            chunks = [features[rows].unsqueeze(0) for rows in self.network.chunks(len(features))]
            with one_thread():
                outputs = torch.cat([self.stacked.forward(views, chunk)[-1][0] for chunk in chunks])
            scores = self.network.as_scores(outputs)
        return scores, self.data.labels[place], self.data.membership[place]

    def measure(self, name: str, weights: Single, statistics: Single) -> Measured:
        scores, labels, members = self._evaluate(name, weights, statistics)
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
        """The constraint rows' values over all of a client's rows; not a number where it lacks a slice."""
        scores, labels, members = self._evaluate(name, weights, statistics)
        sums = np.zeros(len(self.rows.parts))
        for measure, parts in self.rows.measures.items():
            sums[parts] = (measured(measure, scores, labels, self.network.classes) @ members).numpy()[parts]
        return self.rows.values(sums, self.data.counts[name])

    def rates(self, name: str, weights: Single, statistics: Single) -> dict[str, npt.NDArray[np.int64]]:
        """FairFed's counts: decisions and right decisions for each class in each group."""
        scores, labels, _ = self._evaluate(name, weights, statistics)
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
        """(n, groups): one where a row is of the group, groups of all attributes one after the other."""
        if name not in self._groups:
            agreement = self.rows.agreement
            codes = agreement.codes(self.data.clients[name])
            members = [one_hot(torch.from_numpy(codes[each]), len(values)) for each, values in agreement.groups.items()]
            self._groups[name] = torch.cat(members, dim=1)
        return self._groups[name]

    def gradient(self, name: str, weights: Single, statistics: Single, total_rows: int, tilt: Array) -> Single:
        network, place = self.network, self.data.places[name]
        network.load(weights, statistics)
        network.module.eval()
        share = torch.tensor(tilt, dtype=torch.float32)
        total = [torch.zeros_like(parameter) for parameter in network.parameters]
        for rows in network.chunks(place.stop - place.start):
            chunk = slice(place.start + rows.start, place.start + rows.stop)
            labels, members = self.data.labels[chunk], self.data.membership[chunk]
            scores = network.scores(self.data.features[chunk])
            known = scores.detach()
            each = torch.full((len(known),), 1.0 / total_rows)
            pull = spread(each, measure_slope(_LOSS, known, labels, network.classes))
            for measure, parts in self.rows.measures.items():
                weight = members[:, parts] @ share[parts]
                pull = pull + spread(weight, measure_slope(measure, known, labels, network.classes))
            slopes = torch.autograd.grad(scores, network.parameters, pull, allow_unused=True)
            for accumulated, slope in zip(total, slopes, strict=True):
                if slope is not None:
                    accumulated += slope
        return np.array(torch.cat([part.reshape(-1) for part in total]).numpy(), dtype=np.float32)
