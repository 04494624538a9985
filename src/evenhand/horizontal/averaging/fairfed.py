"""FairFed (Ezzeldin et al.): FedAvg with shares that depend on how each client's fairness differs from the overall one.

Round:

1. The server sends the model to the participants.
2. Each counts the model's decisions on its own rows by group, then trains. It answers with counts and its change.
3. From the counts the server computes the gap F_i between groups at each client, and F over all of them.
4. It lowers the shares of clients with a large Δ_i = |F_i − F|, and averages the changes by these shares:

       share_i = n_i / Σ n − β · Σ over rounds so far of (Δ_i − mean Δ)

5. It stops after `max_rounds` rounds.

A client with rows of fewer than two groups has no gap. Its Δ_i is the difference of accuracies instead. The server
keeps shares by client name, whether or not the client takes part. A negative share counts as zero in the average.

If the server learns only sums over clients, each client computes its own share, as the authors propose for secure
aggregation. A round then has three exchanges: counts of the received model's decisions, distances of clients from the
global gap, and updates weighted by shares that the server does not know. If all participants of a round have a share of
zero, the model does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from evenhand.errors import ProtocolError
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.messages import (
    DIFFERENCE,
    FAIRFED,
    FAIRNESS,
    MODEL,
    RATES,
    SHARE,
    SHARED_UPDATE,
    SUMS,
)
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.averaging.rounds import (
    AveragingClient,
    AveragingLearner,
    AveragingServer,
    TrainRequest,
    moved,
    reports_in,
)
from evenhand.horizontal.problem import Single
from evenhand.protocol.asking import Body
from evenhand.protocol.job import NotNegative
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms

Metric = Literal["demographic-parity", "equal-opportunity"]


@dataclass(frozen=True)
class FairFed(AveragingOptions):
    """Options of FairFed.

    Parameters
    ----------
    weight_step
        β: how fast the shares change. ``"auto"`` is 1/(N T) on tables, for N clients and T rounds. So a client with Δ
        one above the mean in every round loses its whole share of 1/N by the end.
    metric
        F: ``"demographic-parity"``, the difference of groups' rates of positive decisions, or
        ``"equal-opportunity"``, the difference of their true-positive rates. With several classes, attributes or more
        than two groups, it is the largest difference.
    """

    weight_step: NotNegative | Literal["auto"] = "auto"
    metric: Metric = "demographic-parity"

    def for_tables(self, terms: HorizontalTerms) -> Mapping[str, Any]:
        return {**super().for_tables(terms), "weight_step": 1.0 / (len(terms.names) * terms.job.max_rounds)}

    def for_networks(self) -> Mapping[str, Any]:
        return {**super().for_networks(), "weight_step": 0.2}


class CountingLearner(AveragingLearner, Protocol):
    """Learner that can count decisions by group."""

    def rates(self, weights: Single, statistics: Single) -> Mapping[str, npt.NDArray[np.int64]]: ...


class FairFedClient(AveragingClient):
    """Client that sends its counts with every update."""

    learner: CountingLearner
    options: FairFed

    def measurements(self, request: TrainRequest) -> list[Message]:
        self.effort += self.learner.effort
        counts = self.learner.rates(request.weights, request.statistics)
        rates = RATES.message(self.name, SERVER, round=self.round, rows=self.learner.n_rows, **counts)
        return [rates, *super().measurements(request)]


class FairFedServer(AveragingServer):
    """Server that keeps an adjustment of the share of each client."""

    state_fields: ClassVar = {"adjustments": dict[str, float]}

    options: FairFed

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.adjustments = dict.fromkeys(self.clients, 0.0)

    def expected(self) -> list[str]:
        return [*super().expected(), RATES.kind]

    def shares(self, updates: Mapping[str, Body]) -> dict[str, float]:
        by_rows = super().shares(updates)
        differences = self._differences(self.answers.of(RATES.kind))
        mean = float(np.mean(list(differences.values())))
        for name, difference in differences.items():
            self.adjustments[name] -= float(self.options.weight_step) * (difference - mean)
        raised = {name: max(0.0, share + self.adjustments[name]) for name, share in by_rows.items()}
        total = sum(raised.values())
        # Adjustments add up to zero over all clients, but those of the participants can all be negative.
        return {name: share / total for name, share in raised.items()} if total > 0 else by_rows

    def _differences(self, rates: Mapping[str, Body]) -> dict[str, float]:
        """Return Δ_i of each participant."""
        together = pooled(rates)
        overall, accuracy = self.gap(together), accuracy_of(together)
        found = {}
        for name, body in rates.items():
            own = self.gap(body)
            undefined = np.isnan(own) or np.isnan(overall)
            found[name] = abs(accuracy_of(body) - accuracy) if undefined else abs(own - overall)
        return found

    @property
    def attributes(self) -> list[int]:
        """Number of groups of each sensitive attribute."""
        return [len(values) for values in self.means.terms.groups.values()]

    def gap(self, counts: Body) -> float:
        return gap_of(counts, self.options.metric, self.attributes)

    def extra_report(self) -> dict[str, float]:
        """Return the accuracy and the gap between groups of the received model, over the participants' rows."""
        together = pooled(self.answers.of(RATES.kind))
        return {"accuracy": accuracy_of(together), "gap": self.gap(together)}


def largest_gap(hits: npt.NDArray[Any], rows: npt.NDArray[Any], attributes: Sequence[int]) -> float:
    """Return the largest difference of rates between two groups of one attribute, over classes; NaN if none is defined.

    Parameters
    ----------
    hits, rows
        (classes, groups): numerators and denominators of the rates, with the groups of all attributes concatenated.
    attributes
        Number of groups of each attribute.
    """
    rates = np.where(rows > 0, hits / np.maximum(rows, 1), np.nan)
    gaps = []
    for part in np.split(rates, np.cumsum(attributes)[:-1], axis=1):
        for values in part:
            known = values[~np.isnan(values)]
            if len(known) >= 2:
                gaps.append(float(known.max() - known.min()))
    return max(gaps, default=float("nan"))


def gap_of(counts: Body, metric: Metric, attributes: Sequence[int]) -> float:
    """Return F, the largest gap between groups, from the counts of one client or of all."""
    if metric == "demographic-parity":
        return largest_gap(counts["selected"], np.broadcast_to(counts["group_rows"], counts["hits"].shape), attributes)
    return largest_gap(counts["hits"], counts["class_rows"], attributes)


def pooled(rates: Mapping[str, Body]) -> Body:
    bodies = list(rates.values())
    return {name: np.sum([body[name] for body in bodies], axis=0) for name in bodies[0]}


def accuracy_of(counts: Body) -> float:
    return float(counts["correct"]) / float(counts["rows"])


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


SOLVER = averaging_solver(
    "fairfed",
    FairFed,
    server=FairFedServer,
    client=FairFedClient,
    takes_constraints=False,
    needs_groups=True,
    vocabulary=FAIRFED,
    sums=(SharingServer, SharingClient),
)
