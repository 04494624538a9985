"""Attacks on a row's label, group and score.

The sign of ν is the opposite of the label if the row's weight is positive. Its size gives the score, and a tilt of
slices shows in its size. An attacker who knows some answers can learn the rest from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import logit

from evenhand.arrays import Array
from evenhand.auditing.cases import LABEL, Case
from evenhand.auditing.findings import Finding
from evenhand.auditing.gradient_attacks import minimal
from evenhand.auditing.learners import classify, classify_by_trees, regress

LARGEST_WEIGHT = 20.0
"""Largest weight that a tilt can give a row; anything larger was not divided by n."""
MOST_SIGNALS = 8
"""Messages used from a long sequence: the first ones, which are the most informative, and the last."""


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


def some(signals: Sequence[Array]) -> Array:
    """Return the most informative numbers of a long sequence as columns."""
    return np.stack(
        list(signals) if len(signals) <= MOST_SIGNALS else [*signals[: MOST_SIGNALS - 1], signals[-1]], axis=1
    )


def telling(signals: Sequence[Array]) -> Array:
    """Return features for a linear rule: sign, logarithm of the size, and their product."""
    columns = []
    for values in some(signals).T:
        sign, size = np.sign(values), np.log(np.abs(values) + 1e-300)
        size = np.where(sign == 0.0, size[sign != 0.0].min(initial=0.0), size)
        for side in (1.0, -1.0):
            here = sign == side
            columns.append(np.where(here, size - (size[here].mean() if here.any() else 0.0), 0.0))
        columns += [sign, values]
    return np.stack(columns, axis=1)


def one_hot(signals: Sequence[Array]) -> Array:
    """Return partitions of rows as columns of zeros and ones."""
    return np.hstack([values[:, None] == np.unique(values)[1:] for values in signals]).astype(np.float64)


def lengths(signals: Sequence[object]) -> list[int]:
    """Return the lengths to attack: one message, and all messages."""
    return sorted({1, len(signals)}) if signals else []


# -- the attacks


def sign(case: Case) -> Iterator[Finding]:
    """The sign of ν is the opposite of the label."""
    nus = [values[case.rows] for values in case.view.derivatives]
    for question in case.questions:
        for count in lengths(nus) if question.target == LABEL else ():
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
        for count in lengths(nus) if question.target != LABEL else ():
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
        yield case.learned(question, "everything received", count, np.hstack(told), classify_by_trees)


def final_weights(case: Case) -> Iterator[Finding]:
    """The attacker's own part of the final model was fitted to the labels."""
    own = [case.scene.parts[name][case.rows] for name in case.scene.columns if name in case.view.members]
    for question in case.questions:
        if question.target == LABEL and any(part.std() > 0.0 for part in own):
            yield case.learned(question, "final weights", 1, np.stack(own, axis=1), classify_by_trees)


def score(case: Case) -> Iterator[Finding]:
    """The size of the last ν gives the joint score of each person."""
    nus = case.view.derivatives
    if not nus or case.view.knows_labels:
        return
    whole = [values for values in nus if values.all()] or nus
    last = whole[-1]
    # Without a tilt the size gives the score itself. A tilt shifts it, and a line through known rows corrects that.
    guess = by_score(last, -np.sign(last))[case.rows]
    sides = np.stack([guess * (guess > 0), guess * (guess < 0), np.sign(last[case.rows])], axis=1)
    wanted = case.scene.scores[case.rows][:, None]
    yield case.explained("each person's score", _kind(case), 1, sides, wanted, regress)


def _kind(case: Case) -> str:
    return case.view.of_nature("derivative")[0].kind
