"""The server of the proximal AL method: proximal AL Algorithm 1, the averages of proximal AL Algorithm 2, certificate.

Round:

1. The server sends w^k to every client. Server and clients each take the step of their own multipliers at w^k.
2. Clients answer with their first ADMM vector, and with values and gradients for the certificate.
3. The server stops when the rule or the certificate holds, the program is infeasible, or a limit is reached.
4. Otherwise it solves for its iterate (proximal AL Eq. 18), and sends it with a tolerance.
5. Clients solve their local problems (proximal AL Eq. 19) and answer with an anchor, ρ_i and a residual.
6. Steps 4 and 5 repeat until the residuals meet τ_k (proximal AL Eq. 23) or a limit. The iterate is w^{k+1}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import ProtocolError
from evenhand.horizontal.problem import generator
from evenhand.horizontal.program_server import ProgramServer, ServerPart
from evenhand.horizontal.prox_al.messages import ANSWER, BEGIN, FINISH, OUTCOME, OUTER, STEP, SUMMANDS, VOCABULARY
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.programs.augmented import Augmented, AugmentedPoint
from evenhand.programs.minimise import Minimiser, Pull, largest
from evenhand.programs.optimality import SHARED, Residual, SolveStatus, is_infeasible, kkt_residual
from evenhand.programs.shared import widened
from evenhand.protocol.asking import Body
from evenhand.protocol.messages import Message, Schema
from evenhand.protocol.roles import SERVER, Sends

_WITH_CLIENTS = ("complementarity", "distance")
"""Fields of the certificate that are largest over clients, and that only a client knows of its own inequalities."""


class ProxALServer(ProgramServer):
    """Server with w, and c_0 with its multipliers μ_0 if there is one.

    With shared inequalities, w stands for (w, z), and c_0 has rows for the sums of the z.

    Attributes
    ----------
    weights
        w^{t+1} during a subproblem, w^{k+1} after it.
    centre
        w^k.
    anchors, strengths, residuals
        ũ_i, ρ_i and ε̃_i of each client, as last received.
    placed
        Whether the z have initial values.
    change
        Change of μ_0 in the last step.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "multipliers": Array,
        "weights": Array,
        "centre": Array,
        "anchors": Array,
        "strengths": Array,
        "residuals": Array,
        "inner": int,
        "tolerance": float,
        "change": float,
        "solved": bool,
        "placed": bool,
        "asked": tuple[str, ...],
        "minimiser": Minimiser,
    }

    def __init__(self, own: ServerPart, options: ProxAL) -> None:
        inner, count, shared = len(own.start), len(own.clients), own.shared
        size = inner + count * shared.n_rows
        super().__init__(own, {"model": inner, "weights": size, "shared": shared.n_rows})
        self.names = tuple(self.clients)
        self.inner_size = inner
        self.head = widened(own.program, shared, count, inner)
        self.alone = own.program is None and not shared.n_rows
        self.options = options
        self.minimiser = Minimiser(options.local_solver)
        self.multipliers: Array = np.zeros(self.head.own.n_sides)
        self.weights: Array = np.append(own.start, np.zeros(size - inner))
        self.centre = self.weights
        self.anchors: Array = np.zeros((count, size))
        self.strengths: Array = np.ones(count)
        self.residuals: Array = np.full(count, np.inf)
        self.inner = 0
        self.tolerance = np.inf
        self.change = 0.0
        self.solved = True
        self.placed = shared.n_rows == 0
        self.asked = self.names

    @property
    def answer(self) -> Array:
        return self.weights[: self.inner_size]

    def tables(self) -> dict[str, Array]:
        """Return the multipliers that the server knows; those of clients' own inequalities stay with the clients."""
        whole = self.head.own.table(self.multipliers)
        own = whole.shape[1] - self.shared.n_rows
        return {**({} if self.program is None else {SERVER: whole[:, :own]}), SHARED: whole[:, own:]}

    def start(self) -> Sends:
        if self.placed:
            return self._broadcast_outer()
        return [BEGIN.message(SERVER, client, weights=self.answer) for client in self.names]

    def handle(self, message: Message) -> Sends:
        if message.sender not in self.asked or self.done:
            raise ProtocolError(f"the server expects no message from {message.sender!r}; its message is refused")
        expected = self._expected()
        place = {name: message.integer(name) for name in ("outer", "inner") if name in message.body}
        if message.kind != expected.kind or any(value != getattr(self, name) for name, value in place.items()):
            raise ProtocolError(f"the server takes no such {message.kind!r} from {message.sender} at this point")
        if "strength" in message.body and message.number("strength") <= 0:
            raise ProtocolError(f"message {message.kind!r} from {message.sender}: strength must be above zero")
        self.answers.add(message)
        if not self.answers.complete([expected.kind], self.asked):
            return ()
        bodies = self.answers.of(expected.kind)
        self.answers.clear()
        self.rounds += 1
        if expected is SUMMANDS:
            return self._place(bodies)
        for name, body in bodies.items():
            place_of = self.names.index(name)
            self.anchors[place_of] = body["anchor"]
            self.strengths[place_of] = float(body["strength"])
        return self._after_outcome(bodies) if expected is OUTCOME else self._after_answers(bodies)

    def _expected(self) -> Schema:
        if not self.placed:
            return SUMMANDS
        return OUTCOME if self.inner == 0 else ANSWER

    def _place(self, bodies: Mapping[str, Body]) -> Sends:
        """Start each z_i at client i's summand."""
        self.weights = np.concatenate([self.answer, *(body["summands"] for body in bodies.values())])
        self.centre = self.weights
        self.placed = True
        return self._broadcast_outer()

    # -- outer iterations

    def _broadcast_outer(self) -> Sends:
        """Update the multipliers at w^k (unless k = 0), and ask all clients to do the same."""
        bounds, before = self.head.own, self.multipliers
        if self.outer > 0:
            excess = bounds.side_excess(self.head.at(self.weights).constraints)
            self.multipliers = bounds.project(before + self.options.penalty * excess)
        self.change = float(np.max(np.abs(self.multipliers - before), initial=0.0))
        self.effort += 2.0 * self.head.effort
        self.inner, self.asked = 0, self.names
        table = self.tables()[SHARED]
        body = {"outer": self.outer, "weights": self.weights, "shared_net": table[0] - table[1]}
        return OUTER.messages(SERVER, self.names, **body)

    def _after_outcome(self, bodies: Mapping[str, Body]) -> Sends:
        """Evaluate w^k, once all clients have updated their multipliers, and end or start the next subproblem."""
        change = max(self.change, *(float(body["change"]) for body in bodies.values()))
        moved = float(np.max(np.abs(self.weights - self.centre), initial=0.0))
        last, values = self.residual, self._row_values(bodies)
        self.residual = self._measured(bodies, values)
        self.reports.append(
            {
                "outer": self.outer,
                "round": self.rounds,
                "moved": moved,
                "change": change,
                **self.residual.__dict__,
                **self.row_report(values),
            }
        )
        self.status = self._judge(moved, change, *self._missed(bodies), last)
        if self.status is not None:
            self.done = True
            return [FINISH.message(SERVER, client, weights=self.answer) for client in self.names]
        self.centre, self.solved = self.weights, False
        self.residuals[:] = np.inf
        return self._advance()

    def _row_values(self, bodies: Mapping[str, Body]) -> Array:
        """Return all constraint values at w^k; those of shared rows are sums of summands, not of the z."""
        values = np.zeros(self.bounds.n_rows)
        for name, body in bodies.items():
            values[self.places[name]] = body["own"]
            values[self.places[SHARED]] += body["summands"]
        if self.program is not None:
            values[self.places[SERVER]] = self.program.at(self.answer).constraints
        return values

    def _measured(self, bodies: Mapping[str, Body], values: Array) -> Residual:
        """Return the residual of the original program, without z."""
        slope, value = np.zeros(self.inner_size), 0.0
        tables = self.tables()
        if self.program is not None:
            point, own = self.program.at(self.answer), tables[SERVER]
            slope, value = point.gradient + (own[0] - own[1]) @ point.jacobian, point.value
        for body in bodies.values():
            slope = slope + body["slope"]
        value = value + sum(float(body["value"]) for body in bodies.values())
        holders = {SHARED: self.shared} if self.program is None else {SERVER: self.program.own, SHARED: self.shared}
        parts = [(bounds, values[self.places[name]], tables[name]) for name, bounds in holders.items()]
        mine = self.kkt(value, slope, parts)
        return replace(
            mine,
            violation=self.bounds.violation(values),
            **{name: max(getattr(mine, name), *(float(b[name]) for b in bodies.values())) for name in _WITH_CLIENTS},
        )

    def kkt(self, value: float, slope: Array, parts: Sequence[tuple[Bounds, Array, Array]]) -> Residual:
        """Return the optimality conditions at w^k."""
        return kkt_residual(value, slope, parts)

    def _missed(self, bodies: Mapping[str, Body]) -> tuple[float, Array]:
        """Return ½ Σ violation² of the decoupled program at (w^k, z^k), and its gradient."""
        bounds, point = self.head.own, self.head.at(self.weights)
        by = bounds.missed(point.constraints)
        missed, slope = 0.5 * float(by @ by), bounds.net(by) @ point.jacobian
        for body in bodies.values():
            missed, slope = missed + float(body["missed"]), slope + body["missed_slope"]
        return missed, slope

    def unmet(self) -> str | None:
        (stationarity, feasibility), now = self.options.tolerances, self.residual
        if now is None or now.stationarity > stationarity or now.violation > feasibility:
            return None
        if now.distance > feasibility:
            return (
                f"a constraint with a multiplier is {now.distance:.1e} inside its bound, where at most {feasibility:g} "
                "is allowed (proximal AL Definition 1)"
            )
        if not self.solved:
            return "the last subproblem was not solved to its tolerance (proximal AL Eq. 23)"
        return "weights or multipliers still changed by more than the stopping rule allows (proximal AL Eq. 11)"

    def _judge(
        self, moved: float, change: float, missed: float, missed_slope: Array, last: Residual | None
    ) -> SolveStatus | None:
        options, now = self.options, self.residual
        assert now is not None
        if options.stop == "residual" and now.within(*options.tolerances):
            return SolveStatus.CONVERGED
        # Another subproblem takes at least two rounds.
        at_cap = self.outer >= options.max_outer or self.rounds + 2 > options.round_limit
        if self.outer == 0:
            return SolveStatus.LIMIT if at_cap else None
        # A subproblem that reached its limit does not count: without proximal AL Eq. 10 the rule does not apply.
        if self.solved and options.rule(self.outer - 1, moved, change):
            return SolveStatus.CONVERGED
        stuck = last is not None and now.violation > max(options.tolerances[1], 0.99 * last.violation)
        if stuck and is_infeasible(missed, missed_slope, self.weights):
            return SolveStatus.INFEASIBLE
        return SolveStatus.LIMIT if at_cap else None

    # -- inner iterations

    def _advance(self) -> Sends:
        """Compute the server's iterate (proximal AL Eq. 18), and start the next round of ADMM."""
        options = self.options
        asked_tolerance = options.tolerance(self.inner, self.outer, len(self.names))
        self.weights, self.tolerance = self.average(asked_tolerance)
        self.inner += 1
        self.asked = self._participants()
        body = {"outer": self.outer, "inner": self.inner, "weights": self.weights, "tolerance": asked_tolerance}
        return STEP.messages(SERVER, self.asked, **body)

    def average(self, tolerance: float) -> tuple[Array, float]:
        """Return argmin P_0 + Σ ρ_i/2 ‖ũ_i − w‖², and the residual of this solution."""
        total = float(self.strengths.sum())
        mean = self.strengths @ self.anchors / total
        beta = self.options.penalty
        proximity = 1.0 / ((len(self.names) + 1) * beta)
        if self.alone:
            # Without inequalities of the server's own, this is a mean.
            return (total * mean + proximity * self.centre) / (total + proximity), 0.0
        augmented = Augmented(self.head, self.multipliers, beta, self.centre, proximity)
        pull = Pull(np.zeros_like(mean), mean, total)
        solved = self.minimiser.minimise(augmented, self.nearby(augmented, pull), pull, tolerance)
        self.effort += solved.effort
        return solved.point.weights, max(tolerance, largest(pull.gradient(solved.point)))

    def nearby(self, augmented: Augmented, pull: Pull) -> AugmentedPoint:
        """Return the point at which the server's solve starts."""
        return augmented.at(self.weights)

    def _participants(self) -> tuple[str, ...]:
        count = max(1, round(self.options.participation * len(self.names)))
        # The rule, proximal AL Eq. 23, is about the residuals of all clients at the same w.
        confirming = self.inner == 1 or float(self.residuals.sum()) <= self.options.tau(self.outer)
        if count == len(self.names) or confirming:
            return self.names
        draw = generator(self.options.seed or 0, SERVER, self.rounds, "participants")
        return tuple(self.names[place] for place in sorted(draw.choice(len(self.names), count, replace=False)))

    def _after_answers(self, bodies: Mapping[str, Body]) -> Sends:
        """Check whether the subproblem is solved (proximal AL Eq. 23), and continue."""
        for name, body in bodies.items():
            self.residuals[self.names.index(name)] = float(body["residual"])
        bound = max(self.tolerance, self.options.tolerance(self.inner - 1, self.outer, len(self.names)))
        everybody = len(self.asked) == len(self.names)
        self.solved = everybody and bound + float(self.residuals.sum()) <= self.options.tau(self.outer)
        capped = self.inner >= self.options.max_inner or self.rounds + 1 >= self.options.round_limit
        if self.solved or capped:
            self.outer += 1
            return self._broadcast_outer()
        return self._advance()

    # -- state
