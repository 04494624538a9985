"""Settings of the VFB² solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from evenhand.errors import InputError
from evenhand.numbers import is_number, is_whole

Rule = Literal["sgd", "svrg", "saga"]


class VFB2Method(NamedTuple):
    """What tells the solvers apart: the rule, and whether only the blocks of parties that hold labels are updated."""

    rule: Rule
    only_active_move: bool = False


METHODS: Final = {
    "vfb2-sgd": VFB2Method("sgd"),
    "vfb2-svrg": VFB2Method("svrg"),
    "vfb2-saga": VFB2Method("saga"),
    "afsvrg-vp": VFB2Method("svrg", only_active_move=True),
}
"""By the solver's name."""
FIRST_SHARE = 0.25
"""Share of an epoch's rows that SVRG's first one has; it doubles each time."""
RATE_EPOCH, RATE_PENALTY = 1 / 32, 5.0
"""What "auto" stands for under constraints on rates."""


@dataclass(frozen=True)
class VFB2Options:
    """Settings of VFB²; a round is one pass over the rows (an epoch), opened by a full pass that sums all scores.

    Parameters
    ----------
    step
        γ, for one row. ``"auto"`` takes it from the rows' norms, the curvature of the loss and the delay bounds.
    regulariser
        ``"ridge"``: λ/2 w² (VFB² Eq. 13). ``"bounded"``: the nonconvex λ/2 w² / (1 + w²) (VFB² Eq. 14). λ is the
        job's alpha.
    batch_size
        Rows in a message. ``"auto"`` is 1, as in the paper, where one compiled loop does everybody's work, and 64 where
        parties exchange messages.
    sampling
        ``"uniform"``: each row drawn at random (VFB² Algorithm 2, step 2). ``"balanced"``: every row drawn about as
        often as its norm asks for, in random order, with ϑ weighted so that the mean gradient stays the same; a few
        rows of great norm then do not dictate a short step to all others.
    read_delay
        τ₁: most steps that may be launched between the reading of a row's scores and the use of its ϑ by the dominator.
    message_delay
        τ₂: most steps that may be launched while ϑ is under way to a collaborator. Where parties exchange messages,
        each active party keeps τ₁ + 1 requests under way and is at most τ₂ launches ahead of the others.
    epoch
        Share of the rows that are drawn between two full passes. ``"auto"`` is 1, or 1/32 under constraints on rates: a
        rate answers to its multiplier in jumps, and has to be led in small moves.
    growth
        SVRG's first epochs have a quarter and half of that: early snapshots are soon out of date.
    pace
        ``"asynchronous"``, or ``"synchronous"``: a new step begins when every party has done the last one (VFB).
    dual_step
        β: how far a multiplier moves at first for the excess of its row, in units of the row's smallest slice (its
        share of all rows). Where constraints are on losses, each adapts by itself.
    penalty
        ρ, in the same units: during an epoch the rows are weighted with λ + ρ · excess, the excess being that of the
        last full pass. ``"auto"`` is 5 for rates; for losses 0 until a sample weight turns negative, then 2, halved
        whenever the row's excess overshoots.
    """

    step: float | Literal["auto"] = "auto"
    regulariser: Literal["ridge", "bounded"] = "ridge"
    batch_size: int | Literal["auto"] = "auto"
    sampling: Literal["balanced", "uniform"] = "balanced"
    read_delay: int = 2
    message_delay: int = 2
    epoch: float | Literal["auto"] = "auto"
    growth: bool = True
    pace: Literal["asynchronous", "synchronous"] = "asynchronous"
    dual_step: float = 1.0
    penalty: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.step != "auto" and not (is_number(self.step) and self.step > 0):
            raise InputError(f"step is {self.step!r}; it must be a positive number, or 'auto' to have it estimated")
        if self.regulariser not in ("ridge", "bounded"):
            raise InputError(f"regulariser is {self.regulariser!r}; choose 'ridge' or 'bounded'")
        if self.batch_size != "auto" and not (is_whole(self.batch_size) and self.batch_size >= 1):
            raise InputError(f"batch_size is {self.batch_size!r}; it must be a whole number, at least 1, or 'auto'")
        if self.sampling not in ("balanced", "uniform"):
            raise InputError(f"sampling is {self.sampling!r}; choose 'balanced' or 'uniform'")
        for name in ("read_delay", "message_delay"):
            if not (is_whole(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be a whole number, zero or more")
        if self.epoch != "auto" and not (is_number(self.epoch) and 0 < self.epoch <= 1):
            raise InputError(f"epoch is {self.epoch!r}; it must be above 0 and at most 1, or 'auto'")
        if not isinstance(self.growth, bool):
            raise InputError(f"growth is {self.growth!r}; it must be true or false")
        if self.pace not in ("asynchronous", "synchronous"):
            raise InputError(f"pace is {self.pace!r}; choose 'asynchronous' or 'synchronous'")
        if not (is_number(self.dual_step) and self.dual_step > 0):
            raise InputError(f"dual_step is {self.dual_step!r}; it must be a positive number")
        if self.penalty != "auto" and not (is_number(self.penalty) and self.penalty >= 0):
            raise InputError(f"penalty is {self.penalty!r}; it must be a number, zero or more, or 'auto'")

    def resolved(self, rule: Rule, on_rates: bool) -> VFB2Options:
        """With numbers in place of ``"auto"``, on rates or not; ρ of losses is found as the run goes."""
        return replace(
            self,
            epoch=(RATE_EPOCH if on_rates else 1.0) if self.epoch == "auto" else self.epoch,
            penalty=RATE_PENALTY if self.penalty == "auto" and on_rates else self.penalty,
            growth=self.growth and rule == "svrg" and not on_rates,
        )

    def share_of_rows(self, round_number: int) -> float:
        """How much of all rows is drawn in a round (the first is 1)."""
        growing = FIRST_SHARE * 2.0 ** min(round_number - 1, 9) if self.growth else 1.0
        return min(1.0, growing) * float(self.epoch)

    def rows_in_a_message(self, otherwise: int) -> int:
        return otherwise if self.batch_size == "auto" else self.batch_size

    @property
    def delay(self) -> int:
        """τ₁ + τ₂, in steps."""
        return 0 if self.pace == "synchronous" else self.read_delay + self.message_delay
