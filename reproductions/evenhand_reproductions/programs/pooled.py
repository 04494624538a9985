"""All clients' functions in one program, as with pooled data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import NO_BOUNDS, Bounds
from evenhand.programs.program import Curvature, Program, ProgramPoint


class Pooled:
    """Σ_i f_i under all clients' own rows, the server's, then the shared ones."""

    shared = 0

    def __init__(self, clients: Sequence[Program], server: Program | None = None, shared: Bounds = NO_BOUNDS) -> None:
        self.members = [*clients] if server is None else [*clients, server]
        self.bounds = shared
        self.weights = clients[0].weights
        parts = [*(member.own for member in self.members), shared]
        self.own = Bounds(np.concatenate([p.lower for p in parts]), np.concatenate([p.upper for p in parts]))
        offered = {member.curvature for member in self.members}
        self.curvature: Curvature = next(kind for kind in ("none", "product", "matrix") if kind in offered)
        self.effort = sum(member.effort for member in self.members)
        # Places of each member's own rows among all.
        ends = np.cumsum([0, *(member.own.n_rows for member in self.members)])
        self.places = [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def tables(self, table: Array, names: Sequence[str]) -> dict[str, Array]:
        """Split a (2, rows) table of multipliers by holder."""
        return {name: table[:, place] for name, place in zip(names, self.places, strict=True)}

    def at(self, weights: Array) -> PooledPoint:
        return PooledPoint(self, weights)


class PooledPoint:
    def __init__(self, pooled: Pooled, weights: Array) -> None:
        self._of = pooled
        self._points: list[ProgramPoint] = [member.at(weights) for member in pooled.members]

    @cached_property
    def value(self) -> float:
        return sum(point.value for point in self._points)

    @cached_property
    def gradient(self) -> Array:
        return np.sum([point.gradient for point in self._points], axis=0)

    def _stacked(self, parts: Sequence[Array], empty: Array) -> Array:
        """Stack own rows, and add up the summands of shared rows."""
        of = self._of
        own = [part[: member.own.n_rows] for part, member in zip(parts, of.members, strict=True)]
        total = empty
        for part, member in zip(parts, of.members, strict=True):
            if member.shared:
                total = total + part[member.own.n_rows :]
        return np.concatenate([*own, total])

    @cached_property
    def constraints(self) -> Array:
        return self._stacked([point.constraints for point in self._points], np.zeros(self._of.bounds.n_rows))

    @cached_property
    def jacobian(self) -> Array:
        empty = np.zeros((self._of.bounds.n_rows, self._of.weights))
        return self._stacked([point.jacobian for point in self._points], empty)

    def _sum(self, net: Array, function: Callable[[ProgramPoint, Array], Array]) -> Array:
        of = self._of
        last = net[of.own.n_rows - of.bounds.n_rows :]
        total: Array | None = None
        for point, member, place in zip(self._points, of.members, of.places, strict=True):
            part = function(point, np.concatenate([net[place], last[: member.shared]]))
            total = part if total is None else total + part
        assert total is not None
        return total

    def hessian(self, net: Array) -> Array:
        return self._sum(net, lambda point, own: point.hessian(own))

    def hessian_product(self, net: Array, direction: Array) -> Array:
        return self._sum(net, lambda point, own: point.hessian_product(own, direction))
