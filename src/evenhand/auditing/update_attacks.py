"""Attacks on what clients send in a horizontal run: membership inference and reconstruction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from evenhand.arrays import Array, Booleans, dense
from evenhand.auditing.cases import FEW, LEAST_ROWS, told_apart
from evenhand.auditing.client_views import ClientCase
from evenhand.auditing.evidence import Estimate
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import classify_by_trees

DRAWS: Final = 100
"""Sets of other rows to compare a reconstruction with: it must be nearer to the client's rows than to any of them."""

MOST_CHANGES: Final = 6
"""Changes of the model that a learner gets: the first, and the last."""


def by_gain(before: Array, after: Array, rows: Array, labels: Array) -> Array:
    """Return how much a change of a linear model lowered the loss of each row; training rows gain most.

    Weights with one more entry than there are columns have their intercept at the end.
    """
    return _losses(before, rows, labels) - _losses(after, rows, labels)


def _losses(weights: Array, rows: Array, labels: Array) -> Array:
    columns = rows.shape[1]
    scores = rows @ weights[:columns] + weights[columns:].sum()
    return np.asarray(np.logaddexp(0.0, -labels * scores), dtype=np.float64)


def by_ratio(gradient: Array) -> Array:
    """Reconstruct a row from the gradient of a linear model with an intercept: g_w = Σ ν_i x_i over g_b = Σ ν_i.

    For a batch of one it is the row itself; for more, an average of rows with weights of either sign.
    """
    slope = float(gradient[-1])
    return np.asarray(gradient[:-1] / (slope if abs(slope) > 1e-12 else 1e-12), dtype=np.float64)


def likeness(found: Array, rows: Array, middle: Array) -> float:
    """Return how much nearer a reconstruction is to its nearest row than the mean row is: 1 is exact."""
    missed = ((rows - found) ** 2).sum(axis=1)
    nearest = int(np.argmin(missed))
    spread = float(((rows[nearest] - middle) ** 2).sum())
    return max(0.0, 1.0 - float(missed[nearest]) / max(spread, 1e-12))


# -- the attacks


def membership(case: ClientCase) -> Iterator[Finding]:
    """Rows whose loss an update lowers most are rows of the client."""
    scene, changes = case.scene, case.changes
    for features, labels, inside, half, floors in memberships(case) if changes else ():
        for count in sorted({1, len(changes)}):
            gains = [
                scene.losses(one.before, features, labels) - scene.losses(one.after, features, labels)
                for one in changes[:count]
            ]
            guess = np.mean([gain / max(float(gain.std()), 1e-300) for gain in gains], axis=0)[~half]
            target = f"who is among the rows of {case.victim}"
            yield told_apart(case.who, target, changes[0].kind, count, guess, inside[~half], floors)


def learned_membership(case: ClientCase) -> Iterator[Finding]:
    """Give a non-linear learner the rows and what every update did to their losses."""
    scene, changes = case.scene, case.changes
    for features, labels, inside, half, floors in memberships(case) if changes else ():
        steps = [*changes[:MOST_CHANGES], changes[-1]]
        losses = [scene.losses(weights, features, labels) for one in steps for weights in (one.before, one.after)]
        table = np.column_stack([features.reshape(len(features), -1), labels, *losses])
        guess = classify_by_trees(table, inside, half)[~half]
        target = f"who is among the rows of {case.victim}"
        yield told_apart(case.who, target, changes[0].kind, len(changes), guess, inside[~half], floors)


def memberships(case: ClientCase) -> Iterator[tuple[Array, Array, Booleans, Booleans, dict[str, Array]]]:
    """Yield candidates, which are the client's, which of them are known, and floors; nothing if they are too few."""
    features, labels, inside = case.candidates
    if min(inside.sum(), (~inside).sum()) < LEAST_ROWS:
        return
    half = case.rng.permutation(len(labels)) < len(labels) // 2
    few = half & (np.cumsum(half) <= FEW)
    flat = np.column_stack([features.reshape(len(features), -1), labels])
    taught = {"400 known": few, "half known": half}
    floors = {name: classify_by_trees(flat, inside, rows)[~half] for name, rows in taught.items()}
    yield features, labels, inside, half, floors


def _by_class(change: Array, classes: int | None) -> list[Array]:
    """Return the change of each class's weights, with its intercept last; two classes have one score."""
    outputs = classes or 1
    if outputs == 1:
        return [change]
    return [np.append(*both) for both in zip(change[:-outputs].reshape(outputs, -1), change[-outputs:], strict=True)]


def inversion(case: ClientCase) -> Iterator[Finding]:
    """The change of a linear model by one row is proportional to the row."""
    scene, victim, rng = case.scene, case.victim, case.rng
    if not scene.linear or not case.changes:
        return
    rows = dense(scene.clients[victim].features).astype(np.float64)
    rows = rows[case.some(len(rows))]
    others = np.concatenate(
        [dense(one.features) for name, one in scene.clients.items() if name != victim] or [rows[:0]]
    )
    middle = np.concatenate([rows, others]).mean(axis=0)
    found = [by_ratio(each) for one in case.changes for each in _by_class(one.after - one.before, scene.terms.classes)]
    value = max(likeness(row, rows, middle) for row in found)
    # Compare with the distance to the same number of rows that had no part in the update.
    drawn = [rng.permutation(len(others))[: len(rows)] for _ in range(DRAWS if len(others) else 0)]
    chance = [max(likeness(row, others[some].astype(np.float64), middle) for row in found) for some in drawn] or [0.0]
    yield Finding(
        case.who,
        f"the values of a row of {victim}",
        case.changes[0].kind,
        len(case.changes),
        "R²",
        Estimate(value, value, value),
        {"rows of others": float(np.mean(chance))},
        Estimate(value - float(np.mean(chance)), value - max(chance), value - min(chance)),
        float(np.mean(chance)),
    )
