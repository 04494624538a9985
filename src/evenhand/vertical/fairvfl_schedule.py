"""Options and step sizes of FairVFL: the constants of the experiments, or those of FairVFL Theorem 2.

Symbols: η is 1/`step`, β is `dual_step`, c is `damping`, Q is `local_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.evaluation import Lagrangian
from evenhand.protocol.job import CheckedOptions, Count, NotNegative, Positive
from evenhand.protocol.terms import VerticalTerms

OptimiserName = Literal["plain", "adam"]


class Optimiser(Protocol):
    """A rule with a state of its own, which is part of the party's checkpoint."""

    state_fields: ClassVar[Mapping[str, Any]]

    def change(self, gradient: Array, step: float) -> Array: ...


class Plain:
    """The papers' step: −step · gradient."""

    state_fields: ClassVar[Mapping[str, Any]] = {}

    def change(self, gradient: Array, step: float) -> Array:
        return -step * gradient


class Adam:
    """Adam (Kingma and Ba, 2015): each weight moves by about `step`, whatever the scale of its gradient.

    The second moment is averaged over about a hundred steps, not the usual thousand: gradients here are over all rows,
    and have no sampling noise.
    """

    state_fields: ClassVar[Mapping[str, Any]] = {"mean": Array, "square": Array, "count": int}

    DECAY, SQUARE_DECAY, FLOOR = 0.9, 0.99, 1e-8

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size)
        self.square = np.zeros(size)
        self.count = 0

    def change(self, gradient: Array, step: float) -> Array:
        self.count += 1
        self.mean = self.DECAY * self.mean + (1 - self.DECAY) * gradient
        self.square = self.SQUARE_DECAY * self.square + (1 - self.SQUARE_DECAY) * gradient**2
        mean = self.mean / (1 - self.DECAY**self.count)
        square = self.square / (1 - self.SQUARE_DECAY**self.count)
        return -step * mean / (np.sqrt(square) + self.FLOOR)


def make_optimiser(name: OptimiserName, size: int) -> Optimiser:
    return Adam(size) if name == "adam" else Plain()


@dataclass(frozen=True)
class FairVFL(CheckedOptions):
    """Options of FairVFL. Except for the step of linear parties, the defaults are those of the papers' experiments.

    Parameters
    ----------
    schedule
        ``"constant"``: `step`, `dual_step` and `damping` as given. ``"theorem"``: those of FairVFL Theorem 2, with η_t
        at its lower bound and Lipschitz constants estimated from the data. The theorem's β is the inverse of the step β
        of FairVFL Eq. 10: its proof has β/2 ‖λ^(t+1) − λ^(t)‖², where a step enters by its inverse. So
        c_t = t^(−1/4) / (2β) in terms of `dual_step`. Its steps are far too short in practice; see
        `reproductions/results/fairvfl-theorem.md`.
    step
        1/η. ``"auto"`` takes 1/L, with L a bound on the curvature of the Lagrangian at the present multipliers. None
        means ``"auto"`` for plain steps of linear parties, and 0.01 otherwise. With the papers' 0.01 plain linear
        parties end far from the optimum (`benchmarks/defaults.py`).
    dual_step
        β of FairVFL Eq. 10. The theorem asks for 1/β ≥ L_λ. L_λ is zero because the Lagrangian is linear in λ.
    damping
        c, for the constant schedule.
    local_steps
        Q, the maximum number of local updates of an active party in a round.
    optimiser
        ``"plain"``: the step of the papers. ``"adam"``: each party scales its gradient by Adam, for neural parties.
    penalty
        ρ. Zero is the method of the papers. With ρ > 0 the server sends λ + ρ · excess in place of λ, as in an
        augmented Lagrangian. Constraints are then met long before λ has grown.
    pace
        ``"exact"``: active parties do exactly Q updates, then send once. ``"until-server-speaks"``: they send after
        each update and continue until the server answers, at most Q times (FairVFL Algorithm 2).
    """

    schedule: Literal["constant", "theorem"] = "constant"
    step: Positive | Literal["auto"] | None = None
    dual_step: Positive = 0.1
    damping: NotNegative = 1e-3
    local_steps: Count = 1
    optimiser: OptimiserName = "plain"
    penalty: NotNegative = 0.0
    pace: Literal["exact", "until-server-speaks"] = "exact"

    @classmethod
    def of(cls, terms: VerticalTerms) -> Self:
        """Return the options of a job with the step filled in."""
        options = terms.job.settings(cls)
        if options.step is not None:
            return options
        plain = terms.job.model == "linear" and options.optimiser == "plain"
        return replace(options, step="auto" if plain else 0.01)

    @property
    def passive_steps(self) -> int:
        """Return how many steps a passive party takes with one ν."""
        return 1

    def on_batch(self, nu: Array, seed: int, round_number: int) -> Array:
        """Return the derivatives of a round's local steps; those of all rows, unless steps are stochastic."""
        return nu

    @property
    def needs_spectrum(self) -> bool:
        return self.schedule == "theorem" or self.step == "auto"


class Schedule:
    """Step and damping for each round: those of FairVFL Theorem 2, or the constants of the experiments."""

    TAU = 9.0
    """τ of FairVFL Theorem 2, which requires more than 8."""

    def __init__(self, options: FairVFL, lagrangian: Lagrangian, parties: int, regulariser: float) -> None:
        self.options = options
        self._lagrangian = lagrangian
        self._local_updates = parties * options.local_steps
        self._regulariser = regulariser

    def damping(self, round_number: int) -> float:
        """Return c_(t−1), with which FairVFL Eq. 10 computes λ^(t). At t = 1 λ is zero and it has no effect."""
        if self.options.schedule == "constant":
            return self.options.damping
        return float(0.5 / self.options.dual_step * max(round_number - 1, 1) ** -0.25)

    def step(self, round_number: int, multipliers: Array, squared_norm: float) -> float:
        """Return 1/η_t. `squared_norm` bounds the squared spectral norm of all parties' columns together."""
        if not self.options.needs_spectrum:
            assert self.options.step is not None
            return float(self.options.step)
        rows = len(self._lagrangian.labels)
        smooth = self._lagrangian.curvature_limit(multipliers) * squared_norm / rows + self._regulariser
        if self.options.schedule == "constant":
            return 1.0 / smooth
        kq = self._local_updates
        coupling = self._lagrangian.coupling_limit() ** 2 * squared_norm
        inverse = (smooth**2 * (kq + 2) * (kq - 1) + 2 * (smooth + 1)) / 4
        inverse += coupling * kq * (1 + 32 * self.TAU * np.sqrt(max(round_number, 1))) * self.options.dual_step / 2
        return float(1.0 / inverse)
