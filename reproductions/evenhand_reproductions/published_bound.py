"""The noise that FairFedAvgALM prints for local differential privacy: its Lemma 4.1 and Theorem 4.1.

This is what the paper states, for holding a run against it. It is no guarantee for a run of this library; for that,
clip the updates (:class:`evenhand.privacy.mechanism.ClippedGaussian`) and ask :mod:`evenhand.privacy.accounting`.

What the printed bound covers: neighbours that differ in one record, one local step a round, on a batch that holds both
groups in equal parts, with learning rates and β that stay as they are over the rounds.

What it does not cover:

- FairFedAvgALM Algorithm 1 itself, which takes |D_i|/|B| local steps a round: with k steps the sensitivity can be k
  times as large, and more where a changed step changes the gradients of the next. Its dual step is taken on a batch
  here.
- Gradients, losses and multipliers that exceed D, l_max and λ_max. Nothing in the algorithm enforces the bounds.
- The growing β and shrinking learning rates of the paper's own experiments (Section 5, "Implementation").
- Both updates together. Each σ is set for (ε, δ) of its own update; a client sends two a round. With δ = 1e-5 and
  ε = 1 the pair spends ε = 1.11, and for ε above about 8 even one update spends more than it says (the formula leaves
  out a term of order ε²/(4 log(1/δ))). The tests show both.

The theorem calls its values upper bounds of σ; they are read here as the σ that the paper holds to be enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log, sqrt
from typing import NamedTuple

from evenhand.errors import InputError


class Pair(NamedTuple):
    """One number for the update of the weights (primal), one for that of the multiplier (dual)."""

    weights: float
    multiplier: float


@dataclass(frozen=True)
class PublishedBound:
    """The assumptions of Lemma 4.1, and what follows from them.

    Parameters
    ----------
    gradient_bound
        D, the largest norm of a record's gradient.
    loss_bound
        l_max, the largest loss of a record.
    multiplier_bound
        λ_max, the largest absolute value of the multiplier.
    batch_size
        |B|, above 2: the printed bound divides by |B| - 2.
    penalty
        β, the coefficient of the squared constraint.
    learning_rate, dual_learning_rate
        η_w and η_λ, the same in every round.

    Raises
    ------
    InputError
        If a number is negative or not finite, or the batch holds two records or fewer.
    """

    gradient_bound: float
    loss_bound: float
    multiplier_bound: float
    batch_size: int
    penalty: float
    learning_rate: float
    dual_learning_rate: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (isfinite(value) and value >= 0):
                raise InputError(f"{name} is {value}: give a finite number that is not negative")
        if self.batch_size <= 2:
            raise InputError(f"batch_size is {self.batch_size}: Lemma 4.1 divides by |B| - 2, so give at least 3")

    @property
    def sensitivities(self) -> Pair:
        """Lemma 4.1: how far one record can move the two updates of a round.

        Δl_p = 2 η_w D/|B| + 8 η_w λ_max D/|B| + 8 η_w β D l_max (5|B| - 2)/(|B| - 2)²; Δl_d = 4 η_λ l_max/|B|.
        """
        size, step = self.batch_size, self.learning_rate * self.gradient_bound
        plain = 2 * step / size
        tilt = 8 * step * self.multiplier_bound / size
        penalty = 8 * step * self.penalty * self.loss_bound * (5 * size - 2) / (size - 2) ** 2
        return Pair(plain + tilt + penalty, 4 * self.dual_learning_rate * self.loss_bound / size)

    def noise(self, *, epsilon: float, delta: float, rounds: int) -> Pair:
        """FairFedAvgALM Theorem 4.1: standard deviations σ_w = Δl_p √(2T log(1/δ))/ε and σ_λ = Δl_d √(2T log(1/δ))/ε.

        Parameters
        ----------
        epsilon, delta
            ε_i and δ_i, what each of the two updates may spend over all rounds; the logarithm is the natural one.
        rounds
            T.

        Raises
        ------
        InputError
            If ``epsilon`` is not positive, ``delta`` not between 0 and 1, or there is no round.
        """
        if not (isfinite(epsilon) and epsilon > 0):
            raise InputError(f"epsilon is {epsilon}: give a finite number above 0")
        if not 0 < delta < 1:
            raise InputError(f"delta is {delta}: give a number between 0 and 1, below one over the number of records")
        if rounds < 1:
            raise InputError(f"rounds is {rounds}: give at least 1")
        factor = sqrt(2 * rounds * log(1 / delta)) / epsilon
        weights, multiplier = self.sensitivities
        return Pair(factor * weights, factor * multiplier)
