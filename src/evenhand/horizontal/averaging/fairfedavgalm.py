"""FairFedAvgALM Algorithm 1: FedAvg on an augmented Lagrangian, with the multipliers averaged like the weights.

Round:

1. The server sends the model and λ to the participants.
2. Each descends on the batch's mean loss + λ (μ_s0 − μ_s1) + (β/2)(μ_s0 − μ_s1)² (FairFedAvgALM Eq. 10).
3. Each then takes an ascent step in λ on all of its rows, and answers with both changes.
4. The server averages both, weighted by rows, and projects λ. β grows and η_λ shrinks from round to round.
5. It stops after `max_rounds` rounds.

Here μ_s0 − μ_s1 is any inequality: several groups, several attributes, other measures. A row with room
(lower < upper) has a multiplier for each side, and the penalty is on the excess.

Limits. A batch without rows of a slice has no term for the inequality. A client without rows of a slice moves that
multiplier by zero. The method drives the average of the clients' *own* gaps to zero, each at the client's own locally
trained model. Where clients differ in their groups, or take long or many steps, that is not the gap of the average
model over all rows. History and certificate report the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from evenhand.arrays import Array
from evenhand.constraints.kinds import LossParity
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.formulation import Formulation
from evenhand.horizontal.averaging.options import (
    AveragingOptions,
    RoundSettings,
)
from evenhand.protocol.job import NotNegative, Positive
from evenhand.protocol.terms import HorizontalTerms

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.horizontal.averaging.bound_tensors import BoundTensors


@dataclass(frozen=True)
class FairFedAvgALM(AveragingOptions):
    """Options of FairFedAvgALM.

    Parameters
    ----------
    penalty
        β of the first round. ``"auto"`` is 0.1 on tables, and 2 with Adam. With 0.1, a gap of one (in mean loss, or in
        a rate) adds to a slice the weight of a slice with a tenth of the rows. A much larger penalty makes the weights
        of small slices negative, and all decisions equal.
    growth
        b: β is multiplied by it after every round, and η_λ divided. ``"auto"`` is 1.02 on tables.
    dual_step
        η_λ,0, the learning rate of the multipliers. ``"auto"`` is 0.1 on tables, like β, and 1 with Adam.
    """

    penalty: NotNegative | Literal["auto"] = "auto"
    growth: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    dual_step: Positive | Literal["auto"] = "auto"

    def for_tables(self, terms: HorizontalTerms) -> Mapping[str, Any]:
        return {**super().for_tables(terms), "penalty": 0.1, "growth": 1.02, "dual_step": 0.1}

    def for_networks(self) -> Mapping[str, Any]:
        return {**super().for_networks(), "penalty": 5.0, "growth": 1.05, "dual_step": 2.0}

    def with_adam(self) -> Mapping[str, Any]:
        # Adam keeps the length of steps, so a large penalty turns them away from the loss altogether.
        return {"penalty": 2.0, "dual_step": 1.0, "growth": 1.05}

    def settings(self, round_number: int) -> RoundSettings:
        growth = float(self.growth)
        penalty = float(self.penalty) * growth ** (round_number - 1)
        dual_step = self.decayed_dual_step(float(self.dual_step), growth, round_number)
        return RoundSettings(self.decayed_step(round_number), penalty, dual_step)


class AugmentedLagrangian(Formulation):
    """λ · excess + (β/2) · excess², without the sides that have slack (FairFedAvgALM Eqs. 7 and 10)."""

    def needs_values(self, settings: RoundSettings) -> bool:
        return settings.penalty > 0

    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        """Return λ + β (μ_s0 − μ_s1), the factor of ∇(μ_s0 − μ_s1) in FairFedAvgALM Eq. 10."""
        if values is not None:
            multipliers = bounds.add_excess(multipliers, settings.penalty, values)
        return bounds.onto_rows(multipliers)

    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        """Return η_λ,t (μ_s0 − μ_s1) at the local model (FairFedAvgALM Algorithm 1), in general η_λ,t · excess."""
        return settings.dual_step * self.multipliers.excess(values)


SOLVER = averaging_solver(
    "fairfedavgalm", FairFedAvgALM, formulation=AugmentedLagrangian, default_constraints=(LossParity(0.0),)
)
