"""Interface of a client's ADMM step, for objects that compute it on the client's behalf."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from evenhand.arrays import Array
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.programs.augmented import Augmented, AugmentedPoint
from evenhand.programs.minimise import Minimiser
from evenhand.programs.program import Program


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
