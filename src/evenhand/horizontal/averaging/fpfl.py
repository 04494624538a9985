"""FPFL by the modified method of differential multipliers, with several local steps as in the paper (Eq. 11).

Clients descend on F + Σ_s λ_s |F − μ_s| + (β/2) Σ_s (F − μ_s)², one non-negative multiplier for each group, and
λ_s grows by η_λ |F − μ_s|. With a threshold ε above zero, |F − μ_s| − ε takes the place of |F − μ_s| and counts only
where λ_s + β (|F − μ_s| − ε) is positive. With the threshold at zero, as published, λ_s never falls.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.constraints.kinds import GroupAgainstOverall
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.options import AveragingOptions, RoundSettings, check_not_negative, check_positive
from evenhand.horizontal.sides import AbsoluteSides


@dataclass(frozen=True)
class FPFLOptions(AveragingOptions):
    """Options of FPFL; defaults are those of the CelebA experiments (supplement C.1).

    Parameters
    ----------
    penalty
        β, the damping.
    dual_step
        η_λ, the same in every round.
    """

    penalty: float = 5.0
    dual_step: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "penalty")
        check_positive(self, "dual_step")

    def settings(self, round_number: int) -> RoundSettings:
        return RoundSettings(self.decayed_step(round_number), self.penalty, self.dual_step)


SOLVER = averaging_solver(FPFLOptions, sides=AbsoluteSides, default_constraints=(GroupAgainstOverall(0.0),))
