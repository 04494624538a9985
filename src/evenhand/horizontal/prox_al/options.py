"""Options of the proximal AL method with inexact ADMM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from evenhand.programs.minimise import Method
from evenhand.programs.optimality import ProxALTolerances
from evenhand.programs.slices import ObjectiveWeights
from evenhand.protocol.job import Count, Positive, Share

RhoRule = Literal["fixed", "balanced"]


@dataclass(frozen=True)
class ProxAL(ProxALTolerances):
    """Options of `prox-al`: the tolerances of both methods (β, s̄, ε₁, ε₂), and those of proximal AL Algorithm 2.

    Parameters
    ----------
    rho
        Initial ρ_i of every client.
    rho_rule
        None is ``"balanced"`` in a job, and ``"fixed"`` without one.
        ``"fixed"``: as in the paper. ``"balanced"``: each client doubles or halves its own ρ_i if its distance from the
        server's iterate and its own movement times ρ_i differ by more than a factor of `balance`. The ρ_i of
        proximal AL Eq. 22 is then the one that the server used. After `balance_rounds` rounds of a subproblem ρ_i is
        fixed, so proximal AL Theorem 9 holds from there on.
    balance, balance_rounds
        See `rho_rule`.
    shrink
        q of ε_{t+1} = q^t. The tolerance of a local solve is at least `floor` · τ_k / (n+1): less would be lost in
        rounding and is not needed for proximal AL Eq. 23. With 0 every local solve has this tolerance from the first
        round on; with a small `floor`, these are near-exact solves.
    floor
        See `shrink`.
    max_inner
        Most ADMM rounds of one subproblem. If it is reached, the subproblem is not solved to τ_k, and the run cannot
        converge on it.
    max_rounds
        Largest number of communication rounds. If given it wins over that of the job; None is the job's, or 100,000
        without a job.
    participation
        Share of the clients in a round of ADMM, drawn anew each time; a subproblem ends only after a round with all
        clients.
    local_solver
        ``"newton"``, ``"cg"``, ``"lbfgs"``, or ``"auto"``: by the size of w and the available derivatives.
    curvature_rows
        Number of rows, drawn anew for each subproblem, from which a client computes second derivatives; None for all.
        Gradients, and so the tolerances, always use all rows. Programs that are not slices of data ignore it.
    seed
        Seed of the draws of participants and rows. If given it wins over that of the job; None is the job's, or 0.
    objective
        ``"rows"``: the mean loss over all clients' rows. ``"clients"``: the mean over clients of each client's mean
        loss (proximal AL Eq. 32). ``"other-class"``: the same over the class that Neyman-Pearson leaves without a bound
        (proximal AL Eq. 30).
    """

    rho: Positive = 0.01
    rho_rule: RhoRule | None = None
    balance: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] = 5.0
    balance_rounds: Count = 200
    shrink: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    floor: Positive = 0.01
    max_inner: Count = 10_000
    max_rounds: Count | None = None
    participation: Share = 1.0
    local_solver: Method = "auto"
    curvature_rows: Count | None = None
    seed: int | None = None
    objective: ObjectiveWeights = "rows"

    @property
    def round_limit(self) -> int:
        return self.max_rounds or 100_000

    def tolerance(self, inner: int, outer: int, clients: int) -> float:
        """Return ε_{t+1}."""
        least = self.floor * self.tau(outer) / (clients + 1)
        return max(self.shrink**inner, least) if self.shrink else least
