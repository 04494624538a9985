"""What the baselines share: options without robust aggregation, and a server that moves the weights by a rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import InputError
from evenhand.horizontal.averaging.batched import Batching
from evenhand.horizontal.averaging.messages import MODEL, SUMS, UPDATE
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.averaging.rounds import AveragingServer, moved
from evenhand.protocol.asking import Body
from evenhand.protocol.messages import Schema, Vocabulary
from evenhand.protocol.terms import HorizontalTerms


@dataclass(frozen=True)
class MethodOptions(AveragingOptions):
    """Options of a baseline. Parameters are those of `AveragingOptions`; the server's rule replaces `aggregation`."""

    def resolved(self, terms: HorizontalTerms) -> Self:
        if self.aggregation != "mean":
            raise InputError(f"aggregation is {self.aggregation!r}, but the method has its own; leave it at 'mean'")
        return super().resolved(terms)


@dataclass(frozen=True)
class LocalOptions(MethodOptions):
    """Options of a baseline that corrects local SGD."""

    def resolved(self, terms: HorizontalTerms) -> Self:
        found = super().resolved(terms)
        if found.optimizer != "sgd":
            raise InputError(f"optimizer is {found.optimizer!r}, but the method corrects steps of SGD; choose 'sgd'")
        return found


@dataclass(frozen=True)
class LossOptions(MethodOptions):
    """Options of a baseline whose server needs each client's loss in every round."""

    def resolved(self, terms: HorizontalTerms) -> Self:
        if self.report_every not in (None, 1) or terms.protected:
            raise InputError(
                "the method needs each client's loss in every round; leave report_every at 1, without update_noise"
            )
        return super().resolved(terms)


def local_steps(options: AveragingOptions, rows: int) -> int:
    """Return the number of local steps of a client with this number of rows."""
    made = Batching.of(slice(0, rows), options.batch_size, options.local_epochs, lone_rows=True)
    return made.steps * made.epochs


def with_broadcast(vocabulary: Vocabulary, broadcast: Schema) -> Vocabulary:
    """Return a vocabulary in which another schema takes the place of the broadcast model."""
    kept = [schema for schema in vocabulary if schema.kind != MODEL.kind]
    return Vocabulary(broadcast, *kept, title=vocabulary.title)


class SteppingServer(AveragingServer):
    """Server whose weights move by a method's own rule."""

    def average(self) -> None:
        updates = self.answers.of(UPDATE.kind)
        self.effort += float(len(updates) * self.weights.size)
        shares = self.shares(updates)
        self.weights = (self.weights.astype(np.float64) + self.change(updates, shares)).astype(np.float32)
        self.statistics = moved(self.statistics, shares, updates, "statistics")

    @abstractmethod
    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        """Return the change of the weights in this round."""

    def mean_change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        """Return Σ_i share_i Δ_i, the change of FedAvg."""
        return np.sum([shares[name] * body["weights"].astype(np.float64) for name, body in updates.items()], axis=0)

    def losses(self) -> dict[str, float]:
        """Return F_i, each participant's mean loss at the weights that were sent."""
        return {name: float(body["loss"]) / int(body["rows"]) for name, body in self.answers.of(SUMS.kind).items()}
