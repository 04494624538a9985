"""What the server, alone or with colluding clients, received about one client in a horizontal run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from scipy.special import logsumexp

from evenhand.arrays import Array, Booleans, Integers, dense
from evenhand.auditing.views import Target
from evenhand.horizontal.averaging.messages import FINAL, GRADIENT, MODEL, SHARED_UPDATE, UPDATE
from evenhand.horizontal.masked.messages import MASKED
from evenhand.horizontal.problem import ClientRows, Single
from evenhand.horizontal.prox_al.messages import ANSWER, OUTCOME, OUTER
from evenhand.horizontal.prox_al.messages import STEP as PROX_STEP
from evenhand.horizontal.roles import HorizontalModel
from evenhand.horizontal.sqp.messages import JUDGED, TRIALS
from evenhand.horizontal.trees import messages as trees
from evenhand.models.linear import SharedLinear
from evenhand.protocol.messages import Message
from evenhand.protocol.terms import HorizontalTerms

MOST_ROWS: Final = 2000
"""Rows of a client, and as many of others, used for membership inference."""
STEP: Final = 0.1
"""Step along a gradient to see whose loss falls; any short step ranks rows alike."""
Nature = Literal["model", "update", "slope", "counts", "histogram"]
READ: Final[Mapping[str, Mapping[str, Nature]]] = {
    MODEL.kind: {"weights": "model"},
    OUTER.kind: {"weights": "model"},
    PROX_STEP.kind: {"weights": "model"},
    FINAL.kind: {"weights": "model"},
    TRIALS.kind: {"trials": "model"},
    UPDATE.kind: {"weights": "update"},
    SHARED_UPDATE.kind: {"weights": "update"},
    ANSWER.kind: {"anchor": "update"},
    JUDGED.kind: {"gradient": "slope"},
    OUTCOME.kind: {"slope": "slope"},
    GRADIENT.kind: {"weights": "slope"},
    MASKED.kind: {"words": "model"},
    trees.COUNTED.kind: {"bins": "counts"},
    trees.REFINE.kind: {"bins": "counts"},
    trees.REFINED.kind: {"parts": "counts"},
    trees.EDGES.kind: {"edges": "histogram"},
    trees.ROOT.kind: {"sums": "histogram"},
}
"""The fields of horizontal messages that attacks read, and what they are.

A *model* arrives at clients; under masks its change is that of the sum. An *update* is a change of it by one client, or
a client's own model; a *slope* is a gradient of its loss. *Counts* are numbers of values, *histograms* also sums of
derivatives, by bin.
"""


class Change(NamedTuple):
    """One change of the model that an attacker saw: before, after, and the kind of message."""

    kind: str
    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class HorizontalAuditInput:
    """Input of an audit: a horizontal run with all clients' rows, in one process.

    Attributes
    ----------
    messages
        Messages of the run, in the order of sending.
    clients
        All clients' rows.
    model
        The shared model; attacks change its weights.
    statistics
        The model's final running statistics.
    terms
        Public terms of the run.
    """

    messages: Sequence[Message]
    clients: Mapping[str, ClientRows]
    model: HorizontalModel
    statistics: Single
    terms: HorizontalTerms

    @property
    def target(self) -> Target:
        """What the labels are."""
        if self.terms.classes is not None:
            return "classes"
        return "labels" if self.terms.job.loss_function.classifies else "numbers"

    @property
    def linear(self) -> bool:
        """Return whether the model has one weight for each column, and an intercept."""
        return self.terms.job.model == "linear"

    def losses(self, weights: Array, features: Array, labels: Array) -> Array:
        """Return the loss of each row under given weights."""
        model: Any = self.model
        if isinstance(model, SharedLinear):
            model = SharedLinear(weights, model.classes)
        else:
            model.load(weights.astype(np.float32), self.statistics)
        scores = model.predict(features)
        if self.target == "numbers":
            return np.asarray(self.terms.job.loss_function.value(scores, labels), dtype=np.float64)
        if scores.ndim > 1:
            return np.asarray(logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels.astype(np.int64)])
        return np.asarray(np.logaddexp(0.0, -labels * scores), dtype=np.float64)


@dataclass(eq=False)
class ClientCase:
    """The server, with colluding clients, attacks one client."""

    scene: HorizontalAuditInput
    who: str
    victim: str
    rng: np.random.Generator

    def sent(self, kind: str) -> list[Message]:
        """Return the messages of one kind between the client and the server."""
        return [one for one in self.scene.messages if one.kind == kind and self.victim in (one.sender, one.receiver)]

    @cached_property
    def changes(self) -> list[Change]:
        """The observed changes of the client's model; under masks, the change of the sum."""
        masked = any(message.kind == MASKED.kind for message in self.scene.messages)
        changes: list[Change] = []
        here: Array | None = None
        for message in self.scene.messages:
            for name, nature in READ.get(message.kind, {}).items():
                if nature == "model" and message.receiver == self.victim:
                    found = np.atleast_2d(message[name])[0]
                    if masked and here is not None and not np.array_equal(here, found):
                        changes.append(Change(MASKED.kind, here.astype(float), found.astype(float)))
                    here = found
                elif message.sender == self.victim and here is not None and nature in ("update", "slope"):
                    changes.append(_change(message.kind, here, message[name], nature))
        return changes

    @cached_property
    def candidates(self) -> tuple[Array, Array, Booleans]:
        """Rows of the client and of others with their labels, and which are the client's."""
        own = self.scene.clients[self.victim]
        others = [rows for name, rows in self.scene.clients.items() if name != self.victim]
        pools = [(dense(own.features), own.labels)]
        if others:
            features = np.concatenate([dense(rows.features) for rows in others])
            pools.append((features, np.concatenate([rows.labels for rows in others])))
        drawn = [(part[0][places], part[1][places]) for part in pools for places in [self.some(len(part[1]))]]
        features, labels = (np.concatenate([part[place] for part in drawn]) for place in (0, 1))
        return features.astype(np.float64), labels, np.arange(len(labels)) < len(drawn[0][1])

    def some(self, count: int) -> Integers:
        return np.sort(self.rng.permutation(count)[:MOST_ROWS])


def _change(kind: str, here: Array, sent: Array, nature: Nature) -> Change:
    if nature == "slope":
        here = here[: len(sent)]
        return Change(kind, here, here - STEP * sent / max(float(np.linalg.norm(sent)), 1e-300))
    # Averaging sends the change of weights, the proximal method a point.
    return Change(kind, here.astype(float), sent.astype(float) + (0.0 if kind == ANSWER.kind else here))
