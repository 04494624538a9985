"""FairALM-FedAvg, the FairFedAvgALM paper's extension of FairALM to clients (its Section 5, baseline 2).

Round:

1. The server sends the model and λ to the participants.
2. Each descends on the mean loss + λ (μ_s0 − μ_s1) + η_λ (μ_s0 + μ_s1).
3. Each then takes an ascent step in λ on its own rows, and answers with both changes.
4. The server averages both, weighted by rows, and projects λ. η_λ shrinks from round to round.
5. It stops after `max_rounds` rounds.

There is no squared penalty. Instead the slice means themselves have a weight, equal to the step of the multipliers. For
a general inequality Σ a_s μ_s the last term is η_λ Σ |a_s| μ_s.
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
from evenhand.horizontal.averaging.options import AveragingOptions, RoundSettings
from evenhand.protocol.job import Positive
from evenhand.protocol.terms import HorizontalTerms

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.horizontal.averaging.bound_tensors import BoundTensors


@dataclass(frozen=True)
class FairALM(AveragingOptions):
    """Options of FairALM-FedAvg.

    Parameters
    ----------
    growth
        b: η_λ is divided by it after every round. ``"auto"`` is 1.01 on tables, as published.
    dual_step
        η_λ,0, the learning rate of the multipliers and the weight of the slice means. ``"auto"`` is 0.1 on tables, so
        that the slice means have a tenth of the weight of the mean loss.
    """

    growth: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    dual_step: Positive | Literal["auto"] = "auto"

    def for_tables(self, terms: HorizontalTerms) -> Mapping[str, Any]:
        return {**super().for_tables(terms), "growth": 1.01, "dual_step": 0.1}

    def for_networks(self) -> Mapping[str, Any]:
        return {**super().for_networks(), "growth": 1.01, "dual_step": 1.0}

    def settings(self, round_number: int) -> RoundSettings:
        dual_step = self.decayed_dual_step(float(self.dual_step), float(self.growth), round_number)
        return RoundSettings(self.decayed_step(round_number), dual_step=dual_step, slice_weight=dual_step)


class WeightedLagrangian(Formulation):
    """λ (μ_s0 − μ_s1) + η_λ (μ_s0 + μ_s1)."""

    def push(self, values: Tensor | None, multipliers: Tensor, bounds: BoundTensors, settings: RoundSettings) -> Tensor:
        """Return λ. The slice means also have the weight η_λ, as `RoundSettings.slice_weight`."""
        return bounds.onto_rows(multipliers)

    def ascent(self, values: Array, settings: RoundSettings) -> Array:
        """Return η_λ (μ_s0 − μ_s1), in general η_λ · excess."""
        return settings.dual_step * self.multipliers.excess(values)


SOLVER = averaging_solver("fairalm", FairALM, formulation=WeightedLagrangian, default_constraints=(LossParity(0.0),))
