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
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Point
from evenhand.constraints.losses import constant_score
from evenhand.constraints.proving import Proof
from evenhand.constraints.slices import stated
from evenhand.errors import ProtocolError
from evenhand.models.uncertainty import covariance
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
    LEVERAGES,
    OWN_COLUMNS,
    REACH,
    SCORES,
    SIGNS,
)
from evenhand.vertical.problem import (
    MOST_NARROW_ROUNDS,
    NARROWEST,
    ServerData,
    check_even,
    has_intercept,
    narrowness,
    outputs,
)
from evenhand.vertical.server import Server
from evenhand.vertical.subspace.blocks import DirectionBlock, OwnBlock, PartyBlock
from evenhand.vertical.subspace.party import Subspace
from evenhand.vertical.subspace.rate_search import STEPS_OF_A_FIT, RateSchedule
from evenhand.vertical.subspace.signs import REACHES
from evenhand.vertical.subspace.stopping import (
    FEASIBLE,
    GAINS_LEFT,
    MOST_LEFT_IN_REACH,
    MOST_LEFT_OF_RATES,
    PROMISE,
    BestSeen,
    RoundProgress,
    likely_left,
)
from evenhand.vertical.subspace.tiny_problem import TinyProblem, too_large_to_copy

SINGLE = 1e-6
"""Smallest tolerance at which the steps of a large table are kept in single precision.

Steps only span the search space. The server's scores then differ from the parties' by up to a few millionths.
"""

HALVINGS = 60
"""How many times multipliers are halved before derivatives count as narrow without them."""


class SubspaceServer(Server):
    """Asks for directions, combines them, and stops by certificate."""

    state_fields: ClassVar = {
        "awaited": set[str],
        "columns_awaited": bool,
        "leverages_awaited": set[str],
        "follows": Array,
        "signs_awaited": bool,
        "own_signs": Integers,
        "scores": Array,
        "intercept_due": Array,
        "decrement": float,
        "next_gain": float,
        "left": float,
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
        leaves_out = options.leaves_out(terms)
        self.problem = RateSchedule(self.lagrangian, options.exact_rates, judged=leaves_out)
        self.outputs = outputs(terms)
        self.tiny = TinyProblem(self.lagrangian, self.regulariser, self.job.fit_intercept, self.job.tol, self.outputs)
        basis = self.bands + self.history
        self.sizes = {**self.sizes, "basis": basis, "lines": self.outputs * self.bands, "slopes": self.outputs * basis}
        self.sizes["classes"] = len(REACHES)
        # Where signs of weights may be bounded, two messages are beside those of other runs.
        self._bounded = options.monotone
        # Parties with an outstanding first message. In a warm start all parties send scores.
        self.awaited = set(self.parties) if terms.warm else set()
        self.columns_awaited = options.own_columns
        self.leverages_awaited = set(self.parties) if leaves_out else set()
        # How far each row's score follows its own derivative; the intercept's part does not differ between rows.
        self.follows: Array = np.full(terms.n_rows if leaves_out else 0, self.job.fit_intercept / max(terms.n_rows, 1))
        self.signs_awaited = options.own_columns and options.monotone
        self.own_signs: Integers = np.zeros(0, dtype=np.int64)
        self.scores: Array = np.zeros((self.outputs, terms.n_rows) if self.job.classes else terms.n_rows)
        self.intercept_due: Array = np.zeros(self.outputs)
        self.decrement = self.next_gain = self.left = np.nan
        self.progress = RoundProgress()
        self.closing = False
        self.narrow_rounds = 0
        self.best: BestSeen | None = None
        # The present point, with what has been computed at it.
        self._point: Point | None = None
        # Those of all parties for the first output, then for the next.
        self.blocks: list[PartyBlock] = [self._new_block() for _ in range(self.outputs) for _ in self.parties]

    def _new_block(self) -> DirectionBlock:
        sums, columns = self.terms.only_sums, (self.bands + self.history) * len(self.parties) * self.outputs
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
            self.scores = self.scores + message["scores"].reshape(self.scores.shape)
            self.squared_norms[place] = message.number("squared_norm")
            return self._begin()
        if message.kind == OWN_COLUMNS.kind and self.columns_awaited and message.sender == self.terms.active[0]:
            self._take_columns(place, message)
            self.columns_awaited = False
            return self._begin()
        if message.kind == LEVERAGES.kind and message.sender in self.leverages_awaited:
            self.leverages_awaited.remove(message.sender)
            self.follows = self.follows + np.maximum(message["leverages"], 0.0)
            return self._begin()
        if message.kind == SIGNS.kind and self.signs_awaited and message.sender == self.terms.active[0]:
            self.own_signs, self.signs_awaited = message["signs"], False
            return self._begin()
        block = self.blocks[place]
        if message.kind == REACH.kind and self._bounded and isinstance(block, DirectionBlock) and self._asked(message):
            block.limit(message["reach"])
            return self._combine() if all(one.answered for one in self.blocks) else ()
        if message.kind == DIRECTION.kind and self._directed(place) and self._asked(message):
            self._take_direction(place, message)
            return self._combine() if all(one.answered for one in self.blocks) else ()
        if message.kind == GRADIENT_NORM.kind and self.closing:
            self.receive_gradient_norm(message, converged=False)
            if self.certificate is not None:
                converged = self._suffices()
                unmet = None if converged else self.certificate.unmet
                self.certificate = replace(self.certificate, converged=converged, unmet=unmet)
                self._report(self.present())
            return ()
        raise ProtocolError(f"server: {message.kind!r} from {message.sender} does not belong to round {self.round}")

    def _asked(self, message: Message) -> bool:
        """Return whether an answer belongs to this round."""
        return message.integer("round") == self.round and not self.closing

    def _take_columns(self, place: int, message: Message) -> None:
        """Take the label holder's columns. If it sends none, it sends directions like all other parties."""
        columns, weights = message["columns"], message["weights"]
        if len(columns) != weights.shape[1]:
            raise ProtocolError(f"server: {message.sender} has {len(columns)} columns and {weights.shape[1]} weights")
        if len(columns):
            intercept = has_intercept(self.terms, message.sender)
            for output, own in enumerate(weights):
                self.blocks[self._block(place, output)] = OwnBlock(columns, own, self.regulariser, intercept)

    def _block(self, place: int, output: int) -> int:
        """Return the index of a party's block for an output."""
        return output * len(self.parties) + place

    def _blocks_of(self, place: int) -> list[PartyBlock]:
        """Return a party's blocks, one for each output."""
        return self.blocks[place :: len(self.parties)]

    def _directed(self, place: int) -> bool:
        """Return whether a party sends directions."""
        return isinstance(self.blocks[place], DirectionBlock)

    def _take_direction(self, place: int, message: Message) -> None:
        """Give each of a party's blocks the part of its message that is about the block's output."""
        totals = {name: message[name] for name in ("squared_norm", "squared_gradient", "decrement")}
        parts = {name: np.split(message[name], self.outputs) for name in ("scores", "gram", "linear")}
        for output, block in enumerate(self._blocks_of(place)):
            assert isinstance(block, DirectionBlock)
            # The party's totals count once.
            own = {name: total if output == 0 else np.zeros_like(total) for name, total in totals.items()}
            block.take({**own, **{name: part[output] for name, part in parts.items()}})

    def _begin(self) -> Sends:
        """Solve for the best intercept before the first round, which needs no columns.

        Not in a warm start: there the intercept alone could meet a constraint only by spoiling the rest.
        """
        if self.awaited or self.columns_awaited or self.leverages_awaited or self.signs_awaited:
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
        self.closing, self.left = True, np.nan
        back: list[Message] = []
        if self.best is not None and self._seen_better():
            self.scores, self.multipliers = self.best.scores, self.best.multipliers
            self.squared_norms, self.problem.place = self.best.squared_norms, (self.best.shift, self.best.factor)
            self.problem.drift, self.problem.judged = self.best.drift, True
            owns = [block for block in self.blocks if isinstance(block, OwnBlock)]
            for block, weights in zip(owns, self.best.own_weights, strict=True):
                block.weights = weights
            back = [GO_BACK.message(SERVER, party, round=self.round) for party in self.parties]
        return [*back, *self._derivative()]

    def _derivative(self) -> Sends:
        self.squared_gradients = np.full(len(self.parties), np.nan)
        curvature = self._curvature()
        nu = self._answerable(np.sqrt(curvature))
        head = {"round": self.round, "last": int(self.closing)}
        asked = []
        for place, party in enumerate(self.parties):
            if self._directed(place) or self.closing:
                asked.append(party)
                continue
            for block, own in zip(self._blocks_of(place), nu.reshape(self.outputs, -1), strict=True):
                assert isinstance(block, OwnBlock)
                block.look(own)
        return [DERIVATIVE.message(SERVER, party, **head, nu=nu.ravel(), curvature=curvature) for party in asked]

    def _answerable(self, bends: Array) -> Array:
        """Return ν, at multipliers under which parties answer it.

        Under bounds that a slice of a few rows cannot meet, multipliers grow until these rows have nearly all the
        weight. Smaller ones then take their place: they start the next problem, and the certificate is stated at them.
        """
        nu = self.present().derivative(self.multipliers)
        if not self.terms.passive:
            return nu
        widest = narrowness(bends)
        for _ in range(HALVINGS):
            least, narrow = narrowness(nu)
            if self._answers(least, narrow) or not self.multipliers.any():
                break
            self.multipliers = 0.5 * self.multipliers
            nu = self.present().derivative(self.multipliers)
        for least, narrow in (narrowness(nu), widest):
            if not self._answers(least, narrow) and not self.terms.hides_nu:
                # Parties do not know the cause.
                check_even(self.job, self.lagrangian, self.scores, least)
            self.narrow_rounds += narrow
        return nu

    def _answers(self, least: float, narrow: int) -> bool:
        """Return whether parties answer derivatives of so few effective rows, after earlier ones."""
        return least >= NARROWEST and self.narrow_rounds + narrow <= MOST_NARROW_ROUNDS

    def _curvature(self) -> Array:
        """Return the expected curvature on each row, where ν does not tell it; else nothing."""
        loss = self.lagrangian.loss
        return self.lagrangian.shared(loss.expected_curvature(self.scores)) if self.sizes["curved"] else np.zeros(0)

    def _combine(self) -> Sends:
        """Stop if the parties' directions promise no more gain, else take the best combination of them."""
        self.squared_norms = self._by_party([block.squared_norm for block in self.blocks])
        self.squared_gradients = self._by_party([block.squared_gradient for block in self.blocks])
        self.decrement = sum(block.decrement for block in self.blocks)
        point = self.present()
        objective, misses = self.objective(point), self.problem.shifted.excess(point.exact) > 0.0
        unjudged = not (self.problem.judged or self.problem.settling(self.round))
        misses |= unjudged or bool(self.problem.missed(point).any())
        settled, solution, before = self._settled(point), None, self.problem.place
        self.left = np.nan
        if settled and self.problem.unsearched:
            solution = self._solve(objective)
            holds = self.problem.shifted.excess(solution.point.exact) == 0.0
            self.next_gain = (
                max(objective - solution.objective, 0.0) / max(objective, float(np.finfo(float).tiny)) if holds else 0.0
            )
            if self.problem.moves:
                settled = GAINS_LEFT * self.next_gain <= self.job.tol
            else:
                last, bound = self.progress.last_gain(objective), self.distance(point).value
                self.left = likely_left(self.next_gain, last, bound, self.job.tol)
                settled = self.left <= self.job.tol
        self.progress.missed += settled and misses
        converged = settled and not misses
        hopeless = not converged and self.progress.gives_up(
            objective, point.violation, self.problem.settling(self.round)
        )
        self.progress.objective = objective
        # Until a step is taken, reports describe the model after the round before.
        self.round -= 1
        if hopeless and settled and self.problem.suffices(point):
            converged = True
        elif hopeless and self._seen_better():
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
        self.squared_norms += self._by_party([one.go(share) for one, share in zip(self.blocks, shares, strict=True)])
        return [*self._return(shares, last=False, keep=self._keep()), *self._ask()]

    def _suffices(self) -> bool:
        """Return whether the best model is as good as one that ends a run, where aims moved on from it.

        A round met all criteria but the aims; the best model meets the requested bounds on both kinds of rows.
        """
        point = self.present()
        left = self.distance(point).value
        near = left is not None and left <= MOST_LEFT_OF_RATES * self.job.tol
        return self.progress.missed > 0 and self.problem.suffices(point) and near

    def _keep(self) -> bool:
        """Keep the present model if its exact rates make it the best so far.

        The first rounds do not count: they solve problems with other temperatures. Nor do models that are not measured
        on left-out rows: among those that are, they would seem to be the best.
        """
        if not self.problem.shifted.exact.any() or self.problem.settling(self.round) or not self.problem.judged:
            return False
        if self.best is None or self._rank() < self.best.rank:
            norms, place = self.squared_norms.copy(), self.problem.place
            own = [block.weights for block in self.blocks if isinstance(block, OwnBlock)]
            drift = self.problem.drift
            self.best = BestSeen(*self._rank(), self.scores, self.multipliers, norms, *place, drift, np.array(own))
            return True
        return False

    def _seen_better(self) -> bool:
        """Return whether an earlier model was better than the present one."""
        return self.best is not None and self.best.rank < self._rank()

    def _rank(self) -> tuple[float, float]:
        point = self.present()
        return self.problem.excess(point), self.objective(point)

    def present(self) -> Point:
        """Return the present scores in the round's problem; at the end, at the requested temperatures."""
        problem = self.problem.at_round(0 if self.closing else self.round)
        if self._point is None or self._point.lagrangian is not problem or self._point.scores is not self.scores:
            self._point = problem.at(self.scores)
        return self._point

    def violation(self, point: Point) -> float:
        return self.lagrangian.constraints.bounds.violation(self.problem.values(point))

    def complementarity(self, point: Point) -> float:
        # Multipliers belong to the bounds that the model was trained under, which may be tighter than the requested.
        return self.problem.shifted.aim.complementarity(self.problem.values(point), self.multipliers)

    def shortfall(self) -> str:
        missed = self.problem.shifted.shortfall(self.present().exact)
        if missed == 0.0:
            return self.problem.proving.told(self.problem.missed(self.present()))
        values = self.lagrangian.constraints.bounds.excess(self.problem.values(self.present())).max(axis=0)
        row = self.lagrangian.constraints.names[int(np.argmax(np.where(self.problem.shifted.exact, values, -np.inf)))]
        return (
            f"no model was found that meets the bounds on exact training rates: {row} exceeds its bound by "
            f"{missed:.2g} at best. Its slices may be too small for the bound; widen it or merge groups"
            + ("" if self.problem.steps > 0 else f". The search ended at its limit of {STEPS_OF_A_FIT} Newton steps")
        )

    def unmet(self) -> str:
        told, tol = self.shortfall(), self.job.tol
        if told:
            return told
        point = self.present()
        if point.violation > FEASIBLE:
            return f"no model was found that meets the constraints: the worst is missed by {point.violation:.1e}"
        slack, left = point.complementarity(self.multipliers), self.distance(point).value
        left = left if np.isnan(self.left) else self.left
        if slack > FEASIBLE:
            return f"a multiplier times the slack of its constraint is {slack:.1e}, where {FEASIBLE:g} is allowed"
        if left is not None and left > tol:
            return f"the objective may be {left:.1e} of itself above the least one, where tol allows {tol:g}"
        return "the last round lowered the objective, or exact rates moved, by more than the stopping rule allows"

    def proofs(self) -> list[Proof]:
        if not self.problem.proving.asks:
            return []
        rows = self.lagrangian
        values, errors = rows.constraints.reported(rows.labels, self.scores, rows.loss)
        return self.problem.proving.proofs(values, errors, self.problem.optimism)

    def statistics(self) -> dict[str, Any]:
        """Return the relative gain of another round, if the run has stopped by it, and the use of sharper rates.

        With constraints, also what each inequality is on training rows and on left-out ones, and what was asked.
        """
        found: dict[str, Any] = {} if np.isnan(self.next_gain) else {"gain of another round": self.next_gain}
        if self.problem.factor != 1.0:
            found["factor on the temperature"] = self.problem.factor
        rows, values = self.lagrangian.constraints, self.problem.values(self.present())
        if len(rows):
            known = self.problem.proving.tightens and self.problem.judged
            left_out = values + self.problem.drift if known else None
            found["constraints"] = stated(rows.names, rows.bounds, values, left_out)
        return found

    def uncertainty(self, party: str) -> Array | None:
        block = self.blocks[self.parties.index(party)]
        if not isinstance(block, OwnBlock) or self.outputs > 1 or self.job.label_privacy is not None:
            return None
        point = self.present()
        nu = point.derivative(self.multipliers)
        return covariance(block.columns.T, nu, point.loss_curvature(), self.regulariser)

    def _settled(self, point: Point) -> bool:
        """Return whether the constraints hold after a step; with rates or signs, also whether the bound is near."""
        objective, tol, left = self.objective(point), self.job.tol, self.distance(point).value
        slack, last = max(point.violation, point.complementarity(self.multipliers)), self.progress.last_gain(objective)
        if self.problem.moves:
            near = self.decrement <= PROMISE * tol * objective if left is None else left <= MOST_LEFT_OF_RATES * tol
            near &= last <= 0.5 * tol
        else:
            # A round without any gain has reached the precision of the messages.
            within = left is None or not self._bounded or left <= MOST_LEFT_IN_REACH * tol
            near = np.isfinite(last) and (within or last <= 5e-4 * tol)
        return slack <= FEASIBLE and bool(near) and not self.problem.settling(self.round)

    def certify(self, point: Point, converged: bool) -> None:
        super().certify(point, converged)
        if self.certificate is not None and self.regulariser > 0.0 and not np.isnan(self.left):
            self.certificate = replace(self.certificate, estimate=self.left)

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
            follows=self.follows if len(self.follows) else None,
        )
        self.effort += self.tiny.effort
        return solution

    def _accept(self, solution: ReducedSolution) -> None:
        self._point, self.scores = solution.point, solution.point.scores
        self.multipliers = solution.multipliers
        if self.job.fit_intercept:
            self.intercept_due = self.intercept_due + solution.coefficients[-self.outputs :]

    def _return(self, shares: Sequence[Array], *, last: bool, keep: bool = False) -> Sends:
        sends = []
        for place, party in enumerate(self.parties):
            own = shares[place :: len(self.parties)]
            # Padded with zeros where a party has fewer steps.
            size = self.bands + self.history if self._directed(place) else len(own[0])
            coefficients = np.concatenate([np.pad(share, (0, size - len(share))) for share in own])
            intercept = self.intercept_due if party == self.terms.active[0] else np.zeros(self.outputs)
            body = {"coefficients": coefficients, "intercept": intercept}
            sends.append(COEFFICIENTS.message(SERVER, party, round=self.round, last=int(last), keep=int(keep), **body))
        self.intercept_due = np.zeros(self.outputs)
        return sends

    def _by_party(self, values: Sequence[float]) -> Array:
        """Sum values of blocks over the outputs of each party."""
        return np.reshape(values, (self.outputs, -1)).sum(axis=0)

    def _report(self, worked_on: Point) -> None:
        point = worked_on if worked_on.lagrangian is self.lagrangian else self.lagrangian.at(self.scores)
        stationarity, complementarity = np.sqrt(self.squared_gradients.sum()), self.complementarity(point)
        extra = {"stationarity": stationarity, "complementarity": complementarity, "decrement": self.decrement}
        known = {name: value for name, value in self.distance(worked_on)._asdict().items() if value is not None}
        self.reports.append({"round": self.round, **self.row_report(point), **extra, **known})
