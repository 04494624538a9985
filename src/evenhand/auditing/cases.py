"""One attacker's case: the rows it attacks, what it knows of them without messages, and how attacks are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.auditing import evidence
from evenhand.auditing.evidence import Estimate
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import Classifies, Regresses, classify, dense, regress, side_by_side
from evenhand.auditing.views import AuditInput, View

FEW: Final = 400
"""Number of rows for which an attacker may know the answer: the first floor. The second is half of all rows."""
LEAST_ROWS: Final = 20
"""Minimum number of people with either answer for a meaningful result."""
MOST_TARGETS: Final = 64
"""Columns of another party that are attacked: those with the most entries."""
LABEL: Final = "each person's label"
NUMBER: Final = "each person's target"
ALL: Final = "everything received"


@dataclass(frozen=True, eq=False)
class RowQuestion:
    """A yes-or-no question about each row."""

    target: str
    truth: Booleans
    output: int | None = None
    """Of a label: which of the scores of a row its derivative is of."""


@dataclass(eq=False)
class Case:
    """An attacker, and a generator for its draws of pairs and permutations."""

    view: View
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self._floors: dict[tuple[str, Classifies], dict[str, Array]] = {}
        self._explained: dict[tuple[str, Regresses], tuple[Array, Array]] = {}

    @property
    def scene(self) -> AuditInput:
        return self.view.scene

    @property
    def rows(self) -> Integers:
        """Places of the rows that are attacked."""
        return self.scene.rows

    @cached_property
    def known(self) -> Booleans:
        """Rows with answers that the attacker knows: half of the sample."""
        return self.scene.known[self.rows]

    @cached_property
    def own(self) -> Matrix:
        """What the attacker has of the rows: its columns, and labels if it holds them."""
        own = self.view.own[self.rows]
        return side_by_side([own, self.scene.labels[self.rows][:, None]]) if self.view.knows_labels else own

    @cached_property
    def questions(self) -> list[RowQuestion]:
        """What the attacker is not told about the rows: labels and groups."""
        if self.view.knows_labels or len(self.rows) < LEAST_ROWS:
            return []
        labels, found = self.scene.labels[self.rows], []
        if self.scene.target == "labels":
            found = [RowQuestion(LABEL, labels > 0, 0)]
        elif self.scene.target == "classes":
            names = self.scene.terms.job.classes
            found = [
                RowQuestion(f"whether each person's class is {name}", labels == at, at) for at, name in enumerate(names)
            ]
        for name, column in self.scene.groups.items():
            codes = column.to_numpy()[self.rows]
            commonest = max(set(codes.tolist()), key=codes.tolist().count)
            found.append(RowQuestion(f"each person's {name}", codes == commonest))
        asked = ~self.known
        return [one for one in found if LEAST_ROWS // 2 < one.truth[asked].sum() < asked.sum() - LEAST_ROWS // 2]

    def columns(self, other: str) -> Matrix:
        """Return the columns of another party that are attacked."""
        matrix = self.scene.columns[other][self.rows]
        if matrix.shape[1] <= MOST_TARGETS:
            return matrix
        entries = np.asarray((matrix != 0).sum(axis=0)).ravel()
        return matrix[:, np.sort(np.argsort(-entries, kind="stable")[:MOST_TARGETS])]

    # -- judging

    def floors(self, question: RowQuestion, learner: Classifies) -> dict[str, Array]:
        """Return what the attacker makes of its own columns, on rows with unknown answers.

        It is what the attack's learner makes of them, or the linear learner if that is better.
        """
        key = (question.target, learner)
        if key not in self._floors:
            few = self.known & (np.cumsum(self.known) <= FEW)
            truth = question.truth[~self.known]
            for name, taught in (("400 known", few), ("half known", self.known)):
                guesses = [
                    one(self.own, question.truth, taught)[~self.known] for one in dict.fromkeys((learner, classify))
                ]
                best = max(guesses, key=lambda guess: evidence.auc(guess, truth).value)
                self._floors.setdefault(key, {})[name] = best
        return self._floors[key]

    def told_apart(
        self,
        question: RowQuestion,
        kind: str,
        count: int,
        guess: Array,
        learner: Classifies = classify,
        further: Mapping[str, Array] | None = None,
    ) -> Finding:
        """Judge a guess by its AUC, beside the floors and further guesses without messages."""
        asked = ~self.known
        floors = self.floors(question, learner) | {name: one[asked] for name, one in (further or {}).items()}
        return told_apart(self.view.name, question.target, kind, count, guess[asked], question.truth[asked], floors)

    def learned(
        self, question: RowQuestion, kind: str, count: int, told: Array, learner: Classifies = classify
    ) -> Finding:
        """Let a learner answer a question from own columns and messages, and judge it."""
        guess, mixed = (
            learner(side_by_side([self.own, one]), question.truth, self.known)[~self.known]
            for one in (told, told[self.rng.permutation(len(told))])
        )
        floors, truth = dict(self.floors(question, learner)), question.truth[~self.known]
        # Further columns can help a learner even if they are noise: the same messages about other rows show how much.
        if evidence.auc(mixed, truth).value > evidence.auc(floors["half known"], truth).value:
            floors["half known"] = mixed
        return told_apart(self.view.name, question.target, kind, count, guess, truth, floors)

    def explained(
        self, target: str, kind: str, count: int, told: Array, wanted: Matrix, learner: Regresses, alone: bool = False
    ) -> tuple[Finding, Array]:
        """Judge what messages explain of some numbers by R², and return the guess too.

        The floor is the best of the learner and the linear learner on own columns, and of the learner with the same
        messages about other rows.

        Parameters
        ----------
        alone
            Give the learner the messages without the attacker's own columns.
        """
        answers = dense(wanted)
        guess, mixed = (
            learner(one if alone else side_by_side([self.own, one]), answers, self.known)
            for one in (told, told[self.rng.permutation(len(told))])
        )
        found = evidence.explained(guess, wanted, self.known)
        others = evidence.explained(mixed, wanted, self.known)
        floor = max(self.unaided(target, wanted, learner)[0], others, key=lambda one: float(one.mean()))
        permuted = answers[self.rng.permutation(len(told))]
        finding = Finding(
            self.view.name,
            target,
            kind,
            count,
            "R²",
            evidence.over_rows(found),
            {"half known": float(floor.mean())},
            evidence.over_rows(found - floor, least=-1.0),
            float(evidence.explained(regress(told, permuted, self.known), permuted, self.known).mean()),
        )
        return finding, guess

    def unaided(self, target: str, wanted: Matrix, learner: Regresses) -> tuple[Array, Array]:
        """Return what the attacker's own columns explain of some numbers in each unknown row, and the guess."""
        if (target, learner) not in self._explained:
            guesses = [one(self.own, dense(wanted), self.known) for one in dict.fromkeys((learner, regress))]
            floors = [(evidence.explained(one, wanted, self.known), one) for one in guesses]
            self._explained[target, learner] = max(floors, key=lambda floor: float(floor[0].mean()))
        return self._explained[target, learner]


def told_apart(
    who: str, target: str, kind: str, count: int, guess: Array, truth: Booleans, floors: Mapping[str, Array]
) -> Finding:
    """Judge a guess of a yes-or-no question by its AUC, beside guesses without messages."""
    heights = {name: evidence.auc(scores, truth).value for name, scores in floors.items()}
    best = max(heights, key=lambda name: heights[name])
    mixed = np.random.default_rng(0).permutation(truth)
    return Finding(
        who,
        target,
        kind,
        count,
        "AUC",
        evidence.auc(guess, truth),
        heights,
        evidence.auc_lift(guess, floors[best], truth),
        evidence.auc(guess, mixed).value,
    )


def counted(who: str, target: str, kind: str, count: int, hits: int, of: int, chance: float = 0.0) -> Finding:
    """Judge an attack by its share of hits, beside chance."""
    found = evidence.share(hits, of)
    lift = Estimate(found.value - chance, found.low - chance if hits else 0.0, found.high - chance)
    return Finding(who, target, kind, count, "share", found, {"chance": chance}, lift, chance)
