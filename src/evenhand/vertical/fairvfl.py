"""FairVFL: asynchronous gradient coordinate-descent ascent (FairVFL Algorithms 1-3), and its first version.

Round:

1. The server sums the parties' latest scores X_k θ_k to z and takes one projected ascent step in λ (FairVFL Eq. 10).
2. It sends passive parties ν (FairVFL Eq. 12), and active parties z and λ.
3. Each party takes gradient steps in its own weights (FairVFL Eq. 11): passive parties one, active parties up to Q.
4. Each party answers with its new scores, ‖θ_k‖² and the length of its move.
5. The server stops when the gap ‖∇G‖ (FairVFL Eq. 13) meets the tolerance, or at the round limit.
6. It then asks every party for the norm of its gradient, which completes the certificate.

Between two messages an active party refreshes its own block only. The other parties' scores stay as last received: the
paper's inconsistent read θ̃. The ascent step includes the −c_t λ of the regularised dual. In the first version of
FairVFL every party is active.

`fairvfl_schedule.py` defines the symbols.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Point
from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.fairvfl_schedule import Adam, FairVFL, Plain, Schedule, make_optimiser
from evenhand.vertical.messages import (
    COMBINED_SCORES,
    FAIRVFL,
    GRADIENT_NORM,
    SCORES,
    SPECTRUM,
    WEIGHTED_DERIVATIVE,
)
from evenhand.vertical.problem import GradientParty, PartyData, ServerData, party_lagrangian
from evenhand.vertical.server import Server


class FairVFLServer(Server):
    """Server of FairVFL Algorithm 1."""

    option_class: ClassVar[type[FairVFL]] = FairVFL
    state_fields: ClassVar = {
        "gap": float,
        "dual_gap": float,
        "step": float,
        "closing": bool,
        "moved_while_closing": bool,
        "answered": Integers,
        "sequences": Integers,
        "squared_moves": Array,
        "spectra": Array,
        "latest": list[Array],
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        self.options = options = self.option_class.of(terms)
        parties = len(self.parties)
        self.schedule = Schedule(options, self.lagrangian, parties, self.regulariser)
        self.latest: list[Array] = [np.zeros(terms.n_rows)] * parties
        self.gap = np.nan
        self.dual_gap = np.nan
        self.step = np.nan
        self.closing = False
        self.moved_while_closing = False
        self.answered = np.full(parties, -1)
        self.sequences = np.zeros(parties, dtype=np.int64)
        self.squared_moves = np.zeros(parties)
        self.spectra = np.full(parties, np.nan if options.needs_spectrum else 0.0)

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        if message.kind == SPECTRUM.kind:
            self.spectra[place] = message.number("squared_norm")
        elif message.kind == SCORES.kind:
            self._take_scores(place, message)
        elif message.kind == GRADIENT_NORM.kind and self.closing:
            return self._take_gradient_norm(message)
        else:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")
        everybody = (self.answered == self.round).all() and not np.isnan(self.spectra).any()
        return self._next_round() if everybody and not self.closing else ()

    def present(self) -> Point:
        total = self.latest[0].copy()
        for scores in self.latest[1:]:
            total += scores
        return self.lagrangian.at(total)

    def _take_scores(self, place: int, message: Message) -> None:
        self.latest[place] = message["scores"]
        self.squared_norms[place] = message.number("squared_norm")
        self.squared_moves[place] = message.number("squared_move")
        self.sequences[place] = message.integer("sequence")
        self.answered[place] = message.integer("round")
        self.moved_while_closing |= self.closing

    def _next_round(self) -> Sends:
        point = self.present()
        self.effort += 20.0 * len(point.scores)
        if self.round > 0:
            self.gap = float(np.hypot(np.sqrt(self.squared_moves.sum()) / self.step, self.dual_gap))
        self._ascend(point)
        self._report(point)
        if self.gap <= self.job.tol or self.round >= self.job.max_rounds:
            self.closing = True
        else:
            self.round += 1
            self.step = self.schedule.step(self.round, self.multipliers, float(self.spectra.sum()))
        return self._broadcast(point)

    def _ascend(self, point: Point) -> None:
        """Update λ ← [λ + β (∂f/∂λ − c λ)]₊ (FairVFL Eq. 10).

        Also compute the λ part of the gap (FairVFL Eq. 13) at the new λ.
        """
        beta, damping = self.options.dual_step, self.schedule.damping(self.round)
        gradient = point.dual_gradient()
        self.multipliers = np.maximum(self.multipliers + beta * (gradient - damping * self.multipliers), 0.0)
        projected = np.maximum(self.multipliers + beta * gradient, 0.0)
        self.dual_gap = float(np.linalg.norm(self.multipliers - projected)) / beta

    def _report(self, point: Point) -> None:
        """Add a row to the history.

        `gap` is ‖∇G‖ of the previous round, because the parties' moves are known only after it.
        """
        self.reports.append({"round": self.round, **self.row_report(point), "gap": self.gap})

    def _sent_multipliers(self, point: Point) -> Array:
        """Return λ, or [λ + ρ · excess]₊ during training with a penalty. The certificate uses λ alone."""
        if self.options.penalty == 0.0 or self.closing:
            return self.multipliers
        return np.maximum(self.multipliers + self.options.penalty * point.dual_gradient(), 0.0)

    def _broadcast(self, point: Point) -> Sends:
        multipliers = self._sent_multipliers(point)
        head = {"round": self.round, "last": int(self.closing), "step": 0.0 if self.closing else self.step}
        nu = None
        sends = []
        for place, party in enumerate(self.parties):
            if party in self.active:
                body = {"sequence": self.sequences[place], "scores": point.scores, "multipliers": multipliers}
                sends.append(COMBINED_SCORES.message(SERVER, party, **head, **body))
            else:
                nu = self._derivative(point, multipliers) if nu is None else nu
                sends.append(WEIGHTED_DERIVATIVE.message(SERVER, party, **head, nu=nu))
        return sends

    def _derivative(self, point: Point, multipliers: Array) -> Array:
        """Return ν for passive parties; at the end it is for their certificate, and of all rows."""
        nu = point.derivative(multipliers)
        return nu if self.closing else self.options.on_batch(nu, self.job.seed, self.round)

    def _take_gradient_norm(self, message: Message) -> Sends:
        """Close the run when all gradient norms are in.

        If scores were in flight when closing began, ask once more at the final scores.
        """
        self.receive_gradient_norm(message, converged=bool(self.gap <= self.job.tol))
        if self.done and self.moved_while_closing:
            self.done = self.moved_while_closing = False
            self.squared_gradients[:] = np.nan
            return self._broadcast(self.present())
        return ()


class FairVFLParty(GradientParty):
    """Base class of active and passive parties: steps, and numbered messages with scores."""

    option_class: ClassVar[type[FairVFL]] = FairVFL
    state_fields: ClassVar = {"sequence": int, "optimiser": Plain | Adam}

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.options = self.option_class.of(terms)
        self.optimiser = make_optimiser(self.options.optimiser, self.model.weights.size)
        self.sequence = 0

    def descend(self, gradient: Array, step: float) -> None:
        """Take one step (FairVFL Eq. 11)."""
        self.model.move(self.optimiser.change(gradient, step))

    def squared_move(self, moved: Array, first_gradient: Array, step: float) -> float:
        """Return ‖θ^(t) − θ^(t+1)‖² of FairVFL Eq. 13.

        The length of Adam's moves does not measure stationarity. With Adam the step times the first gradient replaces
        it.
        """
        change = moved if self.options.optimiser == "plain" else step * first_gradient
        return float(change @ change)

    def start(self) -> Sends:
        sends = [self.send_scores(self.own_scores(), squared_move=0.0)]
        if self.options.needs_spectrum:
            sends.insert(0, SPECTRUM.message(self.name, SERVER, squared_norm=self.model.spectral_bound()))
        return sends

    def send_scores(self, scores: Array, squared_move: float) -> Message:
        self.sequence += 1
        return SCORES.message(
            self.name,
            SERVER,
            round=self.round,
            sequence=self.sequence,
            scores=scores,
            squared_norm=self.model.squared_norm(),
            squared_move=squared_move,
        )


class FairVFLPassiveParty(FairVFLParty):
    """Passive party of FairVFL Algorithm 3: one step for each ν, or as many as the options say."""

    def handle(self, message: Message) -> Sends:
        if message.kind != WEIGHTED_DERIVATIVE.kind:
            raise ProtocolError(f"{self.name} is passive and takes no {message.kind!r}")
        gradient = self.gradient_told(message)
        if message.integer("last"):
            return [self.gradient_norm(gradient)]
        self.round = message.integer("round")
        before, step = self.model.weights, message.number("step")
        self.descend(gradient, step)
        for _ in range(self.options.passive_steps - 1):
            self.descend(self.gradient(self.by_output(message["nu"])), step)
        squared_move = self.squared_move(self.model.weights - before, gradient, step)
        return [self.send_scores(self.own_scores(), squared_move)]


class FairVFLActiveParty(FairVFLParty):
    """Active party of FairVFL Algorithm 2: up to Q local steps for each (z, λ). Each step refreshes its own block."""

    state_fields: ClassVar = {
        "multipliers": Array,
        "scores": Array,
        "others": Array,
        "weights_at_start": Array,
        "first_gradient": Array,
        "left": int,
        "step": float,
        "unread": dict[int, Array],
    }

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.lagrangian = party_lagrangian(terms, name, own)
        self.left = 0
        self.step = 0.0
        self.multipliers = self.lagrangian.constraints.bounds.no_multipliers()
        self.scores: Array = np.zeros(terms.n_rows)
        self.others: Array = np.zeros(terms.n_rows)
        self.weights_at_start: Array = self.model.weights
        self.first_gradient: Array = np.zeros_like(self.model.weights)
        # Scores that the server may not have read yet. Its next message contains one of them.
        self.unread: dict[int, Array] = {}

    def send_scores(self, scores: Array, squared_move: float) -> Message:
        self.scores = scores
        message = super().send_scores(scores, squared_move)
        self.unread[self.sequence] = scores
        return message

    def handle(self, message: Message) -> Sends:
        if message.kind != COMBINED_SCORES.kind:
            raise ProtocolError(f"{self.name} is active and takes no {message.kind!r}")
        read = message.integer("sequence")
        if read not in self.unread:
            raise ProtocolError(
                f"{self.name}: the server refers to scores {read}, which were never sent or are outdated"
            )
        self.unread = {number: scores for number, scores in self.unread.items() if number >= read}
        self.others = message["scores"] - self.unread[read]
        self.multipliers = message["multipliers"]
        self.left = 0
        if message.integer("last"):
            return [self.gradient_norm(self.gradient(self._nu()))]
        self.round = message.integer("round")
        self.step = message.number("step")
        self.weights_at_start = self.model.weights
        self.left = self.options.local_steps
        if self.options.pace == "until-server-speaks":
            return self.work()
        while self.left > 1:
            self._local_step()
            self.scores = self.own_scores()
        return self.work()

    def work(self) -> Sends:
        """Take one local step and send its scores, while steps are left (FairVFL Algorithm 2, lines 4-9)."""
        if self.left == 0:
            return ()
        self._local_step()
        squared_move = self.squared_move(self.model.weights - self.weights_at_start, self.first_gradient, self.step)
        return [self.send_scores(self.own_scores(), squared_move)]

    def _local_step(self) -> None:
        gradient = self.gradient(self.options.on_batch(self._nu(), self.terms.job.seed, self.round))
        self.descend(gradient, self.step)
        if self.left == self.options.local_steps:
            self.first_gradient = gradient
        self.left -= 1

    def _nu(self) -> Array:
        self.effort += 10.0 * self.model.rows
        return self.lagrangian.at(self.others + self.scores).derivative(self.multipliers)


def party(
    terms: VerticalTerms,
    name: str,
    own: PartyData,
    *,
    active: type[FairVFLActiveParty] = FairVFLActiveParty,
    passive: type[FairVFLPassiveParty] = FairVFLPassiveParty,
) -> FairVFLParty:
    kind = active if terms.participants[name] == "active" else passive
    return kind(terms, name, own)


SOLVER = Solver(
    name="fairvfl",
    split="vertical",
    options=FairVFL,
    server=FairVFLServer,
    participant=party,
    vocabulary=FAIRVFL,
    models=("linear", "mlp"),
    runtimes=("messages", "flower", "threads"),
    takes_weights=True,
    protections=("none", "masked"),
    takes_label_privacy=True,
)
