"""Constrained programs over clients: the interface between a solver and each client's functions.

    min over w:   Σ_i f_i(w)
    subject to    lower_i ≤ c_i(w) ≤ upper_i            own inequalities of a client (or of the server, i = 0)
                  lower ≤ Σ_i s_i(w) ≤ upper            shared inequalities: each client knows its summand only

This is proximal AL Eq. 5 with two-sided inequalities and h = 0, and proximal AL Eq. 3 for shared ones. `slices.py`
implements it for slice means; the reproductions add quadratic programs and h.
"""

from __future__ import annotations

from typing import Literal, Protocol

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds

Curvature = Literal["matrix", "product", "none"]
"""Second derivatives that a program has: matrices, products with a vector, or none."""


class ProgramPoint(Protocol):
    """A program's functions at one w. Rows are the program's own, then its summands of the shared ones."""

    @property
    def value(self) -> float: ...
    @property
    def gradient(self) -> Array: ...
    @property
    def constraints(self) -> Array: ...
    @property
    def jacobian(self) -> Array:
        """(inequalities, d)."""
        ...

    def hessian(self, net: Array) -> Array:
        """Return ∇²f + Σ_rows net · ∇²c, as a new matrix."""
        ...

    def hessian_product(self, net: Array, direction: Array) -> Array: ...


class Program(Protocol):
    """One client's functions, or the server's.

    Attributes
    ----------
    weights
        d, the length of w.
    own
        Bounds of the program's own inequalities.
    shared
        Number of shared inequalities that it has summands of.
    curvature
        Second derivatives that its points have.
    effort
        Multiplications of one pass over its data.
    """

    @property
    def weights(self) -> int: ...
    @property
    def own(self) -> Bounds: ...
    @property
    def shared(self) -> int: ...
    @property
    def curvature(self) -> Curvature: ...
    @property
    def effort(self) -> float: ...

    def at(self, weights: Array) -> ProgramPoint: ...
