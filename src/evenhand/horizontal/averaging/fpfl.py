"""FPFL by the modified method of differential multipliers, with several local steps as in FairFedAvgALM Eq. 11.

Round:

1. The server sends the model and λ to the participants; λ has one non-negative multiplier for each group.
2. Each descends on F + Σ_s λ_s |F − μ_s| + (β/2) Σ_s (F − μ_s)².
3. Each then raises λ_s by η_λ |F − μ_s| on its own rows, and answers with both changes.
4. The server averages both, weighted by rows. β and η_λ stay the same.
5. It stops after `max_rounds` rounds.

With a threshold ε above zero, |F − μ_s| − ε takes the place of |F − μ_s|. It counts only where
λ_s + β (|F − μ_s| − ε) is positive. With ε = 0, as published, λ_s never decreases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.kinds import GroupAgainstOverall
from evenhand.constraints.slices import Bounds
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.options import AveragingOptions, RoundSettings
from evenhand.protocol.job import NotNegative, Positive
from evenhand.protocol.terms import HorizontalTerms

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.horizontal.averaging.bound_tensors import BoundTensors


@dataclass(frozen=True)
class FPFL(AveragingOptions):
    """Options of FPFL.

    Parameters
    ----------
    penalty
        β, the damping. ``"auto"`` is 0.1 on tables.
    dual_step
        η_λ, equal in every round. ``"auto"`` is 1/T on tables, for T rounds: λ_s never decreases, and then grows to at
        most the mean of |F − μ_s| over the rounds.
    """

    penalty: NotNegative | Literal["auto"] = "auto"
    dual_step: Positive | Literal["auto"] = "auto"

    def for_tables(self, terms: HorizontalTerms) -> Mapping[str, Any]:
        return {**super().for_tables(terms), "penalty": 0.1, "dual_step": 1.0 / terms.job.max_rounds}

    def for_networks(self) -> Mapping[str, Any]:
        return {**super().for_networks(), "penalty": 5.0, "dual_step": 2.0}

    def settings(self, round_number: int) -> RoundSettings:
        dual_step = self.decayed_dual_step(float(self.dual_step), 1.0, round_number)
        return RoundSettings(self.decayed_step(round_number), float(self.penalty), dual_step)


class RowMultipliers:
    """λ_s: one non-negative multiplier an inequality, for its worse side (|F − μ_s| if both bounds are zero)."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def __len__(self) -> int:
        return self._bounds.n_rows

    def excess(self, values: Array) -> Array:
        return np.nan_to_num(self._bounds.excess(values).max(axis=0))

    def project(self, multipliers: Array) -> Array:
        return np.maximum(multipliers, 0.0)

    def table(self, multipliers: Array, values: Array) -> Array:
        """Return λ⁺ and λ⁻: λ |v| has a derivative with the sign of v; without a value, the upper side has λ."""
        over, under = self._bounds.excess(values)
        below = under > over
        return np.stack([np.where(below, 0.0, multipliers), np.where(below, multipliers, 0.0)])


class AbsoluteLagrangian(Formulation):
    """Σ_s λ_s |F − μ_s| + (β/2) Σ_s (F − μ_s)² (FairFedAvgALM Eq. 11)."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.multipliers = RowMultipliers(bounds)

    def needs_values(self, settings: RoundSettings) -> bool:
        return True

    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        """Return (λ_s + β |F − μ_s|) · sign(F − μ_s); the derivative of |v| at zero is taken as zero."""
        assert values is not None
        over, under = values - bounds.upper, bounds.lower - values
        push = (multipliers + settings.penalty * over.maximum(under)).relu()
        return push * (over - under).sign()

    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        """Return η_λ |F − μ_s|."""
        return settings.dual_step * self.multipliers.excess(values)


SOLVER = averaging_solver("fpfl", FPFL, formulation=AbsoluteLagrangian, default_constraints=(GroupAgainstOverall(0.0),))
