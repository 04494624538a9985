"""Options of the averaging solvers, and the parameters of one round that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from evenhand.errors import InputError
from evenhand.protocol.job import CheckedOptions, Count, Positive, Share, Whole
from evenhand.protocol.terms import HorizontalTerms

ADAM_STEP: Final = 1e-3
"""The step that Adam's authors give."""
LONGEST_STEP: Final = 0.2
"""Largest automatic step on tables; with more than forty columns the step is shorter."""


@dataclass(frozen=True)
class RoundSettings:
    """Parameters of one round of local training.

    Attributes
    ----------
    step
        η_w,t.
    penalty
        β_t of the squared penalty.
    dual_step
        η_λ,t of the multipliers.
    slice_weight
        Weight of the slice means in the local objective (FairALM's η_λ).
    proximity
        μ of (μ/2)‖w − w_t‖², which keeps local weights near the received ones (FedProx).
    """

    step: float
    penalty: float = 0.0
    dual_step: float = 0.0
    slice_weight: float = 0.0
    proximity: float = 0.0


@dataclass(frozen=True)
class AveragingOptions(CheckedOptions):
    """Options of all averaging solvers.

    ``"auto"`` suits tables of standardised columns with linear models and perceptrons: it is a constant, or follows
    from the terms and from a client's own number of rows. Other models, with unknown scales of their inputs, are
    trained with Adam. With `optimizer="sgd"` or noise they have the values of FairFedAvgALM's CelebA experiments
    (supplement C.1).

    Parameters
    ----------
    batch_size
        |B|, the mini-batch size; None uses all of a client's rows. The last mini-batch of an epoch is smaller.
    batches
        ``"shuffled"``: an epoch passes over the rows in random order. ``"equal-slices"``: every batch has as many rows
        of each combination of the constraints' slices that the client has; with two groups, half of each, as
        FairFedAvgALM Lemma 4.1 assumes. Rows of rarer combinations come again, so the mean loss weights them up. The
        number of batches is the same.
    optimizer
        Local optimiser: ``"sgd"`` as published, or ``"adam"`` (Kingma & Ba 2015), with moments that begin anew in every
        round and stay at the client. ``"auto"`` is ``"adam"`` for ResNets and torch modules, unless a step is given or
        clients add noise; else ``"sgd"``.
    step
        η_w,0, the learning rate. ``"auto"`` of SGD is 8 / (d + 1) for d columns, at most 0.2. With columns of unit
        mean square and an intercept, the curvature of the loss is at most (d + 1) / 4, and the longest stable step is 2
        divided by it. ``"auto"`` of Adam is 0.001.
    step_decay_every, step_decay_factor
        The learning rate is multiplied by the factor after every `step_decay_every` rounds. None, and ``"auto"`` on
        tables, is never.
    schedule
        ``"steps"``: as above. ``"theorem"``: η_w,0 / t in round t, and η_λ,0 / t^(2/3) for the multipliers
        (FairFedAvgALM Theorem 4.2).
    clip
        Largest norm of a batch's gradient with SGD; longer gradients are scaled to it. None does not clip.
    local_epochs
        Passes over a client's rows in a round. ``"auto"`` gives at least 20 steps: one pass for a client with more than
        19 batches, more for a smaller one, which would hardly move otherwise.
    participation
        C: share of the clients that take part in a round, drawn anew each time; at least one does.
    dual_rows
        Rows for the update of the multipliers. ``"all"``: all of the client's rows, at its locally trained model. This
        is FairFedAvgALM Algorithm 1 and costs one more pass over the rows. ``"batches"``: the average over its training
        batches, each at the model of that step, at no cost. Solvers without multipliers ignore it.
    report_every
        Participants measure the received model every `report_every` rounds, for the history. This costs one more pass
        over their rows (a quarter to a third of a FedAvg round). Zero never measures, not even for the certificate.
        None is 1, or zero if clients add noise, which covers updates and not measurements.
    aggregation
        How the server combines updates. ``"mean"`` weights them by numbers of rows, as published. ``"median"``,
        ``"trimmed"`` and ``"clipped"`` count clients alike and bound what one dishonest client can do; see
        `evenhand.horizontal.averaging.rounds`. Under masks only ``"mean"`` and ``"clipped"`` are possible.
    trim
        For ``"trimmed"``: share of the clients that is left out at each end of every coordinate.
    norm_bound
        For ``"clipped"``: largest norm of a client's change of the weights. None is the median of all norms; under
        masks it must be given.
    """

    batch_size: Count | None = 128
    batches: Literal["shuffled", "equal-slices"] = "shuffled"
    optimizer: Literal["sgd", "adam", "auto"] = "auto"
    step: Positive | Literal["auto"] = "auto"
    step_decay_every: Count | Literal["auto"] | None = "auto"
    step_decay_factor: Positive = 0.1
    schedule: Literal["steps", "theorem"] = "steps"
    clip: Positive | None = 1.0
    local_epochs: Count | Literal["auto"] = "auto"
    participation: Share = 1.0
    dual_rows: Literal["all", "batches"] = "all"
    report_every: Whole | None = None
    aggregation: Literal["mean", "median", "trimmed", "clipped"] = "mean"
    trim: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.2
    norm_bound: Positive | None = None

    def settings(self, round_number: int) -> RoundSettings:
        """Return the parameters of round t = 1, 2, ..."""
        return RoundSettings(self.decayed_step(round_number))

    def resolved(self, terms: HorizontalTerms) -> Self:
        """Return the options with numbers instead of ``"auto"``; clients resolve `local_epochs` themselves."""
        if terms.only_sums and self.aggregation in ("median", "trimmed"):
            raise InputError(
                f"aggregation is {self.aggregation!r}, which needs single updates, but masks show sums only; choose "
                "'clipped' with norm_bound, or protection 'none'"
            )
        if self.aggregation == "clipped" and terms.only_sums and self.norm_bound is None:
            raise InputError("aggregation is 'clipped', and masks hide the norms of updates; give norm_bound")
        if self.norm_bound is not None and self.aggregation != "clipped":
            raise InputError("norm_bound is given; it needs aggregation 'clipped'")
        on_tables = terms.job.model in ("linear", "mlp")
        found = dict(self.for_tables(terms) if on_tables else self.for_networks())
        own_step = self.step != "auto" or terms.protected
        found["optimizer"] = "sgd" if on_tables or own_step else "adam"
        if (found["optimizer"] if self.optimizer == "auto" else self.optimizer) == "adam":
            found |= {"step": ADAM_STEP, "step_decay_every": None, "local_epochs": "auto"}
            found |= {} if on_tables else self.with_adam()
        open_ones = [name for name, value in vars(self).items() if isinstance(value, str) and value == "auto"]
        return replace(self, **{name: found[name] for name in open_ones if name in found})

    def for_tables(self, terms: HorizontalTerms) -> Mapping[str, Any]:
        """Return the values of ``"auto"`` for a linear model or a perceptron."""
        columns = 1
        for size in terms.shape:
            columns *= size
        return {"step": min(LONGEST_STEP, 8.0 / (columns + 1)), "step_decay_every": None}

    def for_networks(self) -> Mapping[str, Any]:
        """Return the values of ``"auto"`` for ResNets and users' own modules, with unknown input scales."""
        return {"step": 0.01, "step_decay_every": 25, "local_epochs": 1}

    def with_adam(self) -> Mapping[str, Any]:
        """Return further values of ``"auto"`` for models that are trained with Adam."""
        return {}

    def decayed_step(self, round_number: int) -> float:
        if self.schedule == "theorem":
            return float(self.step) / round_number
        every = self.step_decay_every
        times = 0 if every is None else (round_number - 1) // int(every)
        return float(self.step) * self.step_decay_factor**times

    def decayed_dual_step(self, dual_step: float, growth: float, round_number: int) -> float:
        """Return η_λ,t: divided by b after every round, or as in the schedule."""
        if self.schedule == "theorem":
            return float(dual_step / round_number ** (2 / 3))
        return float(dual_step / growth ** (round_number - 1))
