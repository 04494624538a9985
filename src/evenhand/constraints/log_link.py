"""Losses of counts and amounts with a log link: half the unit deviance of Poisson, gamma and Tweedie distributions.

The predicted mean is μ = exp(z). Deviances are zero where μ = y, so objectives are those of scikit-learn's
`PoissonRegressor`, `GammaRegressor` and `TweedieRegressor`. All three are convex in z, and have no bound on the
curvature. Beyond `FAR` the exponential continues as its Taylor polynomial of second degree, so that a step that is too
long gives a large number and no overflow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import xlogy

from evenhand.arrays import Array
from evenhand.errors import DataError

FAR: Final = 30.0
"""Exponent from which on the exponential is a parabola: e³⁰ is about 10¹³."""


def growth(exponent: Array) -> tuple[Array, Array, Array]:
    """Return exp with its first and second derivative, continued as a parabola beyond `FAR`."""
    value = np.exp(np.minimum(exponent, FAR))
    beyond = np.maximum(exponent - FAR, 0.0)
    slope = value * (1.0 + beyond)
    return slope + 0.5 * value * beyond**2, slope, value


class _LogLink:
    """What the three have in common; a subclass gives value, derivative and curvature at once."""

    name: str
    classifies = False
    derivative_bound = np.inf
    curvature_bound = np.inf
    tells_curvature = False

    def _all(self, scores: Array, labels: Array) -> tuple[Array, Array, Array]:
        raise NotImplementedError

    def value(self, scores: Array, labels: Array) -> Array:
        return self._all(scores, labels)[0]

    def derivative(self, scores: Array, labels: Array) -> Array:
        return self._all(scores, labels)[1]

    def value_and_derivative(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        return self._all(scores, labels)[:2]

    def curvature(self, scores: Array, labels: Array) -> Array:
        return self._all(scores, labels)[2]

    def curvature_by_derivative(self, derivative: Array) -> Array:
        raise NotImplementedError(f"the derivative of the {self.name} loss does not tell its curvature")

    def mean(self, scores: Array) -> tuple[Array, Array, Array]:
        return growth(scores)


class Poisson(_LogLink):
    """l(z, y) = y log(y/μ) − y + μ, for counts and frequencies y ≥ 0."""

    name = "poisson"

    def _all(self, scores: Array, labels: Array) -> tuple[Array, Array, Array]:
        mean, slope, bend = growth(scores)
        return mean - labels * scores + (xlogy(labels, labels) - labels), slope - labels, bend

    def expected_curvature(self, scores: Array) -> Array:
        return growth(scores)[2]


class Gamma(_LogLink):
    """l(z, y) = y/μ − 1 − log(y/μ), for amounts y > 0."""

    name = "gamma"
    tells_curvature = True

    def _all(self, scores: Array, labels: Array) -> tuple[Array, Array, Array]:
        inverse, slope, bend = growth(-scores)
        return labels * inverse + scores - np.log(labels) - 1.0, 1.0 - labels * slope, labels * bend

    def curvature_by_derivative(self, derivative: Array) -> Array:
        """Return the expected curvature, which is one for every score."""
        return np.ones_like(derivative)

    def expected_curvature(self, scores: Array) -> Array:
        return np.ones_like(scores)


class Tweedie(_LogLink):
    """Half the deviance of a compound Poisson-gamma distribution, with variance μᵖ, 1 < p < 2, for claims with zeros.

    l(z, y) = y^(2−p) / ((1−p)(2−p)) − y μ^(1−p) / (1−p) + μ^(2−p) / (2−p), for y ≥ 0.
    """

    name = "tweedie"

    def __init__(self, power: float) -> None:
        self.power = power

    def _all(self, scores: Array, labels: Array) -> tuple[Array, Array, Array]:
        one, two = 1.0 - self.power, 2.0 - self.power
        (falls, fall, fall_bend), (rises, rise, rise_bend) = growth(one * scores), growth(two * scores)
        value = labels**two / (one * two) - labels * falls / one + rises / two
        return value, rise - labels * fall, two * rise_bend - one * labels * fall_bend

    def expected_curvature(self, scores: Array) -> Array:
        """Return μ^(2−p): with y = μ the two terms of the curvature add up to it."""
        return growth((2.0 - self.power) * scores)[2]


def check_amounts(name: str, labels: Array) -> None:
    """Refuse targets that a family does not have: negative ones, and zeros of the gamma distribution."""
    wrong = labels <= 0.0 if name == "gamma" else labels < 0.0
    if not wrong.any():
        return
    count, least = int(wrong.sum()), float(labels[wrong].min())
    needed = "above zero" if name == "gamma" else "zero or more"
    other = (
        "choose 'poisson' or 'tweedie', which have zeros, or train on the rows with an amount"
        if least == 0.0
        else "choose the loss 'squared', or correct these rows"
    )
    raise DataError(
        f"{count:,} of {len(labels):,} targets are {'zero or negative' if name == 'gamma' else 'negative'} (the "
        f"smallest is {least:g}), but the {name} loss needs targets {needed}; {other}"
    )
