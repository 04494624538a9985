"""The server of the proximal AL method: Algorithm 1's outer loop, Algorithm 2's averages, and the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.horizontal.prox_al.messages import ANSWER, FINISH, OUTCOME, OUTER, STEP, VOCABULARY
from evenhand.horizontal.prox_al.options import ProxALOptions
from evenhand.horizontal.seeds import generator
from evenhand.programs.augmented import Augmented
from evenhand.programs.composite import minimise_composite
from evenhand.programs.minimise import Minimiser, Pull
from evenhand.programs.optimality import SERVER, Residual, Status, is_infeasible, kkt_residual
from evenhand.programs.program import Program
from evenhand.programs.quadratic import QuadraticProgram
from evenhand.programs.regularisers import Regulariser
from evenhand.protocol.answers import Answers, Body
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role, Sends, State

_WORST = ("violation", "complementarity", "distance")
"""What the certificate takes from whoever is worst off."""


class ProxALServer(Role):
    """Holds w, h, and c_0 with its multipliers μ_0 if there is one.

    Attributes
    ----------
    weights
        w^{t+1} during a subproblem, w^{k+1} after it.
    centre
        w^k.
    anchors, strengths, residuals
        ũ_i, ρ_i and ε̃_i of each client, as last received.
    residual
        The optimality conditions at the last (w^k, μ^k).
    """

    vocabulary = VOCABULARY

    def __init__(
        self, clients: Sequence[str], program: Program | None, simple: Regulariser, start: Array, options: ProxALOptions
    ) -> None:
        super().__init__(SERVER, {"weights": len(start)})
        self.clients = tuple(sorted(clients))
        self.program: Program = QuadraticProgram(None, None, np.zeros((0, len(start)))) if program is None else program
        self.alone = program is None
        self.simple = simple
        self.options = options
        self.minimiser = Minimiser(options.local_solver)
        self.multipliers: Array = np.zeros(self.program.own.n_sides)
        self.weights: Array = simple.prox(np.array(start, dtype=np.float64), 0.0)
        self.centre = self.weights
        size = len(self.clients)
        self.anchors: Array = np.zeros((size, len(start)))
        self.strengths: Array = np.ones(size)
        self.residuals: Array = np.full(size, np.inf)
        self.outer = self.inner = self.rounds = 0
        self.tolerance = np.inf
        self.solved = True
        self.asked = self.clients
        self.answers = Answers()
        self.residual: Residual | None = None
        self.status: Status | None = None

    @property
    def certificate(self) -> Certificate | None:
        if self.residual is None or self.status is None:
            return None
        return self.residual.certificate(self.rounds, self.status is Status.CONVERGED)

    def start(self) -> Sends:
        return self._broadcast_outer()

    def handle(self, message: Message) -> Sends:
        if message.sender not in self.asked or self.done:
            raise ProtocolError(f"the server has asked {message.sender!r} for nothing; its message is refused")
        expected = OUTCOME.kind if self.inner == 0 else ANSWER.kind
        place = (message.integer("outer"), message.integer("inner") if message.kind == ANSWER.kind else 0)
        if message.kind != expected or place != (self.outer, self.inner):
            raise ProtocolError(f"the server takes no such {message.kind!r} from {message.sender} at this point")
        self._check_strength(message)
        self.answers.add(message)
        if not self.answers.complete([expected], self.asked):
            return ()
        bodies = self.answers.of(expected)
        self.answers.clear()
        self.rounds += 1
        for name, body in bodies.items():
            place_of = self.clients.index(name)
            self.anchors[place_of] = body["anchor"]
            self.strengths[place_of] = float(body["strength"])
        return self._after_outcome(bodies) if expected == OUTCOME.kind else self._after_answers(bodies)

    def _check_strength(self, message: Message) -> None:
        if message.number("strength") <= 0:
            raise ProtocolError(f"message {message.kind!r} from {message.sender}: strength must be above zero")

    # -- outer iterations

    def _broadcast_outer(self) -> Sends:
        self.inner, self.asked = 0, self.clients
        body = {"outer": self.outer, "weights": self.weights}
        return [OUTER.message(SERVER, client, **body) for client in self.clients]

    def _after_outcome(self, bodies: Mapping[str, Body]) -> Sends:
        """Everybody has taken the multipliers' step at w^k: judge, and end or begin the next subproblem."""
        bounds = self.program.own
        point = self.program.at(self.weights)
        before = self.multipliers
        if self.outer > 0:
            self.multipliers = bounds.project(before + self.options.penalty * bounds.side_excess(point.constraints))
        self.effort += 2.0 * self.program.effort
        own_change = float(np.max(np.abs(self.multipliers - before), initial=0.0))
        change = max(own_change, *(float(body["change"]) for body in bodies.values()))
        moved = float(np.max(np.abs(self.weights - self.centre), initial=0.0))
        last = self.residual
        slope = point.gradient + bounds.net(self.multipliers) @ point.jacobian
        missed_by = bounds.missed(point.constraints)
        missed, missed_slope = 0.5 * float(missed_by @ missed_by), bounds.net(missed_by) @ point.jacobian
        for body in bodies.values():
            slope = slope + body["slope"]
            missed, missed_slope = missed + float(body["missed"]), missed_slope + body["missed_slope"]
        value = point.value + sum(float(body["value"]) for body in bodies.values())
        own = [(bounds, point.constraints, bounds.table(self.multipliers))]
        mine = kkt_residual(self.weights, value, slope, own, self.simple)
        self.residual = replace(mine, **{name: _worst(getattr(mine, name), bodies, name) for name in _WORST})
        self.reports.append(
            {"outer": self.outer, "round": self.rounds, "moved": moved, "change": change, **self.residual.__dict__}
        )
        self.status = self._judge(moved, change, missed, missed_slope, last)
        if self.status is not None:
            self.done = True
            return [FINISH.message(SERVER, client, weights=self.weights) for client in self.clients]
        self.centre, self.solved = self.weights, False
        self.residuals[:] = np.inf
        return self._advance()

    def _judge(
        self, moved: float, change: float, missed: float, missed_slope: Array, last: Residual | None
    ) -> Status | None:
        options, now = self.options, self.residual
        assert now is not None
        if options.stop == "residual" and now.within(options.stationarity, options.feasibility):
            return Status.CONVERGED
        if self.outer == 0:
            return None
        # Eq. (10) must hold for Eq. (11) to mean anything: a subproblem that met its cap does not count.
        if self.solved and options.rule(self.outer - 1, moved, change):
            return Status.CONVERGED
        stuck = last is not None and now.violation > max(options.feasibility, 0.99 * last.violation)
        if stuck and is_infeasible(missed, missed_slope, self.weights):
            return Status.INFEASIBLE
        if self.outer >= options.max_outer or self.rounds >= options.max_rounds:
            return Status.LIMIT
        return None

    # -- inner iterations

    def _advance(self) -> Sends:
        """Eq. (18), and the next round of ADMM."""
        options = self.options
        asked_tolerance = options.tolerance(self.inner, self.outer, len(self.clients))
        self.weights, self.tolerance = self._average(asked_tolerance)
        self.inner += 1
        self.asked = self._participants()
        body = {"outer": self.outer, "inner": self.inner, "weights": self.weights, "tolerance": asked_tolerance}
        return [STEP.message(SERVER, client, **body) for client in self.asked]

    def _average(self, tolerance: float) -> tuple[Array, float]:
        """argmin P_0 + h + Σ ρ_i/2 ‖ũ_i − w‖², and the residual it is solved to."""
        total = float(self.strengths.sum())
        mean = self.strengths @ self.anchors / total
        beta = self.options.penalty
        proximity = 1.0 / ((len(self.clients) + 1) * beta)
        if self.alone:
            # Without rows of the server's own this is one proximal step.
            strength = total + proximity
            middle = (total * mean + proximity * self.centre) / strength
            found = self.simple.prox(middle, 1.0 / strength)
            return found, self.simple.distance(found, strength * (found - middle))
        augmented = Augmented(self.program, self.multipliers, beta, self.centre, proximity)
        pull = Pull(np.zeros_like(mean), mean, total)
        solved = minimise_composite(self.minimiser, augmented, augmented.at(self.weights), pull, self.simple, tolerance)
        self.effort += solved.effort
        point = solved.point
        return point.weights, max(tolerance, self.simple.distance(point.weights, pull.gradient(point)))

    def _participants(self) -> tuple[str, ...]:
        count = max(1, round(self.options.participation * len(self.clients)))
        # Eq. (23) speaks of everybody's residual at the same w.
        confirming = self.inner == 1 or float(self.residuals.sum()) <= self.options.tau(self.outer)
        if count == len(self.clients) or confirming:
            return self.clients
        draw = generator(self.options.seed, SERVER, self.rounds, "participants")
        return tuple(self.clients[place] for place in sorted(draw.choice(len(self.clients), count, replace=False)))

    def _after_answers(self, bodies: Mapping[str, Body]) -> Sends:
        """Eq. (23)."""
        for name, body in bodies.items():
            self.residuals[self.clients.index(name)] = float(body["residual"])
        bound = max(self.tolerance, self.options.tolerance(self.inner - 1, self.outer, len(self.clients)))
        everybody = len(self.asked) == len(self.clients)
        self.solved = everybody and bound + float(self.residuals.sum()) <= self.options.tau(self.outer)
        capped = self.inner >= self.options.max_inner or self.rounds + 1 >= self.options.max_rounds
        if self.solved or capped:
            self.outer += 1
            return self._broadcast_outer()
        return self._advance()

    # -- state

    def snapshot(self) -> State:
        state: State = {
            name: getattr(self, name).copy()
            for name in ("multipliers", "weights", "centre", "anchors", "strengths", "residuals")
        }
        if self.minimiser.inverse is not None:
            state["inverse"] = self.minimiser.inverse.copy()
        numbers = {name: getattr(self, name) for name in ("outer", "inner", "rounds", "tolerance", "solved")}
        return (
            super().snapshot()
            | self.answers.snapshot()
            | state
            | numbers
            | {
                "asked": ",".join(str(self.clients.index(name)) for name in self.asked),
                "status": "" if self.status is None else self.status.name,
                "residual": None if self.residual is None else dict(self.residual.__dict__),
            }
        )

    def restore(self, state: State) -> None:
        super().restore(state)
        self.answers.restore(state)
        for name in ("multipliers", "weights", "centre", "anchors", "strengths", "residuals"):
            setattr(self, name, np.array(state[name]))
        self.outer, self.inner, self.rounds = int(state["outer"]), int(state["inner"]), int(state["rounds"])
        self.tolerance, self.solved = float(state["tolerance"]), bool(state["solved"])
        self.minimiser.inverse = np.array(state["inverse"]) if "inverse" in state else None
        self.asked = tuple(self.clients[int(place)] for place in str(state["asked"]).split(","))
        self.status = Status[state["status"]] if state["status"] else None
        self.residual = None if state["residual"] is None else Residual(**state["residual"])


def _worst(own: float, bodies: Mapping[str, Body], name: str) -> float:
    return max(own, *(float(body[name]) for body in bodies.values()))
