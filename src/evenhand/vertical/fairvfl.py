"""FairVFL: asynchronous gradient coordinate-descent ascent (FairVFL Algorithms 1-3), and its first version.

Round t: parties' scores X_k θ_k → z, constraint values → λ^(t) (FairVFL Eq. 10, with the −c_t λ of the regularised
dual) → ν (FairVFL Eq. 12) to passive parties, (z, λ) to active ones → parties step (FairVFL Eq. 11). Passive parties
step once a round; active ones up to Q times, refreshing their own block only: the others' scores stay as last received,
the paper's inconsistent read θ̃. In the first version every party is active.

Symbols: η is 1/`step`, β is `dual_step`, c is `damping`, Q is `local_steps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.errors import InputError, ProtocolError
from evenhand.models.optimisers import OptimiserName, make_optimiser
from evenhand.numbers import is_number, is_whole
from evenhand.protocol.job import PROTECTIONS
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends, State
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COMBINED_SCORES, GRADIENT_NORM, PRODUCT, SCORES, SPECTRUM, WEIGHTED_DERIVATIVE
from evenhand.vertical.parties import GradientParty
from evenhand.vertical.problem import PartyData, ServerData, party_lagrangian
from evenhand.vertical.server import Server
from evenhand.vertical.solver import Solver


@dataclass(frozen=True)
class FairVFLOptions:
    """Settings of FairVFL; but for the step of linear parties, the defaults are those of the papers' experiments.

    Parameters
    ----------
    schedule
        ``"constant"``: `step`, `dual_step` and `damping` as given. ``"theorem"``: those of FairVFL Theorem 2,
        with η_t at its lower bound and the Lipschitz constants estimated from the data. The theorem's β is the inverse
        of the step β of FairVFL Eq. 10 (its proof has β/2 ‖λ^(t+1) − λ^(t)‖² where a step enters by its inverse), so
        c_t = t^(−1/4) / (2β) in terms of `dual_step`. Its steps are far too short for practice:
        `benchmarks/fairvfl_theorem.py` shows how short.
    step
        1/η. ``"auto"`` takes 1/L, with L a bound on the curvature of the Lagrangian at the present multipliers. None is
        ``"auto"`` for plain steps of linear parties, which at the papers' 0.01 end far from the optimum
        (`benchmarks/defaults.py`), and 0.01 otherwise.
    dual_step
        β of FairVFL Eq. 10. The theorem asks for 1/β ≥ L_λ, and L_λ is zero since the Lagrangian is linear in λ.
    damping
        c, with the constant schedule.
    local_steps
        Q, the most local updates of an active party in a round.
    optimiser
        ``"plain"``: the papers' step. ``"adam"``: each party scales its gradient by Adam; for neural parties.
    penalty
        ρ. Zero is the papers' method. With ρ > 0 the parties are sent λ + ρ · excess in place of λ (as an augmented
        Lagrangian has it), so that rows are met long before λ has grown.
    pace
        ``"exact"``: active parties do exactly Q updates, then send once. ``"until-server-speaks"``: they send after
        each update and go on while the server is silent, at most Q times (FairVFL Algorithm 2).
    """

    schedule: Literal["constant", "theorem"] = "constant"
    step: float | Literal["auto"] | None = None
    dual_step: float = 0.1
    damping: float = 1e-3
    local_steps: int = 1
    optimiser: OptimiserName = "plain"
    penalty: float = 0.0
    pace: Literal["exact", "until-server-speaks"] = "exact"

    def __post_init__(self) -> None:
        if self.step is not None and self.step != "auto" and not (is_number(self.step) and self.step > 0):
            raise InputError(f"step is {self.step!r}; it must be a positive number, or 'auto' to have it estimated")
        if self.schedule not in ("constant", "theorem"):
            raise InputError(f"schedule is {self.schedule!r}; choose 'constant' or 'theorem'")
        if self.pace not in ("exact", "until-server-speaks"):
            raise InputError(f"pace is {self.pace!r}; choose 'exact' or 'until-server-speaks'")
        if not (is_number(self.dual_step) and self.dual_step > 0):
            raise InputError(f"dual_step is {self.dual_step!r}; it must be a positive number")
        if not (is_number(self.damping) and self.damping >= 0):
            raise InputError(f"damping is {self.damping!r}; it must be a number, zero or more")
        if not (is_number(self.penalty) and self.penalty >= 0):
            raise InputError(f"penalty is {self.penalty!r}; it must be a number, zero or more")
        if self.optimiser not in ("plain", "adam"):
            raise InputError(f"optimiser is {self.optimiser!r}; choose 'plain' or 'adam'")
        if not (is_whole(self.local_steps) and self.local_steps >= 1):
            raise InputError(f"local_steps is {self.local_steps!r}; it must be a whole number, at least 1")

    @classmethod
    def of(cls, terms: VerticalTerms) -> FairVFLOptions:
        """The options of a job, with its step."""
        options = cls(**terms.job.options)
        if options.step is not None:
            return options
        plain = terms.job.model == "linear" and options.optimiser == "plain"
        return replace(options, step="auto" if plain else 0.01)

    @property
    def needs_spectrum(self) -> bool:
        return self.schedule == "theorem" or self.step == "auto"


class Schedule:
    """(step, damping) for each round; those of FairVFL Theorem 2, or the experiments' constants."""

    TAU = 9.0
    """τ of FairVFL Theorem 2, which asks for more than 8."""

    def __init__(self, options: FairVFLOptions, lagrangian: Lagrangian, parties: int, regulariser: float) -> None:
        self.options = options
        self._lagrangian = lagrangian
        self._local_updates = parties * options.local_steps
        self._regulariser = regulariser

    def damping(self, round_number: int) -> float:
        """c_(t−1): what FairVFL Eq. 10 makes λ^(t) with. At t = 1 there is no λ yet that it could act on."""
        if self.options.schedule == "constant":
            return self.options.damping
        return float(0.5 / self.options.dual_step * max(round_number - 1, 1) ** -0.25)

    def step(self, round_number: int, multipliers: Array, squared_norm: float) -> float:
        """1/η_t. `squared_norm` bounds the squared spectral norm of all parties' columns together."""
        if not self.options.needs_spectrum:
            assert self.options.step is not None
            return float(self.options.step)
        rows = len(self._lagrangian.labels)
        smooth = self._lagrangian.curvature_limit(multipliers) * squared_norm / rows + self._regulariser
        if self.options.schedule == "constant":
            return 1.0 / smooth
        kq = self._local_updates
        coupling = self._lagrangian.coupling_limit() ** 2 * squared_norm
        inverse = (smooth**2 * (kq + 2) * (kq - 1) + 2 * (smooth + 1)) / 4
        inverse += coupling * kq * (1 + 32 * self.TAU * np.sqrt(max(round_number, 1))) * self.options.dual_step / 2
        return float(1.0 / inverse)


class FairVFLServer(Server):
    """FairVFL Algorithm 1."""

    kept = frozenset(
        {
            "gap",
            "dual_gap",
            "step",
            "closing",
            "moved_while_closing",
            "answered",
            "sequences",
            "squared_moves",
            "spectra",
        }
    )

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        self.options = options = FairVFLOptions.of(terms)
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
        """λ ← [λ + β (∂f/∂λ − c λ)]₊ (FairVFL Eq. 10), and the λ part of the gap (FairVFL Eq. 13) at the new λ."""
        beta, damping = self.options.dual_step, self.schedule.damping(self.round)
        gradient = point.dual_gradient()
        self.multipliers = np.maximum(self.multipliers + beta * (gradient - damping * self.multipliers), 0.0)
        projected = np.maximum(self.multipliers + beta * gradient, 0.0)
        self.dual_gap = float(np.linalg.norm(self.multipliers - projected)) / beta

    def _report(self, point: Point) -> None:
        """`gap` is ‖∇G‖ of the round that led here: the parties' moves are known only after it."""
        self.reports.append({"round": self.round, **self.row_report(point), "gap": self.gap})

    def _sent_multipliers(self, point: Point) -> Array:
        """λ, or [λ + ρ · excess]₊ while the run goes on with a penalty; the certificate is about λ alone."""
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
                nu = point.derivative(multipliers) if nu is None else nu
                sends.append(WEIGHTED_DERIVATIVE.message(SERVER, party, **head, nu=nu))
        return sends

    def _take_gradient_norm(self, message: Message) -> Sends:
        """Close the run, unless scores were still under way when it was closed: then ask once more, at rest."""
        self.receive_gradient_norm(message, converged=bool(self.gap <= self.job.tol))
        if self.done and self.moved_while_closing:
            self.done = self.moved_while_closing = False
            self.squared_gradients[:] = np.nan
            return self._broadcast(self.present())
        return ()

    def snapshot(self) -> State:
        return super().snapshot() | {"latest": np.stack(self.latest)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.latest = list(np.array(state["latest"]))


class FairVFLParty(GradientParty):
    """What active and passive parties share: stepping, and sending scores that carry a running number."""

    kept = frozenset({"sequence"})

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData) -> None:
        super().__init__(terms, name, own)
        self.options = FairVFLOptions.of(terms)
        self.optimiser = make_optimiser(self.options.optimiser, self.model.weights.size)
        self.sequence = 0

    def descend(self, gradient: Array, step: float) -> None:
        """One step (FairVFL Eq. 11)."""
        self.model.move(self.optimiser.change(gradient, step))

    def squared_move(self, moved: Array, first_gradient: Array, step: float) -> float:
        """‖θ^(t) − θ^(t+1)‖² of FairVFL Eq. 13.

        Adam's moves say nothing of stationarity: its first gradient stands in.
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

    def snapshot(self) -> State:
        return super().snapshot() | self.optimiser.snapshot()

    def restore(self, state: State) -> None:
        super().restore(state)
        self.optimiser.restore(state)


class FairVFLPassiveParty(FairVFLParty):
    """FairVFL Algorithm 3: one step for each ν."""

    def handle(self, message: Message) -> Sends:
        if message.kind not in (WEIGHTED_DERIVATIVE.kind, PRODUCT.kind):
            raise ProtocolError(f"{self.name} is passive and takes no {message.kind!r}")
        gradient = self.gradient_told(message)
        if message.integer("last"):
            return [self.gradient_norm(gradient)]
        self.round = message.integer("round")
        before, step = self.model.weights, message.number("step")
        self.descend(gradient, step)
        squared_move = self.squared_move(self.model.weights - before, gradient, step)
        return [self.send_scores(self.own_scores(), squared_move)]


class FairVFLActiveParty(FairVFLParty):
    """FairVFL Algorithm 2: up to Q local steps for each (z, λ), each with its own block refreshed."""

    kept = frozenset({"multipliers", "scores", "others", "weights_at_start", "first_gradient", "left", "step"})

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
        # Scores sent and perhaps not yet read by the server: what it sends back contains one of them.
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
            raise ProtocolError(f"{self.name}: the server says it read scores {read}, which were never sent")
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
        """One local step and its scores, while there are any left (FairVFL Algorithm 2, lines 4-9)."""
        if self.left == 0:
            return ()
        self._local_step()
        squared_move = self.squared_move(self.model.weights - self.weights_at_start, self.first_gradient, self.step)
        return [self.send_scores(self.own_scores(), squared_move)]

    def _local_step(self) -> None:
        gradient = self.gradient(self._nu())
        self.descend(gradient, self.step)
        if self.left == self.options.local_steps:
            self.first_gradient = gradient
        self.left -= 1

    def _nu(self) -> Array:
        self.effort += 10.0 * self.model.rows
        return self.lagrangian.at(self.others + self.scores).derivative(self.multipliers)

    def snapshot(self) -> State:
        return super().snapshot() | {f"unread {number}": scores.copy() for number, scores in self.unread.items()}

    def restore(self, state: State) -> None:
        super().restore(state)
        unread = {name: scores for name, scores in state.items() if name.startswith("unread ")}
        self.unread = {int(name.removeprefix("unread ")): np.array(scores) for name, scores in unread.items()}


def party(terms: VerticalTerms, name: str, own: PartyData) -> FairVFLParty:
    kind = FairVFLActiveParty if terms.participants[name] == "active" else FairVFLPassiveParty
    return kind(terms, name, own)


SOLVER = Solver(
    options=FairVFLOptions,
    server=FairVFLServer,
    party=party,
    threads=True,
    takes_weights=True,
    protections=PROTECTIONS,
    hides_labels=True,
)
