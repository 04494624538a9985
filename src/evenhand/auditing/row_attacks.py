"""Attacks on a row's label, group and score.

The sign of ν is the opposite of the label if the row's weight is positive. Its size gives the score, and a tilt of
slices shows in its size. An attacker who knows some answers can learn the rest from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import logit

from evenhand.arrays import Array
from evenhand.auditing.cases import ALL, LABEL, LEAST_ROWS, NUMBER, Case
from evenhand.auditing.findings import Finding
from evenhand.auditing.gradient_attacks import minimal
from evenhand.auditing.learners import classify, classify_by_trees, dense, regress, regress_by_trees

CURVATURE = 0.15
"""Mean curvature of the logistic loss at fitted scores."""
KEPT = 0.8
"""Share of a label's distance from the mean label that is left in the residual of a fitted model."""
LARGEST_WEIGHT = 20.0
"""Largest weight that a tilt can give a row; anything larger was not divided by n."""
MOST_SIGNALS = 16
"""Messages used from a long sequence: half of them from its beginning, half from its end."""


def by_sign(nu: Array) -> Array:
    """Infer the label from the sign of a derivative."""
    return -nu


def by_score(nu: Array, labels: Array) -> Array:
    """Infer the joint score from the size of a logistic derivative: |ν| n = σ(−y z) without a tilt.

    Parameters
    ----------
    labels
        As inferred from the sign.
    """
    size = np.abs(nu) * len(nu)
    # ϑ is the derivative of one row's loss, ν that of the mean over rows.
    size = np.abs(nu) if size.max() > LARGEST_WEIGHT else size
    return -labels * logit(np.clip(size, 1e-9, 1.0 - 1e-9))


def by_response(nu: Array, epsilon: float) -> Array:
    """Infer the label under randomised response from the reported bit and the score.

    The debiased derivative is n ν = p − e^ε/(e^ε − 1) if the noisy label is +1, and p + 1/(e^ε − 1) if it is −1, with
    p = σ(z): both can be read off. The log-odds of the true label are then z ± ε. Tilts of slices blur it, but an
    attacker who knows some labels can correct for them.
    """
    scaled, most = len(nu) * nu, np.exp(epsilon)
    said = np.where(scaled < 0.0, 1.0, -1.0)
    chance = scaled + np.where(said > 0, most, -1.0) / (most - 1.0)
    return logit(np.clip(chance, 1e-6, 1.0 - 1e-6)) + epsilon * said


def by_known_labels(columns: Array, weights: Array, labels: Array, ridge: float) -> Array:
    """Infer the labels of rows from weights and the labels of other rows.

    Weights of a logistic regression are about (κ XᵀX/n + μ)⁻¹ Xᵀu/n, with residuals u that have the sign of the label.
    So weights tell Xᵀu. Known labels give an expectation of their residuals, and the rest of Xᵀu is spread over the
    unknown rows by their expectation given the sum, as of Gaussian variables.

    Parameters
    ----------
    labels
        ±1, or 0 where the label is not known.
    """
    table, known = columns - columns.mean(axis=0), labels != 0.0
    share = float((labels[known] > 0).mean())
    mean = np.where(known, KEPT * ((labels > 0) - share), 0.0)
    spread = share * (1.0 - share) * np.where(known, (1.0 - KEPT) * KEPT, 1.0)
    inner, about = table.T @ table, table.T @ (spread[:, None] * table)
    rest = CURVATURE * inner @ weights + ridge * len(table) * weights - table.T @ mean
    about += 1e-8 * np.trace(about) * np.eye(len(about))
    return np.asarray(mean + spread * (table @ np.linalg.solve(about, rest)), dtype=np.float64)


def some(signals: Sequence[Array]) -> Array:
    """Return the most informative numbers of a long sequence as columns."""
    half = MOST_SIGNALS // 2
    return np.stack(list(signals) if len(signals) <= MOST_SIGNALS else [*signals[:half], *signals[-half:]], axis=1)


def telling(signals: Sequence[Array]) -> Array:
    """Return features of derivatives: sign, logarithm of the size, their products, and changes of the size.

    |ν| = c σ(−y z). From one round to the next scores change little near the optimum, but weights c change with the
    multipliers of a row's slices. So the ratio of two sizes tells the slices.
    """
    columns: list[Array] = []
    sizes: list[Array] = []
    for values in some(signals).T:
        sign, size = np.sign(values), np.log(np.abs(values) + 1e-300)
        size = np.where(sign == 0.0, size[sign != 0.0].min(initial=0.0), size)
        for side in (1.0, -1.0):
            here = sign == side
            columns.append(np.where(here, size - (size[here].mean() if here.any() else 0.0), 0.0))
        columns += [sign, values]
        sizes.append(size)
    changes = [after - before for before, after in pairwise([*sizes, sizes[0]])] if len(sizes) > 1 else []
    return np.stack([*columns, *changes, *(np.sign(signals[0]) * one for one in changes)], axis=1)


def one_hot(signals: Sequence[Array]) -> Array:
    """Return partitions of rows as columns of zeros and ones."""
    return np.hstack([values[:, None] == np.unique(values)[1:] for values in signals]).astype(np.float64)


def lengths(signals: Sequence[object]) -> list[int]:
    """Return the lengths to attack: one message, and all messages."""
    return sorted({1, len(signals)}) if signals else []


# -- the attacks


def sign(case: Case) -> Iterator[Finding]:
    """The sign of ν is the opposite of the label; with several classes, it is negative for a row's own class only."""
    for question in case.questions:
        told = [one for one in case.view.of_nature("derivative") if one.output == question.output]
        nus = [one.values[case.rows] for one in told]
        for count in lengths(nus):
            guess = np.mean([by_sign(nu) / max(float(nu.std()), 1e-300) for nu in nus[:count]], axis=0)
            yield case.told_apart(question, _kind(case), count, guess)


def response(case: Case) -> Iterator[Finding]:
    """Under randomised response: the reported bit and the score from ν, which a learner corrects by known labels."""
    epsilon, nus = case.scene.epsilon, case.view.derivatives
    if epsilon is None:
        return
    for question in case.questions:
        for count in lengths(nus) if question.target == LABEL else ():
            # ν is a mean over all rows, so its size relative to n tells the bit.
            bits = [by_response(nu, epsilon)[case.rows] for nu in nus[:count]]
            told = np.hstack([some(bits), telling([nu[case.rows] for nu in nus[:count]])])
            yield case.learned(question, _kind(case), count, told, classify)


def tilt(case: Case) -> Iterator[Finding]:
    """Multipliers give the groups other weights, which the size of ν shows."""
    nus = [values[case.rows] for values in case.view.derivatives]
    for question in case.questions:
        for count in lengths(nus) if question.output is None else ():
            yield case.learned(question, _kind(case), count, telling(nus[:count]), classify)


def everything(case: Case) -> Iterator[Finding]:
    """Give a non-linear learner everything that arrived about the rows, over all rounds."""
    view, rows = case.view, case.rows
    nus = [values[rows] for values in view.derivatives]
    joint = [one.values[rows] for one in view.of_nature("contribution", "joint")]
    parted = [one.values[rows] for one in view.of_nature("category")]
    sums = [nu[rows] for nu in minimal(view)]
    told = [telling(nus)] if nus else []
    told += [some(each) for each in (joint, sums) if each]
    told += [one_hot(parted[:MOST_SIGNALS])] if parted else []
    count = len(nus) + len(joint) + len(parted) + len(sums)
    for question in case.questions if told else ():
        yield case.learned(question, ALL, count, np.hstack(told), classify_by_trees)


def number(case: Case) -> Iterator[Finding]:
    """ν grows with the difference of prediction and target; in the first round all predictions are equal."""
    nus = [nu[case.rows] for nu in case.view.derivatives]
    if case.view.knows_labels or len(case.rows) < 2 * LEAST_ROWS:
        return
    for count in lengths(nus):
        told, wanted = some(nus[:count]), case.scene.labels[case.rows][:, None]
        # In the first round ν is a line in the target.
        learner = regress if count == 1 else regress_by_trees
        yield case.explained(NUMBER, _kind(case), count, told, wanted, learner)[0]


def final_weights(case: Case) -> Iterator[Finding]:
    """The attacker's own part of the final score was fitted to the labels."""
    weights, parts = case.scene.weights, case.scene.parts
    # Weights that stay in shares are not among those that a party knows.
    own = [parts[name] for name in case.scene.columns if name in case.view.members and (name in weights or not weights)]
    if not any(part.any() for part in own):
        return
    told = np.stack([part[case.rows] for part in own], axis=1)
    for question in case.questions:
        if question.target == LABEL:
            guess = told.sum(axis=1)
            yield case.told_apart(question, "final weights", 1, guess, classify_by_trees, _without_weights(case))
        else:
            yield case.learned(question, "final weights", 1, told, classify_by_trees)


def known_labels(case: Case) -> Iterator[Finding]:
    """Subtract from the final weights what people with known labels added to them; the rest tells the other labels."""
    scene = case.scene
    for name in sorted(case.view.members & scene.weights.keys()):
        labels = np.where(scene.known, scene.labels, 0.0)
        for question in case.questions:
            if question.target == LABEL:
                columns, ridge = dense(scene.columns[name]), scene.terms.regulariser
                guess = by_known_labels(columns, scene.weights[name], labels, ridge)[case.rows]
                yield case.told_apart(question, "final weights", 1, guess, classify_by_trees, _without_weights(case))


def _without_weights(case: Case) -> dict[str, Array]:
    """Return a linear guess by somebody who knows half of *all* labels: weights follow from all rows too."""
    return {"half of all known": classify(case.view.own, case.scene.labels > 0, case.scene.known)[case.rows]}


def score(case: Case) -> Iterator[Finding]:
    """The size of ν gives the joint score of each person; known scores correct it for the tilt of slices."""
    nus = case.view.derivatives
    if not nus or case.view.knows_labels:
        return
    every = some([by_score(nu, -np.sign(nu))[case.rows] for nu in nus])
    told, wanted = np.hstack([every, telling([nu[case.rows] for nu in nus])]), case.scene.scores[case.rows][:, None]
    yield case.explained("each person's score", _kind(case), len(nus), told, wanted, regress_by_trees)[0]


def _kind(case: Case) -> str:
    return case.view.of_nature("derivative")[0].kind
