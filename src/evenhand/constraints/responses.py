"""Randomised response, and what an answer counts for: the algebra alone, without drawing anything.

Who has one of k values says it with probability e^ε/(e^ε + k − 1), and each of the others with 1/(e^ε + k − 1). No
answer is then more than e^ε times as likely for one value as for another. Counted with the weights of the inverse of
that matrix, answers have the counts of the true values for their expectation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite

from evenhand.errors import InputError
from evenhand.numbers import is_number

LEAST_EPSILON = 0.01
"""Below it an answer is a coin toss to three digits, and counts a hundred times over."""
LARGEST_EPSILON = 20.0
"""Above it hardly anybody in a hundred million is told otherwise: that is no privacy."""


@dataclass(frozen=True)
class RandomisedResponse:
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
        """Probability of each value that is not the true one."""
        return 1.0 / (exp(self.epsilon) + self.values - 1.0)

    @property
    def keep(self) -> float:
        """Probability of the true value."""
        return exp(self.epsilon) * self.other

    @property
    def counts(self) -> float:
        """What an answer counts as the value it names."""
        return (1.0 - self.other) / (self.keep - self.other)

    @property
    def counts_against(self) -> float:
        """What an answer counts as each value that it does not name; less than zero, and all add up to one."""
        return -self.other / (self.keep - self.other)

    @property
    def variance(self) -> float:
        """Of what an answer counts as its true value."""
        return self.keep * (1.0 - self.keep) / (self.keep - self.other) ** 2
