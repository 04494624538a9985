"""Audit a vertical run: every participant attacks with what it received and what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.auditing import column_attacks, controls, evidence, gradient_attacks, row_attacks
from evenhand.auditing.evidence import Estimate
from evenhand.auditing.findings import Audit, Finding
from evenhand.auditing.views import AuditInput, View, side_by_side
from evenhand.errors import InputError
from evenhand.protocol.roles import SERVER
from evenhand.vertical.trees.messages import LEAVES

LEAST_ROWS = 20
"""Minimum number of people with either answer for a meaningful result."""
MOST_ROWS = 20_000
"""Maximum number of rows attacked; from larger runs a random sample is drawn."""


def audit_vertical(
    scene: AuditInput, *, coalitions: Sequence[Sequence[str]] = (), seed: int = 0, most_rows: int = MOST_ROWS
) -> Audit:
    """Attack a run as every participant.

    Parameters
    ----------
    coalitions
        Names of parties (or the server) that collude, attacked beside each one alone.
    most_rows
        Maximum number of rows attacked.
    """
    if unknown := sorted({name for names in coalitions for name in names} - {SERVER, *scene.columns}):
        raise InputError(f"{unknown[0]!r} takes no part in this run; the participants are {', '.join(scene.columns)}")
    rng = np.random.default_rng(seed)
    scene = replace(scene, known=rng.permutation(len(scene.labels)) < len(scene.labels) // 2)
    views = [View.of(scene, [name]) for name in scene.columns] + [View.of(scene, names) for names in coalitions]
    findings: list[Finding] = []
    for view in views:
        rows = rng.permutation(len(scene.labels))[:most_rows]
        rows.sort()
        findings += [*_about_people(view, rows), *_about_scores(view, rows), *_about_certain(view)]
        findings += _about_columns(view, rows, rng)
    hidden = [view.name for view in views if view.name not in {one.who for one in findings}]
    remarks = [f"{name} was sent nothing about the rows of others" for name in hidden]
    return Audit("vertical", scene.protection, findings, remarks)


# -- labels and groups


class _Question(NamedTuple):
    """A question about each row, and what the attacker knows of the answers."""

    target: str
    truth: Booleans
    few: Booleans
    half: Booleans
    own: Matrix

    @property
    def asked(self) -> Booleans:
        return ~self.half

    def floors(self) -> dict[str, Array]:
        taught = {"400 known": self.few, "half known": self.half}
        return {name: row_attacks.learned(self.own, self.truth, rows)[self.asked] for name, rows in taught.items()}


def _questions(view: View, rows: Integers) -> Iterator[_Question]:
    scene = view.scene
    half = scene.known[rows]
    few = half & (np.cumsum(half) <= row_attacks.FEW)
    own = view.own[rows]
    if not view.knows_labels and len(rows) >= LEAST_ROWS:
        yield _Question("each person's label", scene.labels[rows] > 0, few, half, own)
        for name, column in scene.groups.items():
            codes = column.to_numpy()[rows]
            commonest = max(set(codes.tolist()), key=codes.tolist().count)
            if LEAST_ROWS < (codes == commonest).sum() < len(codes) - LEAST_ROWS:
                yield _Question(f"each person's {name}", codes == commonest, few, half, own)


def _about_people(view: View, rows: Integers) -> Iterator[Finding]:
    derivatives = [values[rows] for values in view.of_nature("derivative")]
    kinds = [one.kind for one in view.signals if one.nature == "derivative"]
    gradients = [minimal[rows] for minimal in _minimal(view)]
    for question in _questions(view, rows):
        of_label = question.target == "each person's label"
        floors = question.floors()
        if derivatives and of_label:
            epsilon = view.scene.epsilon
            for count in _lengths(derivatives):
                guess = np.mean([row_attacks.by_sign(nu) / nu.std() for nu in derivatives[:count]], axis=0)
                yield _judged(view, question, floors, "sign", kinds[0], count, guess)
                if epsilon is not None:
                    # ν is a mean over all rows, so its size relative to n tells the bit.
                    told = [row_attacks.by_response(nu, epsilon)[rows] for nu in view.of_nature("derivative")[:count]]
                    table = side_by_side(
                        [question.own, row_attacks.some(told), row_attacks.telling(derivatives[:count])]
                    )
                    guess = row_attacks.learned(table, question.truth, question.half)
                    yield _judged(view, question, floors, "bit with score", kinds[0], count, guess)
        elif derivatives:
            for count in _lengths(derivatives):
                table = side_by_side([question.own, row_attacks.telling(derivatives[:count])])
                guess = row_attacks.learned(table, question.truth, question.half)
                yield _judged(view, question, floors, "tilt", kinds[0], count, guess)
        for count in _lengths(gradients) if of_label else ():
            guess = np.mean([row_attacks.by_sign(nu) / max(nu.std(), 1e-300) for nu in gradients[:count]], axis=0)
            yield _judged(view, question, floors, "minimum norm", "gradient", count, guess)


def _about_scores(view: View, rows: Integers) -> Iterator[Finding]:
    """Infer the joint score of each person from the size of the last derivative."""
    derivatives, scores = view.of_nature("derivative"), view.scene.scores
    if not derivatives or scores is None or view.knows_labels:
        return
    whole = [values for values in derivatives if values.all()] or derivatives
    last, known = whole[-1], view.scene.known[rows]
    # Without a tilt the size gives the score itself. A tilt shifts it, and a line through known rows corrects that.
    guess = row_attacks.by_score(last, -np.sign(last))[rows]
    own, wanted = view.own[rows], scores[rows][:, None]
    floor = evidence.explained(own, wanted, known)
    sides = np.stack([guess * (guess > 0), guess * (guess < 0), np.sign(last[rows])], axis=1)
    found = evidence.explained(side_by_side([own, sides]), wanted, known)
    mixed = evidence.explained(sides, np.random.default_rng(0).permutation(wanted), known)
    kind = next(one.kind for one in view.signals if one.values is last)
    yield Finding(
        view.name,
        "each person's score",
        "score",
        kind,
        1,
        "R²",
        evidence.over_rows(found),
        {"half known": float(floor.mean())},
        evidence.over_rows(found - floor, least=-1.0),
        controls.outcome("score").value,
        float(mixed.mean()),
    )


def _about_certain(view: View) -> Iterator[Finding]:
    """Find rows with so much leverage that a gradient reveals their ν; guards protect these."""
    for name in dict.fromkeys(name for name, _ in view.gradients):
        columns = view.scene.columns[name]
        alone = int((gradient_attacks.leverages(columns) > gradient_attacks.CERTAIN).sum())
        found = evidence.share(alone, columns.shape[0])
        yield Finding(
            view.name,
            "the label of people whom a rare category sets apart",
            "leverage",
            "gradient",
            1,
            "share",
            found,
            {"chance": 0.0},
            found if alone else Estimate(0.0, 0.0, found.high),
            controls.outcome("leverage").value,
            0.0,
        )


def _minimal(view: View) -> list[Array]:
    """Return the minimum-norm ν for the gradients that a party received."""
    own = {name: matrix for name, matrix in view.scene.columns.items() if name in view.members}
    return [
        gradient_attacks.minimum_norm(own[name], gradient[: own[name].shape[1]]) for name, gradient in view.gradients
    ]


def _lengths(signals: Sequence[Array]) -> list[int]:
    """Return the lengths to attack: one message, and all messages."""
    return sorted({1, len(signals)}) if signals else []


def _judged(
    view: View, question: _Question, floors: dict[str, Array], attack: str, kind: str, count: int, guess: Array
) -> Finding:
    asked = question.asked
    truth, guess = question.truth[asked], guess[asked]
    heights = {name: evidence.auc(scores, truth).value for name, scores in floors.items()}
    best = max(heights, key=lambda name: heights[name])
    mixed = np.random.default_rng(0).permutation(truth)
    return Finding(
        view.name,
        question.target,
        attack,
        kind,
        count,
        "AUC",
        evidence.auc(guess, truth),
        heights,
        evidence.auc_lift(guess, floors[best], truth),
        controls.outcome(attack).value,
        evidence.auc(guess, mixed).value,
    )


# -- columns


def _about_columns(view: View, rows: Integers, rng: np.random.Generator) -> Iterator[Finding]:
    scene = view.scene
    for other in view.others:
        # Scores of one party if there are any, else sums over several parties, else joint scores.
        found = view.sent_by([other]) or view.sums or [one for one in view.signals if one.nature == "joint"]
        single = bool(view.sent_by([other]))
        if not found:
            continue
        signals = [one.values[rows] for one in found]
        kind = f"sum of {found[0].kind}" if found == view.sums else found[0].kind
        columns = scene.columns[other][rows]
        own = view.own[rows]
        if view.knows_labels:
            own = side_by_side([own, scene.labels[rows][:, None]])
        for count in _lengths(signals):
            table = _columns(signals[:count], kind)
            yield _variance(view, other, kind, count, own, table, columns, scene.known[rows], rng)
        yield from _equal(view, other, kind, own, signals[0], columns, rng)
        if single:
            yield from _effects(view, other, kind, signals[0], columns, rng)


def _columns(signals: Sequence[Array], kind: str) -> Array:
    """Return numbers by row as columns; leaves of a tree are categories with a column each."""
    if kind != LEAVES.kind:
        return np.stack(signals, axis=1)
    return np.hstack([values[:, None] == np.unique(values)[1:] for values in signals]).astype(np.float64)


def _variance(
    view: View,
    other: str,
    kind: str,
    count: int,
    own: Matrix,
    table: Array,
    columns: Matrix,
    known: Booleans,
    rng: np.random.Generator,
) -> Finding:
    """Measure R² of another party's columns, beside what the attacker's own columns explain."""
    floor = evidence.explained(own, columns, known)
    found = evidence.explained(side_by_side([own, table]), columns, known)
    mixed = evidence.explained(table, columns[rng.permutation(len(known))], known)
    return Finding(
        view.name,
        f"the columns of {other}",
        "variance",
        kind,
        count,
        "R²",
        evidence.over_rows(found),
        {"half known": float(floor.mean())},
        evidence.over_rows(found - floor, least=-1.0),
        controls.outcome("variance").value,
        float(mixed.mean()),
    )


def _equal(
    view: View, other: str, kind: str, own: Matrix, values: Array, columns: Matrix, rng: np.random.Generator
) -> Iterator[Finding]:
    """Infer which people have equal records at another party, from one number per row."""
    codes = column_attacks.records(columns)
    drawn = column_attacks.pairs(codes, rng)
    if drawn is None:
        return
    left, right, truth = drawn
    guess = column_attacks.by_nearness(values, left, right)
    table = np.asarray(own.toarray() if hasattr(own, "toarray") else own)
    floor = column_attacks.by_nearness(table, left, right)
    mixed = column_attacks.by_nearness(values[rng.permutation(len(values))], left, right)
    yield Finding(
        view.name,
        f"which people are equal in every column of {other}",
        "distinct values",
        kind,
        1,
        "AUC",
        evidence.auc(guess, truth),
        {"own columns": evidence.auc(floor, truth).value},
        evidence.auc_lift(guess, floor, truth),
        controls.outcome("distinct values").value,
        evidence.auc(mixed, truth).value,
    )


def _effects(
    view: View, other: str, kind: str, values: Array, columns: Matrix, rng: np.random.Generator
) -> Iterator[Finding]:
    """Count the binary columns of another party whose effect is among the most common score differences."""
    effects = column_attacks.binary_effects(values, columns)
    if len(effects) < 3:
        return
    differences = column_attacks.common_differences(values, rng)
    within = 1e-6 * float(np.ptp(values))
    found = evidence.share(column_attacks.matched(effects, differences, within), len(effects))
    chance = column_attacks.matched(rng.uniform(0, np.ptp(values), len(effects)), differences, within) / len(effects)
    yield Finding(
        view.name,
        f"the effects of the yes-or-no columns of {other}",
        "peaks",
        kind,
        1,
        "share",
        found,
        {"chance": chance},
        Estimate(found.value - chance, found.low - chance, found.high - chance),
        controls.outcome("peaks").value,
        chance,
    )
