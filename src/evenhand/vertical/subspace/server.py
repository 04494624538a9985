"""The server of the subspace solver: it requests directions, combines them, and stops by the certificate.

Round:

1. The server sends every party ν, the derivative of the Lagrangian in each row's score.
2. Each party answers with its direction: the change of every row's score, and a few inner products.
3. The server solves for the best combination of directions and past steps under the inequalities.
4. It sends each party its coefficients. The multipliers of that problem give the next ν.
5. It stops when the certificate meets the tolerance, or at the round limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Point
from evenhand.constraints.losses import constant_score
from evenhand.constraints.proving import Proof
from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import LEAST_COLUMN
from evenhand.programs.combining.reduced import ReducedSolution
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import (
    COEFFICIENTS,
    DERIVATIVE,
    DIRECTION,
    GO_BACK,
    GRADIENT_NORM,
    OWN_COLUMNS,
    REACH,
    SCORES,
    SIGNS,
)
from evenhand.vertical.problem import (
    MOST_NARROW_ROUNDS,
    NARROWEST,
    ServerData,
    has_intercept,
    narrowness,
    uneven_targets,
)
from evenhand.vertical.server import Server
from evenhand.vertical.subspace.blocks import DirectionBlock, OwnBlock, PartyBlock
from evenhand.vertical.subspace.party import Subspace
from evenhand.vertical.subspace.signs import REACHES
from evenhand.vertical.subspace.stopping import (
    FEASIBLE,
    GAINS_LEFT,
    MOST_LEFT,
    MOST_LEFT_IN_REACH,
    MOST_LEFT_OF_RATES,
    PROMISE,
    BestSeen,
    RoundProgress,
)
from evenhand.vertical.subspace.tiny_problem import STEPS_OF_A_FIT, RateSchedule, TinyProblem, too_large_to_copy

SINGLE = 1e-6
"""Smallest tolerance at which the steps of a large table are kept in single precision.

Steps only span the search space. The server's scores then differ from the parties' by up to a few millionths.
"""


class SubspaceServer(Server):
    """Asks for directions, combines them, and stops by certificate."""

    state_fields: ClassVar = {
        "awaited": set[str],
        "columns_awaited": bool,
        "signs_awaited": bool,
        "own_signs": Integers,
        "scores": Array,
        "intercept_due": float,
        "decrement": float,
        "next_gain": float,
        "progress": RoundProgress,
        "closing": bool,
        "narrow_rounds": int,
        "problem": RateSchedule,
        "best": BestSeen | None,
        "blocks": list[DirectionBlock | OwnBlock],
    }

    def __init__(self, terms: VerticalTerms, own: ServerData) -> None:
        super().__init__(terms, own)
        options = terms.job.settings(Subspace)
        self.bands, self.history = options.bands_asked(terms), options.steps_kept(terms)
        self.problem = RateSchedule(self.lagrangian, options.exact_rates)
        self.tiny = TinyProblem(self.lagrangian, self.regulariser, self.job.fit_intercept, self.job.tol)
        self.sizes = {
            **self.sizes,
            "bands": self.bands,
            "basis": self.bands + self.history,
            "classes": len(REACHES),
        }
        # Where signs of weights may be bounded, two messages are beside those of other runs.
        self._bounded = options.monotone
        # Parties with an outstanding first message. In a warm start all parties send scores.
        self.awaited = set(self.parties) if terms.warm else set()
        self.columns_awaited = options.own_columns
        self.signs_awaited = options.own_columns and options.monotone
        self.own_signs: Integers = np.zeros(0, dtype=np.int64)
        self.scores: Array = np.zeros(terms.n_rows)
        self.intercept_due = 0.0
        self.decrement = self.next_gain = np.nan
        self.progress = RoundProgress()
        self.closing = False
        self.narrow_rounds = 0
        self.best: BestSeen | None = None
        # The present point, with what has been computed at it.
        self._point: Point | None = None
        self.blocks: list[PartyBlock] = [self._new_block() for _ in self.parties]

    def _new_block(self) -> DirectionBlock:
        sums, columns = self.terms.only_sums, (self.bands + self.history) * len(self.parties)
        # Where decisions are counted, rounding must not change that of a row at the threshold.
        coarse = self.job.tol >= SINGLE and not self.problem.shifted.exact.any()
        single = not sums and coarse and too_large_to_copy(columns, self.terms.n_rows)
        least = LEAST_COLUMN if sums else 0.0
        return DirectionBlock(self.bands, self.history, least, single=single, bounded=self._bounded)

    def start(self) -> Sends:
        return self._begin()

    def handle(self, message: Message) -> Sends:
        place = self.place(message)
        if message.kind == SCORES.kind and message.sender in self.awaited:
            self.awaited.remove(message.sender)
            self.scores = self.scores + message["scores"]
            self.squared_norms[place] = message.number("squared_norm")
            return self._begin()
        if message.kind == OWN_COLUMNS.kind and self.columns_awaited and message.sender == self.terms.active[0]:
            self._take_columns(place, message)
            self.columns_awaited = False
            return self._begin()
        if message.kind == SIGNS.kind and self.signs_awaited and message.sender == self.terms.active[0]:
            self.own_signs, self.signs_awaited = message["signs"], False
            return self._begin()
        block = self.blocks[place]
        if message.kind == REACH.kind and self._bounded and isinstance(block, DirectionBlock) and self._asked(message):
            block.reach = message["reach"]
            return self._combine() if all(one.answered for one in self.blocks) else ()
        if message.kind == DIRECTION.kind and isinstance(block, DirectionBlock) and self._asked(message):
            block.take(message.body)
            return self._combine() if all(one.answered for one in self.blocks) else ()
        if message.kind == GRADIENT_NORM.kind and self.closing:
            self.receive_gradient_norm(message, converged=False)
            if self.done:
                self._report(self.present())
            return ()
        raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to round {self.round}")

    def _asked(self, message: Message) -> bool:
        """Return whether an answer belongs to this round."""
        return message.integer("round") == self.round and not self.closing

    def _take_columns(self, place: int, message: Message) -> None:
        """Take the label holder's columns. If it sends none, it sends directions like all other parties."""
        columns, weights = message["columns"], message["weights"]
        if len(columns) != len(weights):
            raise ProtocolError(f"server: {message.sender} has {len(columns)} columns and {len(weights)} weights")
        if len(columns):
            intercept = has_intercept(self.terms, message.sender)
            self.blocks[place] = OwnBlock(columns, weights, self.regulariser, intercept)

    def _begin(self) -> Sends:
        """Solve for the best intercept before the first round, which needs no columns.

        Not in a warm start: there the intercept alone could meet a constraint only by spoiling the rest.
        """
        if self.awaited or self.columns_awaited or self.signs_awaited:
            return ()
        for block in self.blocks:
            if isinstance(block, OwnBlock) and self._bounded:
                block.bound(self.own_signs)
        if self.job.fit_intercept and not self.scores.any() and not self.lagrangian.loss.classifies:
            # Under constraints on means the best intercept alone may be far from any that helps.
            weights = self.lagrangian.shared(np.ones(self.terms.n_rows))
            self.scores, self._point = constant_score(self.lagrangian.loss, self.lagrangian.labels, weights), None
            self.intercept_due += float(self.scores[0])
        elif self.job.fit_intercept and not self.scores.any():
            self._accept(self.tiny.best_intercept(self.problem, self.scores, self.multipliers))
        return self._ask()

    def _ask(self) -> Sends:
        """Send ν of the coming round's problem."""
        if self.round >= self.job.max_rounds:
            return self._close()
        self.round += 1
        return self._derivative()

    def _close(self) -> Sends:
        """End without convergence at the best model seen, and ask for its gradient."""
        self.closing = True
        back: list[Message] = []
        if self.best is not None and self._seen_better():
            self.scores, self.multipliers = self.best.scores, self.best.multipliers
            self.squared_norms, self.problem.place = self.best.squared_norms, (self.best.shift, self.best.factor)
            for block in self.blocks:
                if isinstance(block, OwnBlock):
                    block.weights = self.best.own_weights
            back = [GO_BACK.message(SERVER, party, round=self.round) for party in self.parties]
        return [*back, *self._derivative()]

    def _derivative(self) -> Sends:
        self.squared_gradients = np.full(len(self.parties), np.nan)
        nu = self.present().derivative(self.multipliers)
        curvature = self._curvature()
        head = {"round": self.round, "last": int(self.closing)}
        if not self.lagrangian.loss.classifies:
            self._check_width(nu, np.sqrt(curvature))
        asked = []
        for party, block in zip(self.parties, self.blocks, strict=True):
            if isinstance(block, OwnBlock) and not self.closing:
                block.look(nu)
            else:
                asked.append(party)
        return [DERIVATIVE.message(SERVER, party, **head, nu=nu, curvature=curvature) for party in asked]

    def _check_width(self, *sent: Array) -> None:
        """Refuse targets whose derivatives parties would refuse, with the cause, which only the server knows."""
        for values in sent:
            effective, narrow = narrowness(values)
            self.narrow_rounds += narrow
            if effective < NARROWEST or self.narrow_rounds > MOST_NARROW_ROUNDS:
                raise uneven_targets(self.lagrangian, self.scores, effective)

    def _curvature(self) -> Array:
        """Return the expected curvature on each row, where ν does not tell it; else nothing."""
        loss = self.lagrangian.loss
        return self.lagrangian.shared(loss.expected_curvature(self.scores)) if self.sizes["curved"] else np.zeros(0)

    def _combine(self) -> Sends:
        """Stop if the parties' directions promise no more gain, else take the best combination of them."""
        self.squared_norms = np.array([block.squared_norm for block in self.blocks])
        self.squared_gradients = np.array([block.squared_gradient for block in self.blocks])
        self.decrement = sum(block.decrement for block in self.blocks)
        point = self.present()
        objective, misses = self.objective(point), self.problem.shifted.excess(point.exact) > 0.0
        settled, solution, before = self._settled(point), None, self.problem.place
        if settled and self.problem.unsearched:
            solution = self._solve(objective)
            holds = self.problem.shifted.excess(solution.point.exact) == 0.0
            self.next_gain = max(objective - solution.objective, 0.0) / objective if holds else 0.0
            settled = GAINS_LEFT * self.next_gain <= self.job.tol
        self.progress.missed += settled and misses
        converged = settled and not misses
        hopeless = not converged and self.progress.gives_up(
            objective, point.violation, self.problem.settling(self.round)
        )
        self.progress.objective = objective
        # Until a step is taken, reports describe the model after the round before.
        self.round -= 1
        if hopeless and self._seen_better():
            return self._close()
        self._report(point)
        if converged or hopeless:
            self.problem.place = before
            self.certify(point, converged)
            return self._return([np.zeros(block.width) for block in self.blocks], last=True)
        self.round += 1
        solution = solution or self._solve(objective)
        ends = np.cumsum([block.width for block in self.blocks])
        shares = np.split(solution.coefficients[: ends[-1]], ends[:-1])
        self._accept(solution)
        for place, (block, share) in enumerate(zip(self.blocks, shares, strict=True)):
            self.squared_norms[place] += block.go(share)
        return [*self._return(shares, last=False, keep=self._keep()), *self._ask()]

    def _keep(self) -> bool:
        """Keep the present model if its exact rates make it the best so far.

        The first rounds do not count: they solve problems with other temperatures.
        """
        if not self.problem.shifted.exact.any() or self.problem.settling(self.round):
            return False
        if self.best is None or self._rank() < self.best.rank:
            norms, place = self.squared_norms.copy(), self.problem.place
            own = next((block.weights for block in self.blocks if isinstance(block, OwnBlock)), np.zeros(0))
            self.best = BestSeen(*self._rank(), self.scores, self.multipliers, norms, *place, own)
            return True
        return False

    def _seen_better(self) -> bool:
        """Return whether an earlier model was better than the present one."""
        return self.best is not None and self.best.rank < self._rank()

    def _rank(self) -> tuple[float, float]:
        point = self.present()
        return self.problem.shifted.excess(point.exact), self.objective(point)

    def present(self) -> Point:
        """Return the present scores in the round's problem; at the end, at the requested temperatures."""
        problem = self.problem.at_round(0 if self.closing else self.round)
        if self._point is None or self._point.lagrangian is not problem or self._point.scores is not self.scores:
            self._point = problem.at(self.scores)
        return self._point

    def violation(self, point: Point) -> float:
        return self.lagrangian.constraints.bounds.violation(self.problem.values(point))

    def complementarity(self, point: Point) -> float:
        return self.lagrangian.constraints.bounds.complementarity(self.problem.values(point), self.multipliers)

    def shortfall(self) -> str:
        missed = self.problem.shifted.shortfall(self.present().exact)
        if missed == 0.0:
            return ""
        values = self.lagrangian.constraints.bounds.excess(self.problem.values(self.present())).max(axis=0)
        row = self.lagrangian.constraints.names[int(np.argmax(np.where(self.problem.shifted.exact, values, -np.inf)))]
        return (
            f"no model was found that meets the bounds on exact training rates: {row} exceeds its bound by "
            f"{missed:.2g} at best. Its slices may be too small for the bound; widen it or merge groups"
            + ("" if self.problem.steps > 0 else f". The search ended at its limit of {STEPS_OF_A_FIT} Newton steps")
        )

    def proofs(self) -> list[Proof]:
        if not self.problem.proving.asks:
            return []
        rows = self.lagrangian
        values, errors = rows.constraints.reported(rows.labels, self.scores, rows.loss)
        return self.problem.proving.proofs(values, errors, self.problem.optimism)

    def statistics(self) -> dict[str, Any]:
        """Return the relative gain of another round, if the run has stopped by it, and the use of sharper rates."""
        found = {} if np.isnan(self.next_gain) else {"gain of another round": self.next_gain}
        return found if self.problem.factor == 1.0 else {**found, "factor on the temperature": self.problem.factor}

    def _settled(self, point: Point) -> bool:
        """Return whether the constraints hold, the bound is near tol, and the last round has gained little."""
        objective, tol, left = self.objective(point), self.job.tol, self.distance(point).value
        slack = max(point.violation, point.complementarity(self.multipliers))
        if self.problem.moves:
            near = self.decrement <= PROMISE * tol * objective if left is None else left <= MOST_LEFT_OF_RATES * tol
        else:
            # A round without any gain has reached the precision of the messages.
            most = MOST_LEFT_IN_REACH if self._bounded else MOST_LEFT
            near = left is None or left <= most * tol or self.progress.gained_little(objective, 1e-3 * tol)
        return (
            slack <= FEASIBLE
            and near
            and self.progress.gained_little(objective, tol)
            and not self.problem.settling(self.round)
        )

    def _solve(self, objective: float) -> ReducedSolution:
        """Solve the tiny problem over the columns of all parties."""
        solution = self.tiny.solve(
            self.problem,
            self.round,
            self.blocks,
            self.present,
            self.multipliers,
            squared_norm=float(self.squared_norms.sum()),
            decrement=self.decrement,
            objective=objective,
        )
        self.effort += self.tiny.effort
        return solution

    def _accept(self, solution: ReducedSolution) -> None:
        self._point, self.scores = solution.point, solution.point.scores
        self.multipliers = solution.multipliers
        if self.job.fit_intercept:
            self.intercept_due += float(solution.coefficients[-1])

    def _return(self, shares: Sequence[Array], *, last: bool, keep: bool = False) -> Sends:
        sends = []
        for party, block, share in zip(self.parties, self.blocks, shares, strict=True):
            intercept = self.intercept_due if party == self.terms.active[0] else 0.0
            # Padded with zeros where a party has fewer steps.
            size = len(share) if isinstance(block, OwnBlock) else self.bands + self.history
            body = {"coefficients": np.pad(share, (0, size - len(share))), "intercept": intercept}
            sends.append(COEFFICIENTS.message(SERVER, party, round=self.round, last=int(last), keep=int(keep), **body))
        self.intercept_due = 0.0
        return sends

    def _report(self, worked_on: Point) -> None:
        point = worked_on if worked_on.lagrangian is self.lagrangian else self.lagrangian.at(self.scores)
        stationarity, complementarity = np.sqrt(self.squared_gradients.sum()), self.complementarity(point)
        extra = {"stationarity": stationarity, "complementarity": complementarity, "decrement": self.decrement}
        known = {name: value for name, value in self.distance(worked_on)._asdict().items() if value is not None}
        self.reports.append({"round": self.round, **self.row_report(point), **extra, **known})
