"""Settings of the VFB² solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from evenhand.protocol.job import CheckedOptions, Count, NotNegative, Positive, Share, Whole

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
FIRST_SHARE = 1 / 32
"""Share of an epoch's rows that the first one has; it doubles each time."""
ROWS_IN_A_MESSAGE = 64
"""Where the job leaves it open: enough that a step is more arithmetic than message."""
RATE_EPOCH, RATE_PENALTY = 1 / 32, 5.0
"""What "auto" stands for under constraints on rates."""


@dataclass(frozen=True)
class VFB2(CheckedOptions):
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
        τ₁: most steps, of all active parties together, that are launched before ϑ of an earlier one is known.
        ``"auto"`` is 2 where one compiled loop does everybody's work, and where m active parties exchange messages
        3m − 1: each then has three steps under way.
    message_delay
        τ₂: most steps by which a party may be further behind while ϑ is under way to it. No score has missed more than
        τ₁ + τ₂ updates, whether one loop does everybody's work, parties exchange messages, or threads share a block;
        where messages take long, more steps under way make better use of the links.
    epoch
        Share of the rows that are drawn between two full passes. ``"auto"`` is 1, or 1/32 under constraints on rates: a
        rate answers to its multiplier in jumps, and has to be led in small moves.
    growth
        The first epochs of SVRG and SAGA have 1/32, 1/16, ... of that: early snapshots are soon out of date. Until they
        have grown SAGA's table is made anew at every full pass, which costs no message; from then on it is the paper's.
    pace
        ``"asynchronous"``, or ``"synchronous"``: a new step begins when every party has done the last one (VFB).
    update
        ``"sparse"``: a step moves the columns that the row has entries in, the regulariser's and the mean gradient's
        parts of the others wait for their turn; the regulariser is taken implicitly. ``"dense"``: the paper's explicit
        step (VFB² Algorithm 3, steps 3-4), every column of the block at every row, which on sparse data is many times
        the work.
    dual_step
        β: how far a multiplier moves at first for the excess of its row, in units of the row's smallest slice (its
        share of all rows). Where constraints are on losses, each adapts by itself.
    penalty
        ρ, in the same units: during an epoch the rows are weighted with λ + ρ · excess, the excess being that of the
        last full pass. ``"auto"`` is 5 for rates; for losses 0 until a sample weight turns negative, then 2, halved
        whenever the row's excess overshoots.
    """

    step: Positive | Literal["auto"] = "auto"
    regulariser: Literal["ridge", "bounded"] = "ridge"
    batch_size: Count | Literal["auto"] = "auto"
    sampling: Literal["balanced", "uniform"] = "balanced"
    read_delay: Whole | Literal["auto"] = "auto"
    message_delay: Whole = 2
    epoch: Share | Literal["auto"] = "auto"
    growth: bool = True
    pace: Literal["asynchronous", "synchronous"] = "asynchronous"
    update: Literal["sparse", "dense"] = "sparse"
    dual_step: Positive = 1.0
    penalty: NotNegative | Literal["auto"] = "auto"

    def resolved(self, rule: Rule, on_rates: bool, dominators: int, *, in_one_loop: bool) -> VFB2:
        """With numbers in place of ``"auto"``; γ, and ρ of losses, are found as the run goes."""
        own_steps = 3 if in_one_loop else 3 * dominators
        return replace(
            self,
            batch_size=(1 if in_one_loop else ROWS_IN_A_MESSAGE) if self.batch_size == "auto" else self.batch_size,
            read_delay=own_steps - 1 if self.read_delay == "auto" else self.read_delay,
            epoch=(RATE_EPOCH if on_rates else 1.0) if self.epoch == "auto" else self.epoch,
            penalty=RATE_PENALTY if self.penalty == "auto" and on_rates else self.penalty,
            growth=self.growth and rule != "sgd" and not on_rates,
        )

    def share_of_rows(self, round_number: int) -> float:
        """How much of all rows is drawn in a round (the first is 1)."""
        return self._grown(round_number) * float(self.epoch)

    def renews_references(self, rule: Rule, round_number: int) -> bool:
        """Whether a round begins with references of its own: SVRG's always, SAGA's up to the first whole epoch."""
        return rule == "svrg" or (rule == "saga" and (round_number == 1 or self._grown(round_number - 1) < 1.0))

    def _grown(self, round_number: int) -> float:
        return min(1.0, FIRST_SHARE * 2.0 ** min(round_number - 1, 9)) if self.growth else 1.0

    @property
    def launch_ahead(self) -> int:
        """τ₁, in steps."""
        return 0 if self.pace == "synchronous" else int(self.read_delay)

    @property
    def delay(self) -> int:
        """τ₁ + τ₂, in steps."""
        return 0 if self.pace == "synchronous" else self.launch_ahead + self.message_delay


@dataclass(frozen=True)
class VFB2SGD(VFB2):
    """VFB² with stochastic gradient descent. Parameters are those of `VFB2`."""


@dataclass(frozen=True)
class VFB2SVRG(VFB2):
    """VFB² with variance-reduced gradients (SVRG). Parameters are those of `VFB2`."""


@dataclass(frozen=True)
class VFB2SAGA(VFB2):
    """VFB² with a table of past derivatives (SAGA). Parameters are those of `VFB2`."""


@dataclass(frozen=True)
class AFSVRGVP(VFB2):
    """AFSVRG-VP, the baseline of VFB²: only parties that hold labels update their blocks.

    Parameters are those of `VFB2`.
    """
