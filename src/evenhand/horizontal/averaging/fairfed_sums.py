"""FairFed if the server learns only sums over clients: each client computes its own share.

The authors propose this for secure aggregation. A round has three exchanges: counts of the received model's decisions,
distances of clients from the global gap, and updates. Each update is weighted by its client's own share:

    share_i = n_i / Σ n − β · Σ over rounds so far of (Δ_i − mean Δ)

The shares are those of `fairfed.py`, but the server knows none of them. If all participants of a round have a share of
zero, the model does not change.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.horizontal.averaging.fairfed import FairFedClient, FairFedServer, accuracy_of, gap_of, pooled
from evenhand.horizontal.averaging.messages import DIFFERENCE, FAIRNESS, MODEL, RATES, SHARE, SHARED_UPDATE, SUMS
from evenhand.horizontal.averaging.rounds import TrainRequest, moved, reports_in
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends


class SharingServer(FairFedServer):
    """Server that requests counts, then distances, then updates."""

    state_fields: ClassVar = {"asking": Literal["rates", "differences", "updates"], "total_rows": int}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asking: Literal["rates", "differences", "updates"] = "rates"
        self.total_rows = 0

    def expected(self) -> list[str]:
        if self.asking == "rates":
            return [RATES.kind, *([SUMS.kind] if reports_in(self.round, self.report_every) else [])]
        return [DIFFERENCE.kind if self.asking == "differences" else SHARED_UPDATE.kind]

    def complete(self) -> Sends:
        if self.asking == "rates":
            return self._tell_fairness()
        if self.asking == "differences":
            return self._tell_mean()
        updates = self.answers.of(SHARED_UPDATE.kind)
        total = sum(float(body["share"]) for body in updates.values())
        # If all shares are zero, there is no mean, and the model does not change.
        shares = {name: float(body["share"]) / total if total > 0 else 0.0 for name, body in updates.items()}
        self.effort += float(len(updates) * self.weights.size)
        self.weights = moved(self.weights, shares, updates, "weights")
        self.statistics = moved(self.statistics, shares, updates, "statistics")
        self.asking = "rates"
        return self.next_round()

    def _tell_fairness(self) -> Sends:
        """Send the gap and accuracy of the received model on the participants' rows together."""
        self.report_round()
        told = pooled(self.answers.of(RATES.kind))
        gap, attributes = self.gap(told), self.attributes
        self.total_rows = int(told["rows"])
        body = {"gap": 0.0 if np.isnan(gap) else gap, "defined": int(not np.isnan(gap)), "attributes": attributes}
        return self._ask("differences", FAIRNESS, accuracy=accuracy_of(told), **body)

    def _tell_mean(self) -> Sends:
        told = self.answers.of(DIFFERENCE.kind)
        mean = sum(float(body["difference"]) for body in told.values()) / len(told)
        return self._ask("updates", SHARE, mean=mean, rows=self.total_rows)

    def _ask(self, asking: Literal["differences", "updates"], schema: Any, **body: Any) -> Sends:
        self.asking = asking
        self.answers.clear()
        return [schema.message(SERVER, client, round=self.round, **body) for client in self.participants]


class SharingClient(FairFedClient):
    """Client that counts, reports its distance from the global gap, and trains once it knows its share."""

    state_fields: ClassVar = {"adjustment": float, "difference": float, "share": float, "received": TrainRequest | None}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.adjustment = self.difference = self.share = 0.0
        # The received model, until the client knows its share.
        self.received: TrainRequest | None = None

    def handle(self, message: Message) -> Sends:
        if message.kind == MODEL.kind:
            super().handle(message)
            self.received, self.request = self.request, None
            assert self.received is not None
            return super().measurements(self.received)
        if message.kind in (FAIRNESS.kind, SHARE.kind):
            if self.received is None or message.integer("round") != self.round:
                raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
            return self._compare(message) if message.kind == FAIRNESS.kind else self._take_share(message)
        return super().handle(message)

    def measurements(self, request: TrainRequest) -> list[Message]:
        """Return nothing: the measurements were sent when the model arrived."""
        return []

    def _compare(self, message: Message) -> Sends:
        assert self.received is not None
        counted = self.learner.rates(self.received.weights, self.received.statistics)
        counts = {**counted, "rows": np.array(self.learner.n_rows)}
        own = gap_of(counts, self.options.metric, message["attributes"].tolist())
        undefined = np.isnan(own) or not message.integer("defined")
        accuracy = abs(accuracy_of(counts) - message.number("accuracy"))
        self.difference = accuracy if undefined else abs(own - message.number("gap"))
        self.effort += self.learner.effort
        return [DIFFERENCE.message(self.name, SERVER, round=self.round, difference=self.difference)]

    def _take_share(self, message: Message) -> Sends:
        if (everybody := message.integer("rows")) < self.learner.n_rows:
            raise ProtocolError(f"{self.name} refuses a total of {everybody} rows, which is fewer than its own")
        self.adjustment -= float(self.options.weight_step) * (self.difference - message.number("mean"))
        self.share = max(0.0, self.learner.n_rows / everybody + self.adjustment)
        self.request, self.received = self.received, None
        assert self.request is not None
        self.learner.note(self.request)
        return ()

    def update(self, weights: Any, statistics: Any, multipliers: Any) -> Message:
        body = {"weights": weights, "statistics": statistics, "share": self.share}
        return SHARED_UPDATE.message(self.name, SERVER, round=self.round, **body)
