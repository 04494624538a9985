"""Client: multipliers of proximal AL Algorithm 1, local problems of proximal AL Algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import ProtocolError
from evenhand.horizontal.problem import generator
from evenhand.horizontal.prox_al.messages import ANSWER, BEGIN, FINISH, OUTCOME, OUTER, STEP, SUMMANDS, VOCABULARY
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.roles import HorizontalClient
from evenhand.programs.augmented import Augmented, AugmentedPoint
from evenhand.programs.minimise import Minimiser, Pull, largest
from evenhand.programs.program import Program, ProgramPoint
from evenhand.programs.shared import DecoupledPoint, decoupled
from evenhand.programs.slices import SliceProgram
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Sends


class LocalStep(NamedTuple):
    """u_i^{t+1} with ∇P_i there, λ_i^{t+1}, ũ_i^{t+1} and ε̃_{i,t+1} (proximal AL Eqs. 19 to 22).

    `passes` counts passes over the client's data.
    """

    here: AugmentedPoint
    consensus: Array
    anchor: Array
    residual: float
    passes: int


class SteppingClient(Protocol):
    """Attributes of a client that its step needs; see `ProxALClient`."""

    program: Program
    options: ProxAL
    multipliers: Array
    centre: Array
    consensus: Array
    strength: float
    proximity: float
    minimiser: Minimiser
    here: AugmentedPoint | None
    steps: LocalSteps | None

    @property
    def augmented(self) -> Augmented: ...


class LocalSteps(Protocol):
    """Object that computes the steps of clients with an inverse Hessian."""

    def step(self, member: SteppingClient, weights: Array, tolerance: float) -> LocalStep | None:
        """Return the client's step towards the server's iterate, or None if the client must solve alone."""
        ...


class ProxALClient(HorizontalClient):
    """Client with f_i, c_i and the multipliers μ_i of c_i.

    With shared inequalities, w stands for (w, z), and c_i has rows for its summands of them.

    Parameters
    ----------
    clients
        Names of all clients, in the order of their z.
    shared
        Bounds of the shared inequalities, of which all clients have summands.

    Attributes
    ----------
    multipliers
        μ_i, one for each scalar constraint.
    centre
        w^k.
    here
        u_i^t, as a point of P_i.
    consensus
        λ_i^t.
    strength
        ρ_i.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "multipliers": Array,
        "centre": Array,
        "consensus": Array,
        "strength": float,
        "outer": int,
        "inner": int,
        "placed": bool,
        "minimiser": Minimiser,
        "weights": Array | None,
        "_here_parts": tuple[Array, Array] | None,
    }

    def __init__(self, name: str, program: Program, clients: Sequence[str], shared: Bounds, options: ProxAL) -> None:
        wide = decoupled(program, shared, len(clients), list(clients).index(name))
        sizes = {"model": program.weights, "weights": wide.weights, "own": program.own.n_rows, "shared": shared.n_rows}
        super().__init__(name, sizes)
        self.given = program
        self.program = wide
        self.options = options
        self.proximity = 1.0 / ((len(clients) + 1) * options.penalty)
        self.multipliers: Array = np.zeros(wide.own.n_sides)
        self.centre: Array = np.zeros(wide.weights)
        self.consensus: Array = np.zeros(wide.weights)
        self.strength = options.rho
        self.minimiser = Minimiser(options.local_solver)
        self.outer = -1
        self.inner = 0
        self.weights: Array | None = None
        self.here: AugmentedPoint | None = None
        # Object that computes this client's steps, if that is faster.
        self.steps: LocalSteps | None = None
        self._augmented: Augmented | None = None
        # Whether the client has sent the initial value of its z.
        self.placed = False

    def own_multipliers(self) -> Array:
        return self.program.own.table(self.multipliers)[:, : self.given.own.n_rows]

    def handle(self, message: Message) -> Sends:
        if not self.done:
            if message.kind == BEGIN.kind and self.outer < 0 and not self.placed:
                return [self._place(message["weights"])]
            if message.kind == OUTER.kind and message.integer("outer") == self.outer + 1:
                return [self._begin(message["weights"], message["shared_net"])]
            if message.kind == STEP.kind and self.here is not None:
                place = (message.integer("outer"), message.integer("inner"))
                tolerance = message.number("tolerance")
                if place[0] == self.outer and place[1] > self.inner and tolerance > 0:
                    self.inner = place[1]
                    return [self._step(message["weights"], tolerance)]
            if message.kind == FINISH.kind:
                self.weights, self.here, self.done = message["weights"].copy(), None, True
                return ()
        raise ProtocolError(f"{self.name} takes no such {message.kind!r} at this point")

    @property
    def augmented(self) -> Augmented:
        """P_{i,k}."""
        of = self._augmented
        if of is None or of.multipliers is not self.multipliers or of.centre is not self.centre:
            beta = self.options.penalty
            of = Augmented(self.program, self.multipliers, beta, self.centre, self.proximity, self._sample())
            self._augmented = of
        return of

    def _place(self, weights: Array) -> Message:
        """Send the client's own summands, at which z_i starts."""
        self.placed = True
        self.effort += self.program.effort
        summands = self.given.at(weights).constraints[self.given.own.n_rows :]
        return SUMMANDS.message(self.name, SERVER, summands=summands)

    def _begin(self, weights: Array, shared_net: Array) -> Message:
        """Update the multipliers at w^k (unless k = 0), measure, and start the next subproblem."""
        bounds, beta = self.program.own, self.options.penalty
        self.outer, self.inner = self.outer + 1, 0
        self.centre = weights.copy()
        point = self.program.at(self.centre)
        before = self.multipliers
        if self.outer > 0:
            self.multipliers = bounds.project(before + beta * bounds.side_excess(point.constraints))
        self.here = self.augmented.at(self.centre, point)
        self.consensus = -self.here.gradient
        self.effort += 2.0 * self.program.effort
        missed = bounds.missed(point.constraints)
        return OUTCOME.message(
            self.name,
            SERVER,
            outer=self.outer,
            change=largest(self.multipliers - before),
            anchor=self.centre + self.consensus / self.strength,
            strength=self.strength,
            missed=0.5 * float(missed @ missed),
            missed_slope=bounds.net(missed) @ point.jacobian,
            **self._measured(point.inner if isinstance(point, DecoupledPoint) else point, shared_net),
        )

    def _measured(self, point: ProgramPoint, shared_net: Array) -> dict[str, Any]:
        """Return measurements for the certificate: the original program at w^k with the current multipliers."""
        bounds, table = self.given.own, self.own_multipliers()
        values, summands = np.split(point.constraints, [bounds.n_rows])
        net = np.append(table[0] - table[1], shared_net)
        return {
            "value": point.value,
            "slope": point.gradient + net @ point.jacobian,
            "own": values,
            "summands": summands,
            "complementarity": bounds.complementarity(values, table),
            "distance": bounds.distance(values, table),
        }

    def _step(self, weights: Array, tolerance: float) -> Message:
        """Take the client's step of an ADMM round, from proximal AL Eq. 19 to proximal AL Eq. 22."""
        assert self.here is not None
        rho, before = self.strength, self.here.weights
        found = None if self.steps is None else self.steps.step(self, weights, tolerance)
        if found is not None:
            self.here, self.consensus, anchor, residual, passes = found
            self.effort += self.program.effort * passes
        else:
            slope = self._solve(weights, tolerance)
            residual = largest(slope - rho * (weights - before))
            self.consensus = self.consensus + rho * (self.here.weights - weights)
            anchor = self.here.weights + self.consensus / rho
        if self.options.rho_rule == "balanced" and self.inner <= self.options.balance_rounds:
            self._balance(before, weights)
            anchor = self.here.weights + self.consensus / self.strength
        return ANSWER.message(
            self.name,
            SERVER,
            outer=self.outer,
            inner=self.inner,
            anchor=anchor,
            strength=self.strength,
            residual=residual,
        )

    def _solve(self, weights: Array, tolerance: float) -> Array:
        """Solve the local problem, proximal AL Eq. 19, alone, and return ∇φ at the server's iterate."""
        assert self.here is not None
        augmented, start = self.augmented, self.here
        there = augmented.at(weights)
        pull = Pull(self.consensus, weights, self.strength)
        slope = pull.gradient(there)
        # Start from whichever of the two points is nearer to the solution.
        nearer = there if largest(slope) < largest(pull.gradient(start)) else start
        found = self.minimiser.minimise(augmented, nearer, pull, tolerance)
        self.effort += self.program.effort + found.effort
        self.here = found.point
        return slope

    def _sample(self) -> Program | None:
        """Return the program on some of its rows of data, drawn anew for each subproblem; None for all rows."""
        count, program = self.options.curvature_rows, self.program
        if count is None or not isinstance(program, SliceProgram):
            return None
        return program.sampled(count, generator(self.options.seed or 0, self.name, self.outer, "batches"))

    def _balance(self, before: Array, weights: Array) -> None:
        """Balance residuals: raise ρ_i if the client is far from the server, lower it if ρ_i · its move is large."""
        assert self.here is not None
        apart = float(np.linalg.norm(self.here.weights - weights))
        moved = self.strength * float(np.linalg.norm(self.here.weights - before))
        if apart > self.options.balance * moved:
            self.strength *= 2.0
        elif moved > self.options.balance * apart:
            self.strength *= 0.5
        else:
            return
        self.minimiser.forget()

    @property
    def _here_parts(self) -> tuple[Array, Array] | None:
        """Weights and gradient of `here`, for checkpoints."""
        return None if self.here is None else (self.here.weights, self.here.gradient)

    @_here_parts.setter
    def _here_parts(self, parts: tuple[Array, Array] | None) -> None:
        self.here = None if parts is None else self.augmented.at(parts[0]).with_gradient(parts[1])
