"""The rounds of FedAvg, which all averaging solvers share: broadcast, train locally, average.

Round:

1. The server draws participants and sends them the weights w, the running statistics and the multipliers λ.
2. Each participant trains from there on its own rows. It answers with the changes and with its number of rows n_i.
3. Every `report_every` rounds it also sends sums of loss and constraint measures, for the history.
4. The server adds the average of the changes, weighted by n_i, and projects λ. It solves nothing.
5. It stops after `max_rounds` rounds; there is no tolerance. The closing exchange of `server.py` follows.

Methods differ in what clients minimise (their formulation) and in the steps of each round (their options).

Other rules than the average combine updates so that a single client cannot move the result far:

- ``"mean"``: the average weighted by numbers of rows, as published. One client can move it anywhere.
- ``"median"``: the median of each coordinate over clients (Yin, Chen, Ramchandran, Bartlett, 2018).
- ``"trimmed"``: the mean of each coordinate without its largest and smallest values (the same paper).
- ``"clipped"``: the mean of changes that are shortened to a bound, by default the median of their norms.

The last three count clients alike, because a number of rows is the client's own word. They need single updates. Under
masks the server sees sums only. There ``"clipped"`` has a `norm_bound` that every client keeps to, and the server
refuses a mean that is longer. That stops huge updates, not lies within the bound.

Changes of multipliers are combined in the same way, except that ``"clipped"`` takes their median: a client that lies
about its groups lies there first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import DivergenceError, ProtocolError
from evenhand.horizontal.averaging.client import ClosingClient, Learner
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.messages import MODEL, SUMS, UPDATE
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.averaging.server import ClosingServer
from evenhand.horizontal.problem import ModelStart, Single, UpdateMechanism, generator, noise_shares, secret_generator
from evenhand.horizontal.summaries import SliceMeans
from evenhand.privacy.mechanism import ClippedGaussian, clipped
from evenhand.protocol.asking import Body
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms

Rule = Literal["median", "trimmed", "clipped"]
_FIELDS: Final = ("weights", "statistics", "multipliers")


def aggregate(rule: Rule, updates: Sequence[Body], trim: float, norm_bound: float | None = None) -> Mapping[str, Array]:
    """Return the change of weights, statistics and multipliers from those of all participants."""
    found = {name: np.stack([body[name].astype(np.float64) for body in updates]) for name in _FIELDS}
    if rule == "clipped":
        found["weights"] = _shortened(found["weights"], norm_bound)
        return {
            "weights": found["weights"].mean(axis=0),
            "statistics": np.median(found["statistics"], axis=0),
            "multipliers": np.median(found["multipliers"], axis=0),
        }
    return {name: _centre(rule, values, trim) for name, values in found.items()}


def _shortened(changes: Array, norm_bound: float | None) -> Array:
    bound = float(np.median(np.linalg.norm(changes, axis=1))) if norm_bound is None else norm_bound
    return np.stack([clipped(one, bound) for one in changes]) if bound > 0 else np.zeros_like(changes)


def _centre(rule: Rule, values: Array, trim: float) -> Array:
    if rule == "median":
        return np.asarray(np.median(values, axis=0))
    count = len(values)
    out = min(max(1, round(trim * count)), (count - 1) // 2)
    return np.asarray(np.sort(values, axis=0)[out : count - out].mean(axis=0))


def check_length(change: Array, norm_bound: float | None, rows: int, clients: int) -> None:
    """Refuse a masked mean that clients within the bound cannot have, or in which clients do not count alike."""
    length = float(np.linalg.norm(change))
    if norm_bound is not None and (length > norm_bound * (1 + 1e-4) or rows > clients):
        raise ProtocolError(
            f"the mean of the clients' updates has a norm of {length:.3g} and a weight of {rows}. {clients} clients "
            f"that keep to norm_bound = {norm_bound:g} cannot have it: one of them does not follow the protocol"
        )


class AveragingServer(ClosingServer):
    """Server that draws participants and averages their updates."""

    state_fields: ClassVar = {"participants": tuple[str, ...]}
    broadcast: ClassVar[Schema] = MODEL

    def __init__(
        self,
        terms: HorizontalTerms,
        means: SliceMeans,
        formulation: Formulation,
        network: Any,
        start: ModelStart,
        *,
        options: AveragingOptions,
        report_every: int,
    ) -> None:
        super().__init__(terms, means, formulation, network, start, assessing=report_every > 0)
        self.options = options
        self.only_sums = terms.only_sums
        self.report_every = report_every
        self.participants: tuple[str, ...] = ()

    # -- rounds

    def start(self) -> Sends:
        return self._broadcast()

    def _broadcast(self) -> Sends:
        self.round += 1
        self.participants = self._draw()
        self.answers.clear()
        body = self.told()
        return [self.broadcast.message(SERVER, client, round=self.round, **body) for client in self.participants]

    def told(self) -> dict[str, Any]:
        """Return what the server sends to all participants of a round."""
        return {"weights": self.weights, "statistics": self.statistics, "multipliers": self.multipliers}

    def _draw(self) -> tuple[str, ...]:
        wanted = max(1, round(self.options.participation * len(self.clients)))
        if wanted == len(self.clients):
            return self.clients
        rng = generator(self.job.seed, SERVER, self.round, "participants")
        return tuple(sorted(rng.choice(np.array(self.clients, dtype=object), size=wanted, replace=False)))

    def expected(self) -> list[str]:
        """Return the kinds of messages that each participant answers with."""
        return [UPDATE.kind, *([SUMS.kind] if reports_in(self.round, self.report_every) else [])]

    def handle(self, message: Message) -> Sends:
        if self.stage != "training":
            return super().handle(message)
        self.check_sender(message)
        expected = self.expected()
        if message.sender not in self.participants or message.kind not in expected:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")
        if message.integer("round") != self.round:
            raise ProtocolError(
                f"{message.sender} answers round {message.integer('round')}, but the server is in round {self.round}"
            )
        self.answers.add(message)
        if not self.answers.complete(expected, self.participants):
            return ()
        return self.complete()

    def complete(self) -> Sends:
        """Finish the round, once all participants have answered."""
        self.report_round()
        self.average()
        return self.next_round()

    def next_round(self) -> Sends:
        return self.close() if self.round >= self.job.max_rounds else self._broadcast()

    def report_round(self) -> None:
        """Append a row of history about the model that was sent, before this round's update."""
        sums = self.answers.of(SUMS.kind)
        measured = self.take_sums(sums) if sums else self.row_report()
        self.reports.append({"round": self.round - 1, **measured, **self.extra_report()})

    def average(self) -> None:
        updates = self.answers.of(UPDATE.kind)
        self.effort += float(len(updates) * self.weights.size)
        shares, rule = self.shares(updates), self.options.aggregation
        if rule == "mean" or self.only_sums:
            before = self.weights
            self.weights = moved(before, shares, updates, "weights")
            self.statistics = moved(self.statistics, shares, updates, "statistics")
            change = sum(shares[name] * body["multipliers"] for name, body in updates.items())
            if rule == "clipped":
                rows = sum(int(body["rows"]) for body in updates.values())
                check_length((self.weights - before).astype(np.float64), self.options.norm_bound, rows, len(updates))
        else:
            found = aggregate(rule, list(updates.values()), self.options.trim, self.options.norm_bound)
            self.weights = (self.weights + found["weights"]).astype(np.float32)
            self.statistics = (self.statistics + found["statistics"]).astype(np.float32)
            change = found["multipliers"]
        self.multipliers = self.formulation.multipliers.project(self.multipliers + change)

    def shares(self, updates: Mapping[str, Body]) -> dict[str, float]:
        """Return n_i / Σ n, the weight of each participant's update."""
        total = sum(int(body["rows"]) for body in updates.values())
        return {name: int(body["rows"]) / total for name, body in updates.items()}

    def extra_report(self) -> dict[str, float]:
        """Return further entries of the round's row of history."""
        return {}


def reports_in(round_number: int, every: int) -> bool:
    return every > 0 and (round_number - 1) % every == 0


def moved(values: Single, shares: Mapping[str, float], updates: Mapping[str, Body], name: str) -> Single:
    """Add the changes of all participants, each times its share."""
    total = values.astype(np.float64)
    for client, body in updates.items():
        total += shares[client] * body[name]
    return total.astype(np.float32)


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """Broadcast that a client has noted and not yet trained on.

    Attributes
    ----------
    shift
        Vector that is added to the gradient of every local step; None adds nothing.
    emphasis
        (P,): what each slice adds to the weight of its rows in the mean loss; None if rows count alike.
    """

    name: str
    round: int
    weights: Single
    statistics: Single
    multipliers: Array
    shift: Single | None = None
    emphasis: Array | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """Result of local training.

    Attributes
    ----------
    values
        Values of the inequalities on the client's own rows, for the update of the multipliers. NaN if the client has
        no rows in a slice.
    """

    weights: Single
    statistics: Single
    values: Array


class AveragingLearner(Learner, Protocol):
    """Learner that can train. Clients in one process share their arithmetic, not their results."""

    epochs: int
    """Passes over the client's rows in a round."""

    def note(self, request: TrainRequest) -> None:
        """Note a request to train on soon."""
        ...

    def train(self) -> Trained:
        """Train locally on the noted request."""
        ...


class AveragingClient(ClosingClient):
    """Client that notes the broadcast, trains when asked for work, and sends its changes."""

    state_fields: ClassVar = {"request": TrainRequest | None}
    broadcast: ClassVar[Schema] = MODEL

    learner: AveragingLearner

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, int],
        learner: AveragingLearner,
        *,
        options: AveragingOptions,
        formulation: Formulation,
        seed: int,
        max_rounds: int,
        report_every: int,
        update_noise: UpdateMechanism | None = None,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(name, sizes, learner, max_rounds=max_rounds, measures=report_every > 0)
        self.options = options
        self.formulation = formulation
        self.seed = seed
        self.report_every = report_every
        self.update_noise = update_noise
        self.secret = secret
        self.request: TrainRequest | None = None

    @property
    def least_summed(self) -> int:
        return max(noise_shares(self.update_noise), super().least_summed)

    def handle(self, message: Message) -> Sends:
        """Note the model; training waits for `work`, by which time all clients of the process have noted it."""
        if message.kind != self.broadcast.kind:
            return super().handle(message)
        told = message.integer("round")
        if self.closed or self.request is not None or not self.round < told <= self.max_rounds:
            raise ProtocolError(
                f"{self.name} has finished {self.round} of {self.max_rounds} rounds; it refuses a model of round {told}"
            )
        self.round = told
        self.request = TrainRequest(
            self.name,
            self.round,
            message["weights"],
            message["statistics"],
            message["multipliers"],
            **self.guidance(message),
        )
        self.learner.note(self.request)
        return ()

    def guidance(self, message: Message) -> Mapping[str, Any]:
        """Return further fields of the request, for methods that correct or weight local training."""
        return {}

    def work(self) -> Sends:
        if self.request is None:
            return ()
        request, self.request = self.request, None
        sends = self.measurements(request)
        self.effort += 3.0 * self.learner.epochs * self.learner.effort
        trained = self.learner.train()
        # Clipped updates with noise are sent in any case: when a run stops must not depend on the client's rows.
        finite = np.isfinite(trained.weights).all() and np.isfinite(trained.statistics).all()
        if not (finite or isinstance(self.update_noise, ClippedGaussian)):
            raise DivergenceError(
                f"{self.name}: weights became infinite or NaN in round {self.round}; the steps are too long. "
                "Scale the columns, choose a smaller step, or clip gradients"
            )
        return [*sends, self._update(request, trained)]

    def measurements(self, request: TrainRequest) -> list[Message]:
        """Return messages about the received model, besides the update."""
        if reports_in(self.round, self.report_every):
            return [self.sums(request.weights, request.statistics)]
        return []

    def _update(self, request: TrainRequest, trained: Trained) -> Message:
        change = np.concatenate([trained.weights - request.weights, trained.statistics - request.statistics])
        multipliers = self._ascent(trained.values)
        if self.options.norm_bound is not None:
            change = clipped(change.astype(np.float64), self.options.norm_bound).astype(np.float32)
        if self.update_noise is not None:
            # Running statistics are means over the client's rows and need protection as much as weights do.
            asked = (request.weights, request.statistics, request.multipliers)
            rng = secret_generator(self.secret, self.seed, self.name, self.round, "protection", *asked)
            change, multipliers = self.update_noise.protect(change, multipliers, rng)
        return self.update(change[: request.weights.size], change[request.weights.size :], multipliers)

    def update(self, weights: Single, statistics: Single, multipliers: Array) -> Message:
        """Return the message with the changes."""
        # If noise is shared among clients, a client with a larger weight would need more of it. Robust rules count
        # clients alike, because a number of rows is the client's own word.
        alike = noise_shares(self.update_noise) > 1 or self.options.aggregation != "mean"
        return UPDATE.message(
            self.name,
            SERVER,
            round=self.round,
            rows=1 if alike else self.learner.n_rows,
            weights=weights,
            statistics=statistics,
            multipliers=multipliers,
        )

    def _ascent(self, values: Array) -> Array:
        """Return the increase of the multipliers at the locally trained model, by the method's formulation."""
        if len(self.formulation.multipliers) == 0:
            return np.zeros(0)
        if self.options.dual_rows == "all":
            self.effort += self.learner.effort
        return self.formulation.ascent(values, self.options.settings(self.round))

    def restored(self) -> None:
        if self.request is not None:
            self.learner.note(self.request)
