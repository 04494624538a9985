"""Attacks on a party's columns through the scores it sends: equal records, effects of columns, explained variance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.auditing.cases import ALL, Case, counted, told_apart
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import dense, regress, regress_by_neighbours, regress_by_trees, whitened
from evenhand.auditing.row_attacks import by_score, lengths, one_hot, telling
from evenhand.auditing.views import Signal

PAIRS: Final = 2000
PEAKS: Final = 64
"""Number of most common differences that an attacker considers."""
EQUAL: Final = "which people are equal in every column of"


def records(columns: Matrix) -> Integers:
    """Return a number for each distinct record."""
    table = dense(columns)
    codes = np.unique(np.ascontiguousarray(table, dtype=np.float64), axis=0, return_inverse=True)[1]
    return codes.reshape(-1).astype(np.int64)


def pairs(codes: Integers, rng: np.random.Generator) -> tuple[Integers, Integers, Booleans] | None:
    """Return pairs of rows, half of them equal in all columns, and which are equal; None if no two rows are equal."""
    order = np.lexsort((rng.random(len(codes)), codes))
    alike = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(alike) < 10:
        return None
    chosen = rng.choice(alike, min(PAIRS, len(alike)), replace=False)
    left, right = order[chosen], order[chosen + 1]
    strangers = rng.integers(0, len(codes), (2, 4 * len(chosen)))
    apart = strangers[:, codes[strangers[0]] != codes[strangers[1]]][:, : len(chosen)]
    return (
        np.concatenate([left, apart[0]]),
        np.concatenate([right, apart[1]]),
        np.arange(len(left) + apart.shape[1]) < len(left),
    )


def by_nearness(values: Array, left: Integers, right: Integers) -> Array:
    """Score each pair by the closeness of its numbers, in standard deviations: closer means more likely equal."""
    table = values.reshape(len(values), -1)
    spread = np.maximum(table.std(axis=0), 1e-300)
    return -np.asarray((((table[left] - table[right]) / spread) ** 2).sum(axis=1), dtype=np.float64)


def binary_effects(values: Array, columns: Matrix) -> Array:
    """Return the change of score by each binary column; peaks of score differences appear there."""
    table = dense(columns)
    yes_or_no = np.array([len(np.unique(column)) == 2 for column in table.T], dtype=bool)
    effects = np.linalg.lstsq(np.hstack([table, np.ones((len(table), 1))]), values, rcond=None)[0][:-1]
    width = np.array([np.ptp(column) for column in table.T])
    found: Array = np.abs(effects * width)[yes_or_no]
    return found


def common_differences(values: Array, rng: np.random.Generator) -> Array:
    """Return the most common differences between scores of two rows; each is likely one column's effect."""
    distinct = np.unique(np.round(values / max(float(np.ptp(values)), 1e-300), 9))
    some = distinct if len(distinct) <= 1500 else rng.choice(distinct, 1500, replace=False)
    apart = np.abs(some[:, None] - some[None, :])[np.triu_indices(len(some), 1)]
    sizes, counts = np.unique(np.round(apart, 7), return_counts=True)
    best = np.argsort(-counts, kind="stable")[:PEAKS]
    return sizes[best[counts[best] > 1]] * float(np.ptp(values))


def matched(effects: Array, differences: Array, within: float) -> int:
    """Count the effects that are among the differences."""
    if not len(differences):
        return 0
    return int((np.abs(effects[:, None] - differences[None, :]).min(axis=1) <= within).sum())


# -- the attacks


def variance(case: Case) -> Iterator[Finding]:
    """Fit the columns by least squares on what arrived about them."""
    for other in case.view.others:
        for kind, signals in case.view.about(other).items():
            for count in lengths(signals):
                told = _table(case, signals[:count])
                yield case.explained(f"the columns of {other}", kind, count, told, case.columns(other), regress)[0]


def learned_columns(case: Case) -> Iterator[Finding]:
    """Give a non-linear learner everything that arrived about the columns; equal guesses are equal people."""
    sizes = [telling([values[case.rows] for values in case.view.derivatives])] if case.view.derivatives else []
    for other in case.view.others:
        parted, numbers = _about(case, other)
        told = [*sizes, *([one_hot(parted)] if parted else [])]
        if numbers:
            table = np.stack(numbers, axis=1)
            # Without what the attacker's own columns explain, sums are nearer to the others' columns.
            rest = table - regress(case.own, table, np.ones(len(table), dtype=bool))
            told += [whitened(table), whitened(rest)[:, : table.shape[1]]]
        if told:
            target, count, wanted = f"the columns of {other}", len(parted) + len(numbers), case.columns(other)
            found, guess = case.explained(target, ALL, count, np.hstack(told), wanted, regress_by_trees)
            yield found
            yield from _equal(case, other, count, guess, case.unaided(target, wanted, regress_by_trees)[1])


def nearest_records(case: Case) -> Iterator[Finding]:
    """Rows with nearly equal numbers have equal records, of which half are known."""
    for other in case.view.others:
        numbers = _about(case, other)[1]
        if numbers:
            told = whitened(np.stack(numbers, axis=1))[:, len(numbers) :]
            target, wanted = f"the columns of {other}", case.columns(other)
            yield case.explained(target, ALL, len(numbers), told, wanted, regress_by_neighbours, alone=True)[0]


def _about(case: Case, other: str) -> tuple[list[Array], list[Array]]:
    """Return partitions of rows by the columns of another party, and numbers about them, over all rounds."""
    signals = [one for found in case.view.about(other).values() for one in found]
    parted = [one.values[case.rows] for one in signals if one.nature == "category"]
    numbers = [one.values[case.rows] for one in signals if one.nature != "category"]
    return parted, numbers + [by_score(nu, -np.sign(nu))[case.rows] for nu in case.view.derivatives]


def _equal(case: Case, other: str, count: int, guess: Array, unaided: Array) -> Iterator[Finding]:
    """Judge guesses of a party's columns by whether equal rows have near guesses."""
    unknown = np.flatnonzero(~case.known)
    drawn = pairs(records(case.scene.columns[other][case.rows[unknown]]), case.rng)
    if drawn is not None:
        left, right, truth = unknown[drawn[0]], unknown[drawn[1]], drawn[2]
        floors = {
            name: by_nearness(one, left, right) for name, one in (("own", dense(case.own)), ("half known", unaided))
        }
        told = by_nearness(guess, left, right)
        yield told_apart(case.view.name, f"{EQUAL} {other}", ALL, count, told, truth, floors)


def _table(case: Case, signals: Sequence[Signal]) -> Array:
    """Return numbers by row as columns; partitions have a column for each part."""
    values = [one.values[case.rows] for one in signals]
    return one_hot(values) if signals[0].nature == "category" else np.stack(values, axis=1)


def distinct_values(case: Case) -> Iterator[Finding]:
    """Rows with equal numbers are equal in all columns."""
    for other in case.view.others:
        drawn = pairs(records(case.scene.columns[other][case.rows]), case.rng)
        if drawn is None:
            continue
        left, right, truth = drawn
        floors = {"own columns": by_nearness(dense(case.own), left, right)}
        for kind, signals in case.view.about(other).items():
            guess = by_nearness(signals[0].values[case.rows], left, right)
            yield told_apart(case.view.name, f"{EQUAL} {other}", kind, 1, guess, truth, floors)


def peaks(case: Case) -> Iterator[Finding]:
    """The most common differences of a party's scores are effects of its binary columns."""
    for other in case.view.others:
        for kind, (first, *_) in case.view.about(other).items():
            columns, values = case.scene.columns[other][case.rows], first.values[case.rows]
            effects = binary_effects(values, columns)
            if first.sender != other or first.nature != "contribution" or len(effects) < 3:
                continue
            differences = common_differences(values, case.rng)
            within = 1e-6 * float(np.ptp(values))
            chance = matched(case.rng.uniform(0, np.ptp(values), len(effects)), differences, within) / len(effects)
            target = f"the effects of the yes-or-no columns of {other}"
            hits = matched(effects, differences, within)
            yield counted(case.view.name, target, kind, 1, hits, len(effects), chance)
