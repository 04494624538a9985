"""Find columns of two values in numbers that depend on them linearly, without knowing any row.

Directions, outputs and scores lie in the span of the parties' columns, and so do sums of them. Independent component
analysis (Hyvärinen and Oja, 2000) looks in that span for the combinations that are least like a normal distribution.
A column of two values is one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from evenhand.arrays import Array, Booleans
from evenhand.auditing import evidence
from evenhand.auditing.cases import ALL, LEAST_ROWS, Case, counted, told_apart
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import classify, dense

MOST_COMPONENTS: Final = 10
"""Most components that are looked for together."""
LOOKED_AT: Final = 12
"""Combinations that an attacker looks at: those most like a column of two values."""
FITTED_ROWS: Final = 3000
"""Most rows on which components are fitted, which bounds the time."""
READ: Final = 0.95
"""AUC from which on a column counts as read."""
_LEAST_SIZE: Final = 1e-7
"""Smallest singular value, as a share of the largest, of a combination that is no rounding."""


class Split(NamedTuple):
    """The split of numbers into two sets that explains most of their variance.

    Attributes
    ----------
    explained
        The share that it explains: 1 if there are two values, .64 for a normal distribution.
    threshold
        The number between the two sets.
    """

    explained: float
    threshold: float


def best_split(values: Array) -> Split:
    """Return the split of numbers into low and high ones that explains most of their variance."""
    ordered, count = np.sort(values), len(values)
    below = np.arange(1, count)
    sums = np.cumsum(ordered)[:-1]
    between = below * (count - below) * (sums / below - (ordered.sum() - sums) / (count - below)) ** 2
    place = int(between.argmax())
    variance = max(float(values.var()), 1e-300)
    return Split(float(between[place] / count**2 / variance), float(ordered[place : place + 2].mean()))


def components(numbers: Array) -> Array:
    """Return the combinations (rows, K) of columns of numbers that are most like a column of two values, best first."""
    whole, found = _whitened(numbers), list[Array]()
    chosen = np.random.default_rng(0).permutation(len(whole))[:FITTED_ROWS]
    for count in range(1, min(MOST_COMPONENTS, whole.shape[1]) + 1):
        few = whole[:, :count]
        if count > 1:
            fitted = FastICA(count, whiten="unit-variance", random_state=0)
            with warnings.catch_warnings():
                # One that has not converged is one more combination to look at.
                warnings.simplefilter("ignore", ConvergenceWarning)
                few = fitted.fit(few[chosen]).transform(few)
        found += list(few.T)
    found.sort(key=lambda one: -best_split(one).explained)
    return np.stack(found[:LOOKED_AT], axis=1) if found else np.zeros((len(numbers), 0))


def _whitened(numbers: Array) -> Array:
    """Return uncorrelated combinations of columns of numbers, those of the largest variance first."""
    found, sizes, _ = np.linalg.svd(numbers - numbers.mean(axis=0), full_matrices=False)
    return np.asarray(found[:, sizes > _LEAST_SIZE * max(float(sizes[0]), 1e-300)] * np.sqrt(len(numbers)))


def match(guesses: Array, truth: Booleans, known: Booleans) -> Array:
    """Return the guess, or its opposite, that is nearest to a column on rows where it is known.

    The names of columns are not in messages: which of the combinations is which column is the auditor's knowledge.
    """
    areas = np.array([evidence.auc(one[known], truth[known]).value for one in guesses.T])
    best = int(np.abs(areas - 0.5).argmax())
    return np.asarray(guesses[:, best] if areas[best] >= 0.5 else -guesses[:, best])


class Guessed(NamedTuple):
    """A column of two values, and what an attacker makes of it who knows no row.

    Attributes
    ----------
    truth
        In which rows it has the larger value.
    guess, chance
        The nearest of the combinations that look like columns of two values, and of as many random ones.
    """

    truth: Booleans
    guess: Array
    chance: Array

    def areas(self, rows: Booleans) -> tuple[float, float]:
        """Return the AUC of the guess and of chance on some rows."""
        guess, chance = (evidence.auc(one[rows], self.truth[rows]).value for one in (self.guess, self.chance))
        return guess, chance


def guessed(case: Case, other: str) -> tuple[list[Guessed], int]:
    """Return guesses of another party's columns of two values, and the number of messages that they use."""
    signals = [one for found in case.view.about(other).values() for one in found]
    told = [one.values[case.rows] for one in signals if one.nature == "contribution"]
    columns = _two_valued(case, other)
    if not told or not columns:
        return [], 0
    whole = np.stack(told, axis=1)
    guesses, span = components(whole), _whitened(whole)
    drawn = span @ case.rng.normal(size=(span.shape[1], LOOKED_AT))
    return [Guessed(one, match(guesses, one, case.known), match(drawn, one, case.known)) for one in columns], len(told)


def two_valued(case: Case) -> Iterator[Finding]:
    """Columns of two values are the combinations of sums that are least like a normal distribution; no row is known."""
    for other in case.view.others:
        columns, count = guessed(case, other)
        if not columns:
            continue
        asked = ~case.known
        # Which column is told most is chosen on the other half of the rows.
        truth, guess, chance = max(columns, key=lambda one: np.subtract(*one.areas(case.known)))
        floors = {"random sums": chance[asked], "half known": classify(case.own, truth, case.known)[asked]}
        target = f"a column of two values of {other}"
        yield told_apart(case.view.name, target, ALL, count, guess[asked], truth[asked], floors)
        read, by_chance = (
            sum(area >= READ for area in found) for found in zip(*(one.areas(asked) for one in columns), strict=True)
        )
        target = f"the columns of two values of {other}"
        yield counted(case.view.name, target, ALL, count, read, len(columns), by_chance / len(columns))


def _two_valued(case: Case, other: str) -> list[Booleans]:
    """Return another party's columns of two values, of which both are in enough known and unknown rows."""
    found = []
    for column in dense(case.columns(other)).T:
        values = np.unique(column)
        truth = column == values[-1]
        sizes = [part.sum() for known in (case.known, ~case.known) for part in (truth[known], ~truth[known])]
        if len(values) == 2 and min(sizes) >= LEAST_ROWS:
            found.append(truth)
    return found
