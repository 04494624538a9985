"""DP-SGD with Poisson sampling: noise at every local step protects single records.

Each step samples every row of the client independently with the same probability, clips each row's gradient to a norm
of at most ``clip``, adds Gaussian noise to the sum, and divides by the expected number of rows. The multipliers' step
uses noisy values too: the number of rows in each slice, once, and the sum of each slice's measure, clipped at
``measure_clip`` for every row, twice a round (at the start of training, for the penalty, and at its end, for Δλ).
Everything else is post-processing of these and of what the server sent.

Two data sets are neighbours if one has a record blanked that the other has; the number of rows is the same and public.
That is weaker than :class:`~evenhand.privacy.mechanism.ClippedGaussian`, which covers *all* records of a client at
once. But with more rows this noise matters less, and that noise does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any, Final

from evenhand.errors import InputError
from evenhand.printing import is_number, is_whole

MEASURED_A_ROUND: Final = 2
"""Number of releases of the slices' sums."""


@dataclass(frozen=True)
class RecordGaussian:
    """DP-SGD in a client's local training.

    Parameters
    ----------
    clip
        C: the norm of a row's own gradient is at most this.
    noise_multiplier
        Standard deviation of the noise on a step's sum of gradients, over C.
    rate
        The chance of each row to be in a step; this and ``steps`` take the place of the job's batches and epochs.
    steps
        Steps of a round.
    measure_clip
        Largest measure of a row (its loss, or a rate, which is at most 1) in what the multipliers' step goes by. None
        if the solver sends no multipliers.
    dual_noise_multiplier
        Noise over sensitivity of the slices' counts and sums.
    """

    clip: float
    noise_multiplier: float
    rate: float
    steps: int
    measure_clip: float | None = None
    dual_noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if (self.measure_clip is None) != (self.dual_noise_multiplier is None):
            raise InputError("give both measure_clip and dual_noise_multiplier, or none of them")
        for name in ("clip", "noise_multiplier", "measure_clip", "dual_noise_multiplier"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise InputError(f"{name} is {value!r}; it must be a number above zero")
        if not (is_number(self.rate) and 0 < self.rate <= 1):
            raise InputError(f"rate is {self.rate!r}; it must be above 0 and at most 1")
        if not (is_whole(self.steps) and self.steps >= 1):
            raise InputError(f"steps is {self.steps!r}; it must be a whole number, at least 1")

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Return noise multipliers of a step's gradients, and of slice sums if they are released."""
        dual = self.dual_noise_multiplier
        return (self.noise_multiplier,) if dual is None else (self.noise_multiplier, dual)

    def event(self, accounting: Any, rounds: int) -> Any:
        """Return everything that a client released in these rounds, for dp-accounting."""
        gaussian = accounting.GaussianDpEvent
        steps = accounting.PoissonSampledDpEvent(self.rate, gaussian(self.noise_multiplier))
        events = [accounting.SelfComposedDpEvent(steps, rounds * self.steps)]
        if self.dual_noise_multiplier is not None:
            counted = 1 + MEASURED_A_ROUND * rounds
            events.append(accounting.SelfComposedDpEvent(gaussian(self.dual_noise_multiplier), counted))
        return accounting.ComposedDpEvent(events)


def record_noise_for(
    mechanism: RecordGaussian, epsilon: float, spent: Callable[[RecordGaussian], float]
) -> RecordGaussian:
    """Return the mechanism with the least noise, to one per cent, that stays within ``epsilon``.

    Parameters
    ----------
    spent
        Returns the ε of a mechanism in the run: ``lambda one: privacy_statement(one, rounds, 1e-5).epsilon``.
    """
    if not (isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon is {epsilon}: give a finite number above 0")

    def scaled(by: float) -> RecordGaussian:
        dual = mechanism.dual_noise_multiplier
        return replace(
            mechanism,
            noise_multiplier=by * mechanism.noise_multiplier,
            dual_noise_multiplier=None if dual is None else by * dual,
        )

    low = high = 1.0
    while spent(scaled(high)) > epsilon:
        low, high = high, 2 * high
    while spent(scaled(low)) <= epsilon:
        low, high = low / 2, low
    while high / low > 1.01:
        middle = sqrt(low * high)
        low, high = (low, middle) if spent(scaled(middle)) <= epsilon else (middle, high)
    return scaled(high)
