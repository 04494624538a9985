"""A client's part of a round of ADMM as somebody else may take it: what is read of the client, and what comes out."""

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
    """What is read of a client; see `ProxALClient`."""

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
    """Takes steps of clients that have an inverse Hessian."""

    def step(self, member: SteppingClient, weights: Array, tolerance: float) -> LocalStep | None:
        """The client's step towards the server's iterate, or None if it has to solve by itself."""
        ...
