"""Controls: problems where each attack must succeed. An attack that fails its control proves nothing elsewhere."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.special import expit

from evenhand.arrays import Array, Booleans
from evenhand.auditing import (
    cipher_attacks,
    column_attacks,
    difference_attacks,
    evidence,
    gradient_attacks,
    histogram_attacks,
    learners,
    row_attacks,
    separation,
    update_attacks,
    word_attacks,
)
from evenhand.horizontal.trees import binning, splits

ROWS: Final = 2000


class Trial(NamedTuple):
    """The value of an attack on its control, by chance, and against permuted answers."""

    value: float
    floor: float
    permuted: float


def _told_apart(guess: Array, truth: Booleans) -> Trial:
    rng = np.random.default_rng(0)
    permuted = float(np.mean([evidence.auc(guess, rng.permutation(truth)).value for _ in range(50)]))
    return Trial(evidence.auc(guess, truth).value, 0.5, permuted)


def _people(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return scores and labels of a logistic model."""
    scores = rng.normal(0.0, 1.5, ROWS)
    return scores, np.where(rng.random(ROWS) < expit(scores), 1.0, -1.0)


def sign() -> Trial:
    """Unprotected ν."""
    scores, labels = _people(np.random.default_rng(1))
    nu = -labels * expit(-labels * scores) / ROWS
    return _told_apart(row_attacks.by_sign(nu), labels > 0)


def number() -> Trial:
    """Unprotected ν of the squared loss, at predictions that explain half of the target."""
    rng = np.random.default_rng(23)
    predicted = rng.normal(size=ROWS)
    targets = predicted + rng.normal(size=ROWS)
    nu = np.stack([(targets.mean() - targets) / ROWS, (predicted - targets) / ROWS], axis=1)
    return _explained(learners.regress_by_trees, nu, targets[:, None], np.arange(ROWS) % 2 == 0, rng)


def score() -> Trial:
    scores, labels = _people(np.random.default_rng(2))
    nu = -labels * expit(-labels * scores) / ROWS
    guess = row_attacks.by_score(nu, -np.sign(nu))
    found, permuted = (abs(np.corrcoef(guess, one)[0, 1]) for one in (scores, np.roll(scores, 1)))
    return Trial(float(found), 0.0, float(permuted))


def tilt() -> Trial:
    """Two groups, one with a larger weight, as a multiplier sets it."""
    rng = np.random.default_rng(3)
    scores, labels = _people(rng)
    group = rng.random(ROWS) < 0.4
    weights = 1.0 + 0.5 * group
    first = -labels * 0.5 * weights / ROWS
    second = -labels * expit(-labels * scores) * weights / ROWS
    half = rng.random(ROWS) < 0.5
    guess = learners.classify(row_attacks.telling([first, second]), group, half)
    return _told_apart(guess[~half], group[~half])


def response() -> Trial:
    """Randomised response that hides little: ε = 4."""
    rng, epsilon = np.random.default_rng(4), 4.0
    scores, labels = _people(rng)
    noisy = np.where(rng.random(ROWS) < expit(epsilon), labels, -labels)
    said = (np.exp(epsilon) * _slope(noisy, scores) - _slope(-noisy, scores)) / (np.exp(epsilon) - 1.0)
    half = rng.random(ROWS) < 0.5
    told = [row_attacks.some([row_attacks.by_response(said / ROWS, epsilon)]), row_attacks.telling([said / ROWS])]
    guess = learners.classify(np.hstack(told), labels > 0, half)
    return _told_apart(guess[~half], labels[~half] > 0)


def _slope(labels: Array, scores: Array) -> Array:
    return np.asarray(-labels * expit(-labels * scores), dtype=np.float64)


def minimum_norm() -> Trial:
    """A batch of ten rows and twenty columns."""
    rng = np.random.default_rng(5)
    columns, labels = rng.normal(size=(10, 20)), np.where(np.arange(10) % 2, 1.0, -1.0)
    nu = -labels * rng.uniform(0.1, 0.9, 10)
    found = gradient_attacks.minimum_norm(columns, columns.T @ nu)
    return _told_apart(row_attacks.by_sign(found), labels > 0)


def leverage() -> Trial:
    """A category that one person has: the gradient reveals that row's ν."""
    rng = np.random.default_rng(6)
    columns = np.hstack([rng.normal(size=(ROWS, 3)), np.eye(ROWS, 1)])
    nu = rng.normal(size=ROWS)
    found = gradient_attacks.minimum_norm(columns, columns.T @ nu)
    certain = gradient_attacks.leverages(columns) > gradient_attacks.CERTAIN
    right, wrong = (float((np.abs(found - one)[certain] < 1e-6).mean()) for one in (nu, np.roll(nu, 1)))
    return Trial(right, 0.0, wrong)


def _one_hot(rng: np.random.Generator) -> tuple[Array, Array]:
    """A party with binary columns, and one of its directions."""
    columns = (rng.random((ROWS, 8)) < rng.uniform(0.2, 0.8, 8)).astype(np.float64)
    return columns, columns @ rng.normal(size=8)


def distinct() -> Trial:
    rng = np.random.default_rng(7)
    columns, values = _one_hot(rng)
    drawn = column_attacks.pairs(column_attacks.records(columns), rng)
    assert drawn is not None
    left, right, truth = drawn
    return _told_apart(column_attacks.by_nearness(values, left, right), truth)


def peaks() -> Trial:
    rng = np.random.default_rng(8)
    columns, values = _one_hot(rng)
    effects = column_attacks.binary_effects(values, columns)
    found = column_attacks.common_differences(values, rng)
    within = 1e-6 * float(np.ptp(values))
    others = rng.uniform(0.0, np.ptp(values), len(effects))
    right, wrong = (column_attacks.matched(one, found, within) / len(effects) for one in (effects, others))
    return Trial(right, 0.0, wrong)


def variance() -> Trial:
    """As many directions as the party has columns: the sum over one passive party is its own vector."""
    rng = np.random.default_rng(9)
    columns = _one_hot(rng)[0]
    values = columns @ rng.normal(size=(8, 8))
    return _explained(learners.regress, values, columns, np.arange(ROWS) % 2 == 0, rng)


def blind_separation() -> Trial:
    """Six sums of a column of two values and five normal ones."""
    rng = np.random.default_rng(24)
    truth, half = rng.random(ROWS) < 0.3, np.arange(ROWS) % 2 == 0
    sums = np.column_stack([truth - 0.3, rng.normal(size=(ROWS, 5))]) @ rng.normal(size=(6, 6))
    guess = separation.match(separation.components(sums), truth, half)
    return _told_apart(guess[~half], truth[~half])


def membership() -> Trial:
    """A model with more weights than rows, trained until it memorises them."""
    rng = np.random.default_rng(10)
    rows, others = rng.normal(size=(2, 40, 80))
    labels, strange = np.where(rng.random((2, 40)) < 0.5, 1.0, -1.0)
    weights = np.linalg.lstsq(rows, 4.0 * labels, rcond=None)[0]
    gains = update_attacks.by_gain(
        np.zeros(80), weights, np.concatenate([rows, others]), np.concatenate([labels, strange])
    )
    return _told_apart(gains, np.arange(80) < 40)


def inversion() -> Trial:
    """A batch of one row: the gradient is proportional to the row."""
    rng = np.random.default_rng(11)
    row: Array = rng.normal(size=12)
    found = update_attacks.by_ratio(np.append(-0.3 * row, -0.3))
    right, wrong = (update_attacks.likeness(found, one[None, :], np.zeros(12)) for one in (row, rng.normal(size=12)))
    return Trial(right, 0.0, wrong)


def everything() -> Trial:
    """A group that shows in the product of two numbers only, so that no linear rule finds it."""
    rng = np.random.default_rng(12)
    seen = rng.normal(size=(ROWS, 2))
    group, half = seen[:, 0] * seen[:, 1] > 0, rng.random(ROWS) < 0.5
    guess = learners.classify_by_trees(seen, group, half)
    return _told_apart(guess[~half], group[~half])


def final_weights() -> Trial:
    """A model with a weight for every four rows: its score tells their labels."""
    rng = np.random.default_rng(13)
    columns, labels = np.repeat(np.eye(ROWS // 4), 4, axis=0), np.where(rng.random(ROWS) < 0.5, 1.0, -1.0)
    fitted = columns @ (columns.T @ labels) / 4.0
    half = rng.random(ROWS) < 0.5
    guess = learners.classify_by_trees(fitted[:, None], labels > 0, half)
    return _told_apart(guess[~half], labels[~half] > 0)


def subset_sums() -> Trial:
    """Sixty departments with 24 customers each, of whom half are known, and a column that half of the people have."""
    rng = np.random.default_rng(14)
    spent = np.zeros((ROWS, 60))
    for column in spent.T:
        column[rng.choice(ROWS, 24, replace=False)] = np.round(rng.uniform(20.0, 200.0, 24), 2)
    columns = np.hstack([spent / spent.std(axis=0), (rng.random((ROWS, 1)) < 0.5)])
    labels = np.where(rng.random(ROWS) < 0.3, 1.0, -1.0)
    nu, known = ((labels > 0).mean() - (labels > 0)) / ROWS, rng.random(ROWS) < 0.5
    found = gradient_attacks.subset_labels(columns, columns.T @ nu, np.where(known, labels, 0.0))
    asked = (spent > 0).any(axis=1) & ~known
    right, wrong = (float((found * one > 0)[asked].mean()) for one in (labels, np.zeros(ROWS)))
    return Trial(right, 0.0, wrong)


def known_labels() -> Trial:
    """A weight for every four rows, of whom half are known."""
    rng = np.random.default_rng(20)
    columns, labels = np.repeat(np.eye(ROWS // 4), 4, axis=0), np.where(rng.random(ROWS) < 0.5, 1.0, -1.0)
    half = rng.random(ROWS) < 0.5
    guess = row_attacks.by_known_labels(columns, columns.T @ labels, np.where(half, labels, 0.0), 1e-3)
    return _told_apart(guess[~half], labels[~half] > 0)


def nearest_records() -> Trial:
    """Five binary columns with different effects: two sums tell all of them, but not linearly."""
    rng = np.random.default_rng(21)
    columns, half = (rng.random((ROWS, 5)) < 0.5).astype(np.float64), np.arange(ROWS) % 2 == 0
    values = columns @ rng.normal(size=(5, 2))
    return _explained(learners.regress_by_neighbours, values, columns, half, rng)


def learned_columns() -> Trial:
    """Binary columns with different effects: one sum tells all of them, but not linearly."""
    rng = np.random.default_rng(15)
    columns = (rng.random((ROWS, 3)) < 0.5).astype(np.float64)
    values = (columns @ [1.0, 1.7, 2.9])[:, None]
    return _explained(learners.regress_by_trees, values, columns, np.arange(ROWS) % 2 == 0, rng)


def _explained(
    learner: learners.Regresses, values: Array, columns: Array, half: Booleans, rng: np.random.Generator
) -> Trial:
    right, wrong = (
        float(evidence.explained(learner(values, one, half), one, half).mean())
        for one in (columns, rng.permutation(columns))
    )
    return Trial(right, 0.0, wrong)


def words() -> Trial:
    """Two vectors behind the same mask."""
    rng = np.random.default_rng(16)
    truth, half = rng.random(ROWS) < 0.5, rng.random(ROWS) < 0.5
    mask = rng.integers(-(2**63), 2**63 - 1, ROWS)
    told = np.stack(word_attacks.differences([mask, mask + (2.0**40 * truth).astype(np.int64)]), axis=1)
    return _told_apart(learners.classify_by_trees(told, truth, half)[~half], truth[~half])


def differencing() -> Trial:
    """Sums of labels by category, with and without a person."""
    rng = np.random.default_rng(17)
    columns, labels = rng.integers(0, 2, (ROWS, 8)).astype(np.float64), np.where(rng.random(ROWS) < 0.5, 1.0, -1.0)
    people = np.arange(40)
    changes = np.stack([columns[one] * labels[one] for one in people])
    return _told_apart(difference_attacks.learned_signs(changes, labels[people] > 0), labels[people] > 0)


def counts() -> Trial:
    """Rows with three continuous columns, and as many rows of somebody else."""
    rng = np.random.default_rng(18)
    rows, others = rng.normal(size=(2, 300, 3))
    coarse = binning.coarse_counts(rows)
    cells = binning.fullest_bins(coarse)
    pool = np.concatenate([rows, others])
    found = histogram_attacks.held(pool, coarse, cells, binning.fine_counts(rows, cells))
    return _told_apart(np.log(found + histogram_attacks.RARE).sum(axis=1), np.arange(600) < 300)


def histograms() -> Trial:
    """A column with a bin for every two rows."""
    rng = np.random.default_rng(19)
    bins, truth = np.repeat(np.arange(100), 2)[:, None], rng.random(200) < 0.5
    sums = np.zeros((100, 3), dtype=np.int64)
    np.add.at(
        sums, bins[:, 0], np.stack([np.rint((0.5 - truth) / splits.UNIT), truth * 0, truth * 0 + 1], 1).astype(int)
    )
    return _told_apart(histogram_attacks.label_odds(bins, np.array([0, 100]), sums, 0.5), truth)


def noise() -> Trial:
    """Answers in which only the product is hidden."""
    rng = np.random.default_rng(22)
    column = np.rint(rng.standard_normal(ROWS) * 2.0**17)
    found = cipher_attacks.by_noise(column.astype(np.int64).view(np.uint64), rng, cipher_attacks.without_cover)
    right, wrong = (abs(float(np.corrcoef(found, one)[0, 1])) for one in (column, np.roll(column, 1)))
    return Trial(right, 0.0, wrong)
