"""`[privacy]` of horizontal job files: the noise that clients add to their updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final, Literal

from evenhand.errors import JobError
from evenhand.horizontal.problem import UpdateNoise
from evenhand.jobs.parsing import Strict, key
from evenhand.privacy.accounting import noise_for, privacy_statement
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, SharedGaussian
from evenhand.privacy.neighbours import least_of
from evenhand.privacy.record_level import RecordGaussian, record_noise_for
from evenhand.protocol.job import Job
from evenhand.solvers.registry import has_multipliers

QUIETER: Final = 10.0
"""Ratio of noise to sensitivity on slice statistics, relative to gradients: there are far fewer of them."""
_KEYS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "gaussian": (("weight_noise",), ("multiplier_noise",)),
    "clipped-gaussian": (("clip",), ("dual_clip", "noise_multiplier", "epsilon")),
    "shared-gaussian": (("clip",), ("dual_clip", "noise_multiplier", "epsilon", "shares")),
    "record-gaussian": (("clip", "rate", "steps"), ("measure_clip", "noise_multiplier", "epsilon")),
}
"""Keys of `[privacy]` that a mechanism requires, and keys that it allows."""


class PrivacySection(Strict):
    """`[privacy]`: the noise that clients of averaging solvers add to their updates."""

    mechanism: Literal["clipped-gaussian", "shared-gaussian", "record-gaussian", "gaussian"] = key(
        "`clipped-gaussian` covers all records of a client; `shared-gaussian` the same with noise split over masked "
        "clients; `record-gaussian` is DP-SGD and covers one record; `gaussian` is the paper's, without an ε.",
        "record-gaussian",
    )
    clip: float | None = key(
        "Largest norm of a client's update; with `record-gaussian`, of a row's gradient.", 1.0, None
    )
    dual_clip: float | None = key("Largest norm of a client's change of the multipliers.", 0.1, None)
    noise_multiplier: float | None = key("Standard deviation of the noise, in units of `clip`.", 3.0, None)
    epsilon: float | None = key("ε of the whole run; the noise follows from it.", 8.0, None)
    weight_noise: float | None = key("Standard deviation on weights; `gaussian` only.", 0.01, None)
    multiplier_noise: float | None = key("Standard deviation on multipliers; `gaussian` only.", 0.01, None)
    shares: int | None = key(
        "Number of clients that together add the full noise, a share each; `shared-gaussian` only. By default "
        "the number of clients that must stay.",
        5,
        None,
    )
    rate: float | None = key("Probability that a row is in a step; `record-gaussian` only.", 0.05, None)
    steps: int | None = key("Steps in a round; `record-gaussian` only.", 20, None)
    measure_clip: float | None = key(
        "Largest loss of a row in the step of the multipliers; `record-gaussian` only.", 3.0, None
    )
    delta: float = key("δ of the privacy statement.", 1e-6, 1e-5, gt=0.0, lt=1.0)

    @property
    def bounds_multipliers(self) -> str:
        """The key that bounds the messages about multipliers."""
        return "measure_clip" if self.mechanism == "record-gaussian" else "dual_clip"

    def to_mechanism(self, rounds: int, drawn: Callable[[], int]) -> UpdateNoise:
        """Return the mechanism; if ε is given instead of a noise multiplier, compute the noise for it.

        Parameters
        ----------
        drawn
            Returns the number of clients in a round.
        """
        if self.mechanism == "gaussian":
            assert self.weight_noise is not None
            return GaussianNoise(self.weight_noise, self.multiplier_noise)
        assert self.clip is not None
        noise = self.noise_multiplier
        if self.mechanism == "record-gaussian":
            assert self.rate is not None
            assert self.steps is not None
            dual = None if self.measure_clip is None else QUIETER * (noise or 1.0)
            unit = RecordGaussian(self.clip, noise or 1.0, self.rate, self.steps, self.measure_clip, dual)
            if self.epsilon is None:
                return unit
            delta = self.delta
            found = record_noise_for(unit, self.epsilon, lambda one: privacy_statement(one, rounds, delta).epsilon)
            dual = None if found.dual_noise_multiplier is None else rounded_up(found.dual_noise_multiplier)
            return replace(found, noise_multiplier=rounded_up(found.noise_multiplier), dual_noise_multiplier=dual)
        if noise is None:
            assert self.epsilon is not None
            # A client that takes part in only some of the rounds spends less.
            releases = 1 if self.dual_clip is None else 2
            noise = rounded_up(noise_for(self.epsilon, self.delta, rounds, releases=releases))
        if self.mechanism == "shared-gaussian":
            shares = least_of(drawn()) if self.shares is None else self.shares
            return SharedGaussian(self.clip, self.dual_clip, noise, shares=shares)
        return ClippedGaussian(self.clip, self.dual_clip, noise)

    def check(self, trained: Job, drawn: Callable[[], int]) -> None:
        """Refuse keys that do not fit the mechanism or the solver; for `drawn` see `to_mechanism`."""
        needed, others = _KEYS[self.mechanism]
        if self.mechanism == "shared-gaussian" and trained.protection != "masked":
            raise JobError(
                'privacy.mechanism = "shared-gaussian" needs protection = "masked" in [job]: each client adds '
                "only a share of the noise"
            )
        for name in PrivacySection.model_fields:
            if name not in (*needed, *others, "mechanism", "delta") and getattr(self, name) is not None:
                raise JobError(f"key privacy.{name} is not used with mechanism = {self.mechanism!r}; remove it")
        for name in needed:
            if getattr(self, name) is None:
                raise JobError(f"key privacy.{name} is missing; mechanism = {self.mechanism!r} needs it")
        if self.mechanism == "gaussian":
            self.to_mechanism(trained.max_rounds, drawn)
            return
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise JobError("give either privacy.noise_multiplier or privacy.epsilon (with delta), not both")
        if self.epsilon is not None and not 0 < self.epsilon < float("inf"):
            raise JobError(f"key privacy.epsilon is {self.epsilon}; it must be a finite number above zero")
        dual = self.bounds_multipliers
        given = getattr(self, dual) is not None
        if has_multipliers(trained.solver, bool(trained.constraints)) != given:
            needs = "is not used: clients send no multipliers" if given else "is missing: clients also send multipliers"
            raise JobError(f"key privacy.{dual} {needs} with solver {trained.solver!r}")
        if self.mechanism == "record-gaussian":
            # The noise for an ε is computed when the job runs.
            self.model_copy(update={"epsilon": None}).to_mechanism(trained.max_rounds, drawn)
            return
        assert self.clip is not None
        ClippedGaussian(self.clip, self.dual_clip, self.noise_multiplier or 0.0)


def rounded_up(value: float) -> float:
    """Round up to four digits: all sites must come to the same terms, and their libraries differ in the last digits."""
    return float(Decimal(value).normalize(Context(prec=4, rounding=ROUND_CEILING)))
