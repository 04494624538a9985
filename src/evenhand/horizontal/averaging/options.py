"""Options of the averaging solvers, and what follows from them for one round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evenhand.errors import InputError
from evenhand.numbers import is_number, is_whole


@dataclass(frozen=True)
class RoundSettings:
    """What one round of local training goes by.

    Attributes
    ----------
    step
        η_w,t.
    penalty
        β_t of the squared penalty.
    dual_step
        η_λ,t of the multipliers.
    slice_weight
        What the slice means themselves are weighted with in the local objective (FairALM's η_λ).
    """

    step: float
    penalty: float = 0.0
    dual_step: float = 0.0
    slice_weight: float = 0.0


@dataclass(frozen=True)
class AveragingOptions:
    """Options of all averaging solvers; defaults are those of the CelebA experiments (FairFedAvgALM's supplement C.1).

    Parameters
    ----------
    batch_size
        |B|; None takes all of a client's rows at once. The last batch of an epoch is smaller.
    step
        η_w,0, the learning rate of plain SGD.
    step_decay_every, step_decay_factor
        The learning rate is multiplied by the factor after every so many rounds; None never.
    clip
        Longest gradient of a batch; longer ones are scaled to it. None clips nothing.
    local_epochs
        Passes over a client's rows in a round.
    participation
        C: share of the clients that take part in a round, drawn anew each time; at least one does.
    dual_rows
        What the step of the multipliers goes by: ``"all"`` of the client's rows, at its locally trained model, which is
        FairFedAvgALM Algorithm 1 and costs one more pass over them; or the average over the ``"batches"`` it trained
        on, each at the model of its moment, which costs nothing. Solvers without multipliers ignore it.
    report_every
        In every how many-th round the participants measure the received model, for the history: one more pass over
        their rows (a quarter to a third of a FedAvg round). Zero never measures, not even for the certificate. None is
        1, or zero where clients have a protection, which covers updates and not measurements.
    """

    batch_size: int | None = 128
    step: float = 0.01
    step_decay_every: int | None = 25
    step_decay_factor: float = 0.1
    clip: float | None = 1.0
    local_epochs: int = 1
    participation: float = 1.0
    dual_rows: Literal["all", "batches"] = "all"
    report_every: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "step_decay_every"):
            value = getattr(self, name)
            if value is not None and not (is_whole(value) and value >= 1):
                raise InputError(f"{name} is {value!r}; it must be a whole number, at least 1, or None")
        check_positive(self, "step", "step_decay_factor")
        if self.clip is not None:
            check_positive(self, "clip")
        if not (is_whole(self.local_epochs) and self.local_epochs >= 1):
            raise InputError(f"local_epochs is {self.local_epochs!r}; it must be a whole number, at least 1")
        if not (is_number(self.participation) and 0 < self.participation <= 1):
            raise InputError(f"participation is {self.participation!r}; it must be above 0 and at most 1")
        if self.dual_rows not in ("all", "batches"):
            raise InputError(f"dual_rows is {self.dual_rows!r}; choose 'all' or 'batches'")
        if self.report_every is not None and not (is_whole(self.report_every) and self.report_every >= 0):
            raise InputError(f"report_every is {self.report_every!r}; it must be a whole number, zero or more, or None")

    def settings(self, round_number: int) -> RoundSettings:
        """Of round t = 1, 2, ..."""
        return RoundSettings(self.decayed_step(round_number))

    def decayed_step(self, round_number: int) -> float:
        times = 0 if self.step_decay_every is None else (round_number - 1) // self.step_decay_every
        return float(self.step * self.step_decay_factor**times)


def check_positive(options: Any, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not (is_number(value) and value > 0):
            raise InputError(f"{name} is {value!r}; it must be a number above zero")


def check_not_negative(options: Any, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not (is_number(value) and value >= 0):
            raise InputError(f"{name} is {value!r}; it must be a number, zero or more")
