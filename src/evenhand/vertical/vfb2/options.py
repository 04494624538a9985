"""Options of the VFB² solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from evenhand.protocol.job import CheckedOptions, Count, NotNegative, Positive, Share, Whole

Rule = Literal["sgd", "svrg", "saga"]


class VFB2Method(NamedTuple):
    """Difference between the solvers: the update rule, and whether only blocks of active parties are updated."""

    rule: Rule
    only_active_move: bool = False


METHODS: Final = {
    "vfb2-sgd": VFB2Method("sgd"),
    "vfb2-svrg": VFB2Method("svrg"),
    "vfb2-saga": VFB2Method("saga"),
    "afsgd-vp": VFB2Method("sgd", only_active_move=True),
    "afsvrg-vp": VFB2Method("svrg", only_active_move=True),
    "afsaga-vp": VFB2Method("saga", only_active_move=True),
}
"""Methods by solver name."""
FIRST_SHARE = 1 / 32
"""Share of the rows that the first epoch draws; it doubles in each further epoch."""
ROWS_IN_A_MESSAGE = 64
"""Default batch size with messages: large enough that a step costs more arithmetic than communication."""
RATE_EPOCH, RATE_PENALTY = 1 / 32, 5.0
"""Value of "auto" under constraints on rates."""


@dataclass(frozen=True)
class VFB2(CheckedOptions):
    """Options of VFB². A round is one pass over the rows (an epoch) after a full pass that sums all scores.

    Parameters
    ----------
    step
        γ, for one row. ``"auto"`` derives it from the rows' norms, the curvature of the loss and the delay bounds.
    regulariser
        ``"ridge"``: λ/2 w² (VFB² Eq. 13). ``"bounded"``: the nonconvex λ/2 w² / (1 + w²) (VFB² Eq. 14). λ is the
        job's alpha.
    batch_size
        Rows in a message. ``"auto"`` is 1, as in the paper, if one compiled loop does the work of all parties, and 64
        if parties exchange messages.
    sampling
        ``"uniform"``: each row is drawn at random (VFB² Algorithm 2, step 2). ``"balanced"``: every row is drawn about
        as often as its norm requires, in random order. ϑ is weighted so that the mean gradient stays the same. A few
        rows of large norm then do not force a short step on all others.
    read_delay
        τ₁: maximum number of steps, over all active parties, that are launched before ϑ of an earlier one is known.
        ``"auto"`` is 2 in one compiled loop. If m active parties exchange messages it is 3m − 1, so that each has three
        steps in flight.
    message_delay
        τ₂: maximum number of further steps by which a party may lag while ϑ is in flight. No score misses more than
        τ₁ + τ₂ updates, in one loop, with messages, or with threads that share a block. With slow links, more steps in
        flight use the links better.
    epoch
        Share of the rows that are drawn between two full passes. ``"auto"`` is 1, or 1/32 under constraints on rates: a
        rate responds to its multiplier in jumps, and needs small moves.
    growth
        Whether the first epochs of SVRG and SAGA have 1/32, 1/16, ... of that, because early snapshots are soon out of
        date. Until epochs have their full size, SAGA's table is rebuilt at every full pass, which costs no message.
        From then on it is the table of the paper.
    pace
        ``"asynchronous"``, or ``"synchronous"``: a new step begins when every party has done the last one (VFB).
    update
        ``"sparse"``: a step moves only the columns in which the row has entries. The regulariser and the mean gradient
        of the other columns wait, and the regulariser is taken implicitly. ``"dense"``: the paper's explicit step
        (VFB² Algorithm 3, steps 3-4) in every column of the block at every row. On sparse data it costs many times
        more.
    dual_step
        β: how far a multiplier moves at first for the excess of its constraint, in units of the smallest slice of the
        constraint (its share of all rows). For constraints on losses, each β adapts by itself.
    penalty
        ρ, in the same units: during an epoch the rows are weighted with λ + ρ · excess, with the excess of the last
        full pass. ``"auto"`` is 5 for rates. For losses it is 0 until a sample weight turns negative, then 2, and is
        halved whenever the excess overshoots.
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
        """Return the options with numbers in place of ``"auto"``; γ, and ρ of losses, are chosen during the run."""
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
        """Return the share of all rows that is drawn in a round (the first is 1)."""
        return self._grown(round_number) * float(self.epoch)

    def renews_references(self, rule: Rule, round_number: int) -> bool:
        """Return whether a round starts with new references: always in SVRG, in SAGA up to the first whole epoch."""
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


@dataclass(frozen=True)
class AFSGDVP(VFB2):
    """AFSGD-VP: as AFSVRG-VP, with stochastic gradient descent. Parameters are those of `VFB2`."""


@dataclass(frozen=True)
class AFSAGAVP(VFB2):
    """AFSAGA-VP: as AFSVRG-VP, with a table of past derivatives. Parameters are those of `VFB2`."""
