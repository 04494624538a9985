"""Turn shared inequalities into own ones of each client, by new unknowns (proximal AL Eq. 4).

    lower ≤ Σ_i s_i(w) ≤ upper     becomes     s_i(w) − z_i = 0 at client i,   lower ≤ Σ_i z_i ≤ upper at the server

The z_i are new unknowns beside w. With an upper bound only, s_i(w) ≤ z_i suffices, which keeps convex inequalities
convex.
"""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.programs.program import Curvature, Program, ProgramPoint
from evenhand.programs.slices import SliceProgram


class Decoupled:
    """A client's program over (w, z_1, ..., z_n), with its summands of shared inequalities as own ones."""

    shared = 0

    def __init__(self, program: Program, bounds: Bounds, clients: int, place: int) -> None:
        self.program = program
        self.inner = program.weights
        self.weights = self.inner + clients * bounds.n_rows
        first = self.inner + place * bounds.n_rows
        self.mine = slice(first, first + bounds.n_rows)
        upper = np.where(np.isfinite(bounds.upper), 0.0, np.inf)
        lower = np.where(np.isfinite(bounds.lower), 0.0, -np.inf)
        self.own = Bounds(np.append(program.own.lower, lower), np.append(program.own.upper, upper))
        self.curvature: Curvature = program.curvature
        self.effort = program.effort

    def at(self, weights: Array) -> DecoupledPoint:
        return DecoupledPoint(self, weights)


class DecoupledPoint:
    """The program at (w, z); `inner` is its own point at w."""

    def __init__(self, program: Decoupled, weights: Array) -> None:
        self._of = program
        self.inner: ProgramPoint = program.program.at(weights[: program.inner])
        self._mine = weights[program.mine]

    def _padded(self, vector: Array) -> Array:
        found = np.zeros(self._of.weights)
        found[: self._of.inner] = vector
        return found

    @property
    def value(self) -> float:
        return self.inner.value

    @property
    def gradient(self) -> Array:
        return self._padded(self.inner.gradient)

    @property
    def constraints(self) -> Array:
        found = self.inner.constraints.copy()
        found[len(found) - len(self._mine) :] -= self._mine
        return found

    @property
    def jacobian(self) -> Array:
        inner = self.inner.jacobian
        found = np.zeros((len(inner), self._of.weights))
        found[:, : self._of.inner] = inner
        first = len(inner) - len(self._mine)
        found[first:, self._of.mine] -= np.eye(len(self._mine))
        return found

    def hessian(self, net: Array) -> Array:
        found = np.zeros((self._of.weights, self._of.weights))
        found[: self._of.inner, : self._of.inner] = self.inner.hessian(net)
        return found

    def hessian_product(self, net: Array, direction: Array) -> Array:
        return self._padded(self.inner.hessian_product(net, direction[: self._of.inner]))


class Widened:
    """The server's program over (w, z): its own inequalities, and the sums of the z_i."""

    shared = 0

    def __init__(self, program: Program, bounds: Bounds, clients: int, inner: int) -> None:
        self.program = program
        self.inner = inner
        self.weights = inner + clients * bounds.n_rows
        self.sums = np.hstack([np.zeros((bounds.n_rows, inner)), *[np.eye(bounds.n_rows)] * clients])
        own = self.program.own
        self.own = Bounds(np.append(own.lower, bounds.lower), np.append(own.upper, bounds.upper))
        self.curvature: Curvature = self.program.curvature
        self.effort = self.program.effort

    def at(self, weights: Array) -> WidenedPoint:
        return WidenedPoint(self, weights)


class WidenedPoint:
    def __init__(self, program: Widened, weights: Array) -> None:
        self._of = program
        self._weights = weights
        self._point: ProgramPoint = program.program.at(weights[: program.inner])

    @property
    def value(self) -> float:
        return self._point.value

    @property
    def gradient(self) -> Array:
        found = np.zeros(self._of.weights)
        found[: self._of.inner] = self._point.gradient
        return found

    @property
    def constraints(self) -> Array:
        return np.append(self._point.constraints, self._of.sums @ self._weights)

    @property
    def jacobian(self) -> Array:
        inner = self._point.jacobian
        padded = np.zeros((len(inner), self._of.weights))
        padded[:, : self._of.inner] = inner
        return np.vstack([padded, self._of.sums])

    def hessian(self, net: Array) -> Array:
        found = np.zeros((self._of.weights, self._of.weights))
        own = self._of.program.own.n_rows
        found[: self._of.inner, : self._of.inner] = self._point.hessian(net[:own])
        return found

    def hessian_product(self, net: Array, direction: Array) -> Array:
        found = np.zeros(self._of.weights)
        own, inner = self._of.program.own.n_rows, self._of.inner
        found[:inner] = self._point.hessian_product(net[:own], direction[:inner])
        return found


def decoupled(program: Program, shared: Bounds, clients: int, place: int) -> Program:
    """Return a client's program over (w, z), without shared inequalities; `place` is its place among the clients."""
    return Decoupled(program, shared, clients, place) if shared.n_rows else program


def widened(program: Program | None, shared: Bounds, clients: int, inner: int) -> Program:
    """Return the server's program over (w, z); a server without a program has none of its own."""
    own = SliceProgram(np.zeros((0, inner)), np.zeros(0), np.zeros(0)) if program is None else program
    return Widened(own, shared, clients, inner) if shared.n_rows else own
