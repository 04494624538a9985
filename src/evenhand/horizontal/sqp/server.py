"""The server of sequential quadratic programming: one quadratic program a round, over sums of the clients' answers.

Round:

1. The server sends clients a few trial models and the multipliers.
2. Clients answer with values at each model, and with first and second derivatives at the first of them.
3. The server adds up the answers and solves one convex quadratic program for the next step.
4. With constraints on exact rates or on new people, clients also count people. Whenever the program under the present
   bounds is solved, the bounds move (`moving.py`); the best solution so far is kept.
5. It stops when the certificate meets the tolerances, or at the round limit, and sends the final model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.leave_one_out import Response
from evenhand.constraints.proving import Proof
from evenhand.constraints.slices import Bounds, stated
from evenhand.errors import DataError, DivergenceError, ProtocolError
from evenhand.horizontal.program_server import ProgramServer, ServerPart
from evenhand.horizontal.sqp.client import symmetric, upper_triangle
from evenhand.horizontal.sqp.counting import CountedParts, CountedRows
from evenhand.horizontal.sqp.cutting import CutSearch
from evenhand.horizontal.sqp.messages import FINISH, JUDGED, LEAVE_OUT, LEFT_OUT, TRIALS, VOCABULARY
from evenhand.horizontal.sqp.moving import MovingBounds, Seen, Verdict
from evenhand.horizontal.sqp.options import LENGTHS, SQP
from evenhand.horizontal.sqp.search import Evaluation, SQPModel, bfgs
from evenhand.horizontal.sqp.sharpening import SharpSearch
from evenhand.programs.elastic_qp import PENALTY_LIMIT, QuadraticStep
from evenhand.programs.optimality import SHARED, Residual, SolveStatus
from evenhand.programs.program import Program
from evenhand.programs.slices import SliceProgram
from evenhand.protocol.asking import Body
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends

MOST_DAMPING = 1e6
FAR = 10.0
"""Objective, in multiples of the first one, beyond which a problem with moved bounds leads nowhere."""
LONGEST = 30
"""Most rounds of a problem with moved bounds; most take two to ten."""
Stage: TypeAlias = Literal["first", "search", "corrected", "confirm", "left out", "cut", "sharpen", "last"]


class SQPServer(ProgramServer):
    """Server with w and the multipliers of all inequalities.

    Parameters
    ----------
    counted
        Slices in which people are counted; None if no constraint bounds a rate.
    counting
        The server's own rows of data, if it has any.
    centres
        Whether the run starts from the intercept that predicts the mean target, with a log link. The gradient at zero
        tells the mean, and one more round gives the derivatives there.
    judged
        Whether bounds on exact rates are judged on left-out rows.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "trials": Array,
        "net": Array,
        "stage": Stage,
        "penalty": float,
        "damping": float,
        "best": float,
        "fallback": Array,
        "fallback_merit": float,
        "moving": MovingBounds,
        "cuts": CutSearch | None,
        "sharp": SharpSearch | None,
        "kept": Seen | None,
        "measured": list[Seen],
        "last": bool,
        "first": float,
        "moved_at": int,
        "evaluation": Evaluation | None,
        "found": QuadraticStep | None,
    }

    def __init__(
        self,
        own: ServerPart,
        options: SQP,
        counted: CountedParts | None = None,
        counting: CountedRows | None = None,
        *,
        centres: bool = False,
        judged: bool = False,
    ) -> None:
        size = len(own.start)
        self.exact = options.is_exact(size)
        sizes = {"weights": size, "shared": own.shared.n_rows, "trials": len(LENGTHS)}
        sizes["curvature"] = size * (size + 1) // 2 if self.exact else 0
        sizes["shared parts"] = 0 if counted is None else len(counted.shared.parts)
        super().__init__(own, sizes)
        self.options = options
        self.centres = centres
        self.counted, self.counting = counted, counting
        self.moving = MovingBounds(self.bounds, counted, options.exact_rates, leaves_out=self.exact, judged=judged)
        self._remodel()
        self.trials: Array = np.tile(own.start, (len(LENGTHS), 1))
        self.net: Array = np.zeros(self.bounds.n_rows)
        self.evaluation: Evaluation | None = None
        self.found: QuadraticStep | None = None
        self.stage: Stage = "first"
        self.penalty, self.damping, self.best = options.penalty, 0.0, np.inf
        self.cuts: CutSearch | None = None
        self.sharp: SharpSearch | None = None
        # The best model before the search with sharper rates; whether that after it is measured.
        self.kept: Seen | None = None
        self.measured: list[Seen] = []
        self.last = False
        # The first objective, and the round in which bounds last moved.
        self.first, self.moved_at = 0.0, 0
        self._tempered: tuple[float, Program | None, CountedRows | None] = (1.0, own.program, counting)
        # The best acceptable fraction of the current step, while a correction of it is evaluated.
        self.fallback: Array = self.trials[0].copy()
        self.fallback_merit = np.inf

    @property
    def _own_rows(self) -> tuple[Program | None, CountedRows | None]:
        """The server's own program and counted rows, at the present temperature of rates."""
        factor = self.moving.factor
        if factor == 1.0 or not isinstance(self.program, SliceProgram):
            return self.program, self.counting
        if factor != self._tempered[0]:
            program = self.program.tempered(factor)
            self._tempered = factor, program, None if self.counting is None else self.counting.tempered(program, factor)
        return self._tempered[1:]

    @property
    def _limit(self) -> int:
        """The last round of the run, or of the search with sharper rates."""
        limit = self.options.round_limit
        return limit if self.sharp is None or not self.sharp.open else min(limit, self.sharp.until)

    def _remodel(self) -> None:
        """Rebuild the program for the current bounds."""
        self.feasibility = self.moving.finest(self.options.tolerances[1])
        self.most_beyond = self.moving.most_beyond(self.options.tolerances[1])
        self.model = self.make_model(self.moving.bounds, 0.5 * self.most_beyond)

    def make_model(self, bounds: Bounds, allowed: float) -> SQPModel:
        return SQPModel(bounds, allowed)

    @property
    def _last(self) -> Seen | Evaluation | None:
        """The solution to return if the run ends here."""
        return self.moving.seen or self.evaluation

    @property
    def answer(self) -> Array:
        if self.done and self.moving.seen is not None:
            return self.moving.seen.weights
        return self.trials[0] if self.evaluation is None else self.evaluation.weights

    def shortfall(self) -> str:
        last = self._last
        return "" if last is None else self.moving.shortfall(last.exact, last.errors, self.row_names)

    def proofs(self) -> list[Proof]:
        return [] if self._last is None else self.moving.proofs(self._last.exact, self._last.errors)

    def record(self) -> dict[str, Any]:
        """Return each inequality's value on training rows and on left-out ones, and what was asked."""
        if self._last is None or not self.row_names:
            return {}
        values = self.moving.shifted.meant(self._last.exact, self._last.rows)
        left_out = values + self.moving.drift if self.moving.proving.tightens else None
        return {"constraints": stated(self.row_names, self.bounds, values, left_out)}

    def sizes_of(self, client: str) -> dict[str, int]:
        parts = 0 if self.counted is None else len(self.counted.own[client].parts)
        return super().sizes_of(client) | {"own parts": parts}

    def tables(self) -> dict[str, Array]:
        whole = np.stack([np.maximum(self.net, 0.0), np.maximum(-self.net, 0.0)])
        return {name: whole[:, place] for name, place in self.places.items()}

    def start(self) -> Sends:
        return self._ask()

    def handle(self, message: Message) -> Sends:
        awaited = LEFT_OUT.kind if self.stage == "left out" else JUDGED.kind
        if self.done or message.kind != awaited or message.integer("round") != self.rounds + 1:
            raise ProtocolError(f"the server takes no such {message.kind!r} from {message.sender} at this point")
        self.answers.add(message)
        if not self.answers.complete([awaited], list(self.clients)):
            return ()
        bodies = self.answers.of(awaited)
        self.answers.clear()
        self.rounds += 1
        return self._compare(bodies) if awaited == LEFT_OUT.kind else self._decide(*self._gather(bodies))

    # -- one round

    def _ask(self) -> Sends:
        body: dict[str, Any] = {
            "round": self.rounds + 1,
            "factor": self.moving.factor,
            "trials": self.trials,
            "shared_net": self.net[self.places[SHARED]],
        }
        return [TRIALS.message(SERVER, name, own_net=self.net[self.places[name]], **body) for name in self.clients]

    def _gather(self, bodies: Mapping[str, Body]) -> tuple[Array, Array, Evaluation]:
        """Return values (T,) and inequalities (T, M) of all trials, and all functions at the first of them."""
        count, size = len(LENGTHS), self.trials.shape[1]
        values, gradient = np.zeros(count), np.zeros(size)
        rows, jacobian = np.zeros((count, len(self.net))), np.zeros((len(self.net), size))
        upper = np.zeros((2, self.sizes["curvature"]))
        together = self.places[SHARED]
        for name, body in bodies.items():
            values += body["values"]
            gradient += body["gradient"]
            upper += [body["curvature"], body["objective_curvature"]]
            rows[:, self.places[name]], jacobian[self.places[name]] = body["own"], body["own_slopes"]
            rows[:, together] += body["shared"]
            jacobian[together] += body["shared_slopes"]
        curvature, metric = (symmetric(part, size) for part in upper)
        program, counting = self._own_rows
        if program is not None:
            points = [program.at(trial) for trial in self.trials]
            values += [point.value for point in points]
            gradient += points[0].gradient
            rows[:, self.places[SERVER]] = [point.constraints for point in points]
            jacobian[self.places[SERVER]] = points[0].jacobian
            if self.exact:
                net = self.net[self.places[SERVER]]
                curvature += points[0].hessian(net)
                metric += points[0].hessian(np.zeros_like(net))
            self.effort += program.effort * (0.5 * count + 1.0)
        at_server = None if counting is None else counting.at(self.trials[0])[0]
        exact, errors = self.moving.count(bodies, at_server, rows[0], first=not self.outer)
        if not self.outer:
            self._remodel()
        first = Evaluation(
            self.trials[0].copy(), float(values[0]), gradient, rows[0], exact, errors, jacobian, curvature, metric
        )
        return values, rows, first

    def _decide(self, values: Array, rows: Array, first: Evaluation) -> Sends:
        """Choose the next move.

        It takes the full step, a corrected step, or a fraction, which needs another round for its derivatives. If none
        is acceptable, it increases the damping.
        """
        if self.stage == "first" and self.centres:
            return self._centre(1.0 - float(first.gradient[-1]))
        if self.stage == "cut":
            return self._cut(values, first)
        if self.stage in ("first", "confirm"):
            return self._move(first)
        if self.stage == "sharpen":
            self.moving.keep(first)
            self._remodel()
            self.best, self.damping, self.moved_at = np.inf, 0.0, self.rounds
            return self._move(first)
        if self.stage == "last":
            self.evaluation, self.last = first, True
            return self._leave_out(first)
        assert self.evaluation is not None
        assert self.found is not None
        merits = self.model.acceptable(self.evaluation, self.found, self.trials, values, rows)
        if np.isfinite(merits[0]):
            if self.stage == "search":
                self.damping = 0.1 * self.damping if self.damping > 1e-6 else 0.0
            return self._move(first)
        if self._badness(self.model.residual(first, self.net)) <= 0.5 * self.best:
            return self._move(first)
        if self.rounds > self._limit:
            # Clients answer no more than one question beyond the rounds of the terms.
            return self._finish(SolveStatus.LIMIT)
        place = int(np.argmin(merits))
        if merits[place] < self.fallback_merit:
            self.fallback, self.fallback_merit = self.trials[place].copy(), merits[place]
        bent = not np.isfinite(merits[1])
        if self.stage == "search" and bent and self.model.missed(rows[0]) > self.model.missed(self.evaluation.rows):
            return self._correct(rows[0])
        if np.isfinite(self.fallback_merit):
            self.stage = "confirm"
            self.trials = np.tile(self.fallback, (len(LENGTHS), 1))
            return self._ask()
        self.damping = max(10.0 * self.damping, 1e-3)
        if self.damping > MOST_DAMPING or self.rounds >= self._limit:
            return self._finish(SolveStatus.STALLED if self.damping > MOST_DAMPING else SolveStatus.LIMIT)
        return self._step()

    def _centre(self, mean: float) -> Sends:
        """Start from the intercept for this mean target: at zero its loss has the slope 1 − y on every row."""
        if mean <= 0.0:
            raise DataError("all targets of all clients are zero; the loss needs some above zero")
        start = np.zeros_like(self.trials[0])
        start[-1] = np.log(mean)
        self.trials = np.tile(start, (len(LENGTHS), 1))
        self.stage = "confirm"
        return self._ask()

    def _correct(self, rows: Array) -> Sends:
        """Evaluate a second-order correction, and the arc w + αp + α²(p′ − p) that leads to it."""
        assert self.evaluation is not None
        assert self.found is not None
        bent = self.model.corrected(self.evaluation, self.found, self.damping, rows) - self.found.step
        lengths = np.array(LENGTHS)[:, None]
        self.trials = self.model.settled(self.evaluation.weights + lengths * self.found.step + lengths**2 * bent)
        self.stage = "corrected"
        return self._ask()

    def _move(self, to: Evaluation) -> Sends:
        if not np.isfinite(to.value):
            raise DivergenceError("the objective became infinite or NaN; scale the features, or start nearer to zero")
        if not self.exact:
            to = self._with_bfgs(to)
        self.evaluation = to
        self.outer += 1
        if self.outer == 1:
            self.first = abs(to.value)
        if self._astray(to):
            return self._finish(SolveStatus.STALLED)
        return self._step()

    def _astray(self, at: Evaluation) -> bool:
        """Return whether a problem with moved bounds leads nowhere: its loss grows without end, or it takes long."""
        if self.moving.seen is None and self.moving.earlier is None:
            return False
        return at.value > FAR * (self.first + 1.0) or self.rounds - self.moved_at > LONGEST

    def _with_bfgs(self, to: Evaluation) -> Evaluation:
        before = self.evaluation
        matrix: Array | None = None
        if before is None:
            matrix = np.eye(len(to.weights))
        else:
            change = to.gradient - before.gradient + self.net @ (to.jacobian - before.jacobian)
            matrix = bfgs(None if self.outer == 1 else before.curvature, to.weights - before.weights, change)
        return replace(to, curvature=matrix, objective_curvature=matrix)

    def _step(self) -> Sends:
        """Solve the quadratic program at w, evaluate (w, y), and continue or end."""
        assert self.evaluation is not None
        options, evaluation = self.options, self.evaluation
        self._solve(evaluation)
        present = self.model.residual(evaluation, self.net)
        # If nobody is counted, bounds do not move.
        self.residual = present if self.counted is None else self._as_asked(evaluation)
        self.best = min(self.best, self._badness(present))
        self._report(evaluation.rows, evaluation.exact)
        if present.within(options.tolerances[0], self.feasibility) and present.violation <= self.most_beyond:
            return self._judge(evaluation)
        if self.model.infeasible(evaluation, self.feasibility):
            if not self.moving.patience or not self.moving.shifted.exact.any():
                return self._finish(SolveStatus.INFEASIBLE)
            self.moving.follow(evaluation)
            self._moved(evaluation)
        return self._search(evaluation)

    def _search(self, evaluation: Evaluation) -> Sends:
        """Request an evaluation of fractions of the step."""
        if self.rounds >= self._limit:
            return self._finish(SolveStatus.LIMIT)
        assert self.found is not None
        self.stage = "search"
        self.fallback_merit = np.inf
        self.trials = self.model.settled(evaluation.weights + np.array(LENGTHS)[:, None] * self.found.step)
        return self._ask()

    def _judge(self, evaluation: Evaluation) -> Sends:
        """End after a solved program, or continue with other bounds."""
        assert self.residual is not None
        verdict = self.moving.judge(evaluation, self.net, self.residual)
        if verdict is Verdict.UNKNOWN:
            return self._leave_out(evaluation)
        if verdict is not Verdict.MOVED:
            return self._finish(SolveStatus.CONVERGED if verdict is Verdict.RIGHT else SolveStatus.LIMIT, solved=True)
        self._moved(evaluation)
        return self._search(evaluation)

    def _moved(self, evaluation: Evaluation) -> None:
        """Restart the search under moved bounds."""
        self._remodel()
        self.best, self.damping, self.moved_at = np.inf, 0.0, self.rounds
        self._solve(evaluation)

    # -- leave-one-out, for constraints on new people

    def _leave_out(self, evaluation: Evaluation) -> Sends:
        """Request measurements of the model on rows as if it were trained without them."""
        self.stage = "left out"
        response = self._response(evaluation)
        free = upper_triangle(response.free)
        together = self.places[SHARED]
        body: dict[str, Any] = {
            "round": self.rounds + 1,
            "factor": self.moving.factor,
            "weights": evaluation.weights,
            "shared_net": self.net[together],
            "free": free,
            "shared_held": response.held[together],
            "shared_smooth": self.moving.shared_smooth,
        }
        self.effort += float(evaluation.weights.size) ** 3
        return [
            LEAVE_OUT.message(SERVER, name, own_net=self.net[place], own_held=response.held[place], **body)
            for name, place in self.places.items()
            if name in self.clients
        ]

    def _response(self, evaluation: Evaluation) -> Response:
        """Return the response of the weights, zero for inequalities without a multiplier.

        Where bounds on rates are judged by it, at the mean of two curvatures, as in `constraints/leave_one_out.py`.
        """
        holding, curvature = self.net != 0.0, evaluation.curvature
        if self.moving.proving.judged.any():
            curvature = 0.5 * (curvature + evaluation.objective_curvature)
        found = Response.of(curvature, evaluation.jacobian[holding])
        held = np.zeros_like(evaluation.jacobian)
        held[holding] = found.held
        return Response(found.free, held)

    def _compare(self, bodies: Mapping[str, Body]) -> Sends:
        """Compare the model on its training rows with leave-one-out measurements, and continue."""
        assert self.evaluation is not None
        own = {name: body["own_sums"] for name, body in bodies.items()}
        counting = self._own_rows[1]
        if counting is not None:
            response, place = self._response(self.evaluation), self.places[SERVER]
            here = Response(response.free, response.held[place])
            own[SERVER] = counting.left_out(self.evaluation.weights, self.net[place], here, np.zeros(0))[0]
        shared = np.sum([body["shared_sums"] for body in bodies.values()], axis=0)
        self.moving.compare(self.evaluation.exact, own, shared)
        return self._last_measured() if self.last else self._judge(self.evaluation)

    # -- other cuts, where bounds of smooth rates lead to no good model

    def _begin_cuts(self, *, solved: bool) -> Sends:
        """Search for cuts of the model without bounds on rates; solve for it before, if that was not done."""
        moving, evaluation = self.moving, self.evaluation
        assert moving.seen is not None
        assert evaluation is not None
        if moving.search is None:
            moving.begin_search(moving.seen)
            self._moved(evaluation)
            if not solved:
                # The present model may be anywhere.
                self.stage, self.trials = "confirm", np.tile(moving.seen.weights, (len(LENGTHS), 1))
                self.net, self.penalty = np.zeros_like(self.net), self.options.penalty
                return self._ask()
            return self._search(evaluation)
        self.cuts = CutSearch(moving.seen.weights if moving.free is None else moving.free)
        return self._ask_cut()

    def _ask_cut(self) -> Sends:
        """Request the next models of the search, or its end: the best one with its counts."""
        assert self.cuts is not None
        if self.rounds >= self.options.round_limit or not (self.cuts.open or self.cuts.best is not None):
            return self._finish(SolveStatus.LIMIT)
        self.stage = "cut"
        self.trials = self.cuts.trials
        return self._ask()

    def _cut(self, values: Array, first: Evaluation) -> Sends:
        assert self.cuts is not None
        if self.cuts.open:
            self.cuts.take(values, self.moving.shifted.excess(first.exact))
            return self._ask_cut()
        self.evaluation, self.net = first, np.zeros_like(self.net)
        self.moving.offer(first, self.net, self._as_asked(first))
        return self._finish(SolveStatus.LIMIT)

    def unmet(self) -> str | None:
        if self.moving.seen is None or self.moving.seen.solved:
            return None
        return "exact rates hold at another cut of the model without bounds; it is no optimum under them"

    def _report(self, rows: Array, exact: Array) -> None:
        assert self.residual is not None
        told = self.row_report(rows, None if self.counted is None else exact)
        if self.counted is not None:
            told["factor on the temperature"] = self.moving.factor
        self.reports.append({"round": self.rounds, "penalty": self.penalty, **self.residual.__dict__, **told})

    def _solve(self, evaluation: Evaluation) -> None:
        found = self.model.step(evaluation, self.penalty, self.damping)
        while self.model.stuck(evaluation, found, self.most_beyond):
            found = self.model.step(evaluation, min(10.0 * found.penalty, PENALTY_LIMIT), self.damping)
        self.effort += float(evaluation.weights.size) ** 3
        self.found, self.net, self.penalty = found, found.net, found.penalty

    def _as_asked(self, evaluation: Evaluation) -> Residual:
        """Return the residual for the given bounds, with counted rates if these are bounded."""
        meant = self.moving.shifted.meant(evaluation.exact, evaluation.rows)
        return replace(self.model, bounds=self.bounds).residual(replace(evaluation, rows=meant), self.net)

    def _badness(self, residual: Residual) -> float:
        far = residual.stationarity / self.options.tolerances[0], residual.distance / self.feasibility
        return max(*far, residual.violation / self.most_beyond)

    # -- sharper rates

    def _sharpen(self) -> Sends:
        """Request an evaluation of the start of the next problem."""
        assert self.sharp is not None
        self.moving.sharpen(self.sharp.factor)
        self.stage, self.net, self.last = "sharpen", np.zeros_like(self.net), False
        self.penalty = self.options.penalty
        self.trials = np.tile(self.sharp.start, (len(LENGTHS), 1))
        return self._ask()

    def _measure_last(self, seen: Seen) -> Sends:
        """Request a measurement on left-out rows of the best model, which has solved a problem with sharper rates."""
        self.moving.sharpen(seen.factor)
        self.stage, self.net = "last", seen.net
        self.trials = np.tile(seen.weights, (len(LENGTHS), 1))
        return self._ask()

    def _finish(self, status: SolveStatus, *, solved: bool = False) -> Sends:
        """Search for a better model where there may be one, or end.

        Parameters
        ----------
        solved
            Whether the present model solves the present problem.
        """
        # A run that stalls right after its aims moved has seen no solution under them.
        self.moving.seen = self.moving.seen or self.moving.earlier
        if self.cuts is None and self.classes is None and self.moving.wasteful:
            self.kept = self.moving.seen
            return self._begin_cuts(solved=solved)
        seen, room = self.moving.seen, self.rounds + 4 < self.options.round_limit
        if self.sharp is None:
            cut = None if self.cuts is None else self.cuts.best
            self.kept = self.kept if seen is None or not seen.solved else seen
            feasible = None if self.kept is None or self.kept.excess > 0.0 else self.kept.weights
            if self.classes is None and room and self.moving.sharpens and (cut is not None or feasible is not None):
                self.sharp = SharpSearch(cut, feasible, self.rounds)
                return self._sharpen()
        elif self.sharp.open:
            better = seen is not None and seen is not self.kept and seen.solved
            solution = self.evaluation.weights if solved and self.evaluation is not None else None
            self.sharp.advance(solution, better=better)
            if self.sharp.open and self.rounds < self._limit:
                return self._sharpen()
            self.sharp.end()
            self.moving.seen = seen = self.moving.seen or self.moving.earlier
            if seen is not None and seen is not self.kept and room and self.moving.proving.tightens and self.exact:
                return self._measure_last(seen)
        return self._end(status)

    def _last_measured(self) -> Sends:
        """End, or solve the last problem once more, under bounds that are tightened by what rows lose if left out."""
        moving, again = self.moving, bool(self.measured)
        assert moving.seen is not None
        moving.seen = seen = replace(moving.seen, drift=moving.drift)
        if self.kept is not None and not again and moving.looks > 1:
            self.measured.append(self.kept)
        self.measured.append(seen)
        if not again and self.rounds + 10 < self.options.round_limit and moving.tighten():
            self.sharp = SharpSearch.again(seen.weights, seen.factor, self.rounds)
            return self._sharpen()
        moving.seen = min(self.measured, key=moving.rank_left_out)
        return self._end(SolveStatus.LIMIT)

    def _end(self, status: SolveStatus) -> Sends:
        self.status, self.done, seen = status, True, self.moving.seen
        if seen is not None:
            self.moving.drift = seen.drift
            if self.moving.holds(seen) and self.unmet() is None:
                self.status = SolveStatus.CONVERGED
            elif self.status is SolveStatus.CONVERGED:
                self.status = SolveStatus.LIMIT
            self.net, self.residual = seen.net, seen.residual
            if self.evaluation is None or not np.array_equal(seen.weights, self.evaluation.weights):
                # The history ends with the returned model.
                self._report(seen.rows, seen.exact)
        return [FINISH.message(SERVER, name, weights=self.answer) for name in self.clients]

    # -- state

    def restored(self) -> None:
        self._remodel()
