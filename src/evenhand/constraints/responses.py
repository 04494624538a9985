"""Randomised response and its unbiased estimates: the algebra alone, without random draws.

The true one of k values is reported with probability e^ε/(e^ε + k − 1), each of the others with 1/(e^ε + k − 1). So no
answer is more than e^ε times as likely for one value as for another. Weighted by the inverse of that matrix, answers
are unbiased estimates of the counts of true values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite

from evenhand.errors import InputError
from evenhand.printing import is_number

LEAST_EPSILON = 0.01
"""With a smaller ε a response is a coin toss to three digits, and has a weight of hundreds."""
LARGEST_EPSILON = 20.0
"""With a larger ε fewer than one response in a hundred million differs from the truth, which is no privacy."""


@dataclass(frozen=True)
class ResponseMechanism:
    """Randomised response among `values` values.

    Attributes
    ----------
    epsilon
        ε.
    values
        k.
    """

    epsilon: float
    values: int = 2

    def __post_init__(self) -> None:
        within = is_number(self.epsilon) and isfinite(self.epsilon)
        if not (within and LEAST_EPSILON <= self.epsilon <= LARGEST_EPSILON):
            raise InputError(
                f"epsilon of a randomised response is {self.epsilon!r}; give a number between {LEAST_EPSILON:g} and "
                f"{LARGEST_EPSILON:g}"
            )

    @property
    def other(self) -> float:
        """Probability to report each value other than the true one."""
        return 1.0 / (exp(self.epsilon) + self.values - 1.0)

    @property
    def keep(self) -> float:
        """Probability to report the true value."""
        return exp(self.epsilon) * self.other

    def keep_again(self, lower: ResponseMechanism) -> float:
        """Return the probability to keep this mechanism's answer so that the second answer has the lower ε.

        Randomised response has the matrix λI + (1 − λ)J/k with λ = keep − other. Such matrices commute, and their λ
        multiply. So a second response with λ₂ = λ_lower/λ, drawn from the first answer alone, gives the lower mechanism
        exactly. It is post-processing, and spends nothing.
        """
        if lower.values != self.values or lower.epsilon > self.epsilon:
            raise InputError(f"answers with ε = {self.epsilon:g} can only be lowered, not to {lower.epsilon:g}")
        again = (lower.keep - lower.other) / (self.keep - self.other)
        return again + (1.0 - again) / self.values

    @property
    def counts(self) -> float:
        """Weight of an answer for the value it reports."""
        return (1.0 - self.other) / (self.keep - self.other)

    @property
    def counts_against(self) -> float:
        """Weight of an answer for each value it does not report: negative, so that all weights add up to one."""
        return -self.other / (self.keep - self.other)

    @property
    def variance(self) -> float:
        """Variance of an answer's weight for its true value."""
        return self.keep * (1.0 - self.keep) / (self.keep - self.other) ** 2
