"""What one participant, or several that collude, received in a vertical run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.auditing.learners import side_by_side
from evenhand.constraints.groups import groups_frame
from evenhand.models.base import Scorer
from evenhand.models.linear import LinearModel
from evenhand.models.saved import joint_scores
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.protocol.scoring import ACROSS_SCORES, PARTIAL_SCORES, SIDES
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.vertical import messages as linear
from evenhand.vertical.finishing import JOINT_SCORES
from evenhand.vertical.learners import messages as learners
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.protected import messages as protected
from evenhand.vertical.protected.sharing import inverse_by_bands
from evenhand.vertical.subspace.party import Subspace
from evenhand.vertical.trees import messages as trees
from evenhand.vertical.vfb2 import messages as vfb2

MOST_KEPT: Final = 2**25
"""Bytes of messages kept of each kind on each link: a hundred rounds of 40,000 rows."""
MOST_WORDS: Final = 4
"""Vectors of masked words that are used of one message."""
Target = Literal["labels", "classes", "numbers"]
Nature = Literal["derivative", "contribution", "category", "joint", "words", "gradient", "step", "ciphertext"]
READ: Final[Mapping[str, Mapping[str, Nature]]] = {
    linear.DERIVATIVE.kind: {"nu": "derivative", "curvature": "joint"},
    linear.WEIGHTED_DERIVATIVE.kind: {"nu": "derivative"},
    trees.DERIVATIVES.kind: {"gradient": "derivative", "curvature": "joint"},
    learners.RESPONSE.kind: {"gradient": "derivative", "curvature": "joint"},
    vfb2.THETA.kind: {"theta": "derivative"},
    linear.DIRECTION.kind: {"scores": "contribution"},
    learners.OUTPUTS.kind: {"columns": "contribution"},
    learners.EMBEDDING.kind: {"features": "contribution"},
    linear.SCORES.kind: {"scores": "contribution"},
    linear.LEVERAGES.kind: {"leverages": "contribution"},
    PARTIAL_SCORES.kind: {"scores": "contribution"},
    ACROSS_SCORES.kind: {"scores": "contribution"},
    trees.LEAVES.kind: {"leaves": "category"},
    trees.RELAY_LEAVES.kind: {"relay_leaves": "category"},
    trees.RELAYED.kind: {"leaves": "category"},
    trees.OFFER.kind: {"right": "category"},
    SIDES.kind: {"sides": "category"},
    trees.NODES.kind: {"nodes": "category"},
    trees.RELAY.kind: {"relay_leaves": "category"},
    linear.COMBINED_SCORES.kind: {"scores": "joint"},
    vfb2.TOTALS.kind: {"total": "joint"},
    vfb2.CHANCES.kind: {"chances": "joint"},
    JOINT_SCORES.kind: {"scores": "joint"},
    protected.MASKED.kind: {"words": "words"},
    protected.MASKED_PARTIAL_SCORES.kind: {"words": "words"},
    protected.HIDDEN_COLUMNS.kind: {"words": "words"},
    protected.HIDDEN_DERIVATIVE.kind: {"nu": "words", "pull": "step"},
    protected.HIDDEN_COEFFICIENTS.kind: {"words": "step"},
    protected.BLINDED_DERIVATIVE.kind: {"nu": "words", "pull": "step"},
    protected.HIDDEN_ROWS.kind: {"words": "words"},
    protected.SCORE_CORRECTIONS.kind: {"words": "words"},
    vfb2.MASKED_TOTALS.kind: {"sum": "words"},
    protected.WEIGHT_SHARE.kind: {"words": "gradient"},
    protected.ENCRYPTED_PRODUCTS.kind: {"places": "ciphertext"},
    protected.ENCRYPTED_INNER_PRODUCTS.kind: {"places": "ciphertext"},
    protected.ENCRYPTED_SHARE.kind: {"places": "ciphertext"},
    protected.ENCRYPTED_SCORES.kind: {"places": "ciphertext"},
    linear.COEFFICIENTS.kind: {"coefficients": "step", "intercept": "step"},
    learners.COMBINATION.kind: {"coefficients": "step", "intercept": "step"},
}
"""The fields of vertical messages that attacks read, and what they are.

A *derivative* is one of the loss with respect to each row's score. A *contribution* is a score of the sender's own
columns, a *category* a partition of rows by them. A *joint* number of each row depends on several parties' columns.
*Words* are numbers of each row behind a mask or in shares. A *gradient* has one number for each column of the receiver;
weights after a single step are one. *Steps* are numbers about the whole model. A *ciphertext* is one whose key the
receiver has.
"""


class Signal(NamedTuple):
    """One number per row that a participant received. Words are integers modulo 2⁶⁴."""

    kind: str
    sender: str
    nature: Nature
    values: Any
    output: int = 0
    """Which of several scores of a row it is about, where each class has one."""


class ShortRun(NamedTuple):
    """Messages of a few rounds, and final weights of parties with linear models."""

    messages: Sequence[Message]
    weights: Mapping[str, Array]


def known_weights(models: Mapping[str, Scorer], terms: VerticalTerms) -> dict[str, Array]:
    """Return the weights of linear models that their parties know, without the intercept."""
    hidden = terms.passive if terms.shares_weights else ()
    return {
        name: one.weights[: one.columns]
        for name, one in models.items()
        if isinstance(one, LinearModel) and name not in hidden
    }


def listening() -> Transcript:
    """Return a transcript that keeps the messages an audit needs."""
    return Transcript(True, MOST_KEPT)


@dataclass(frozen=True, eq=False)
class AuditInput:
    """Input of an audit: a vertical run with all parties' data, in one process.

    Attributes
    ----------
    messages
        Messages of the run, in the order of sending.
    columns
        Each party's encoded columns of the training rows.
    labels
        ±1, the index of each row's class, or numbers.
    groups
        One column for each sensitive attribute.
    active
        Parties that hold labels and groups; the server runs at the first.
    scores
        Scores of the final model.
    parts
        Each party's part of these scores.
    weights
        Final weights of linear models that their parties know.
    terms
        Public terms of the run.
    again
        Runs a few rounds again on some of the rows, and returns the messages and final weights; None if not tried.
    people
        Number of people who are left out of a repeated run, one at a time; half of them have each label.
    known
        Half of the rows, drawn by the audit, with answers that attackers may know.
    rows
        Places of the rows that are attacked, drawn by the audit.
    """

    messages: Sequence[Message]
    columns: Mapping[str, Matrix]
    labels: Array
    groups: pd.DataFrame
    active: Sequence[str]
    scores: Array
    parts: Mapping[str, Array]
    weights: Mapping[str, Array]
    terms: VerticalTerms
    again: Callable[[Booleans], ShortRun] | None = None
    people: int = 24
    known: Booleans = field(default_factory=lambda: np.zeros(0, dtype=bool))
    rows: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        transcript: Transcript,
        parties: Sequence[PartyColumns],
        labels: Array,
        sensitive: pd.DataFrame | None,
        models: Mapping[str, Scorer],
        terms: VerticalTerms,
    ) -> AuditInput:
        """Build the input of an audit from a finished run."""
        columns = {party.name: party.matrix for party in parties}
        return cls(
            transcript.messages or (),
            columns,
            labels,
            groups_frame(sensitive, len(labels)),
            [party.name for party in parties if party.active],
            joint_scores(models, columns),
            {name: models[name].predict(matrix) for name, matrix in columns.items()},
            known_weights(models, terms),
            terms,
        )

    @property
    def target(self) -> Target:
        """What the labels are."""
        if self.terms.job.classes:
            return "classes"
        return "labels" if self.terms.job.loss_function.classifies else "numbers"

    @property
    def epsilon(self) -> float | None:
        """ε of randomised response on labels, if the run has one."""
        asked = self.terms.job.label_privacy
        return None if asked is None else asked.epsilon

    @property
    def protection(self) -> str:
        """Protection level of the run."""
        return self.terms.job.protection.replace("auto", "none")

    @cached_property
    def left_out(self) -> dict[int, ShortRun]:
        """Short runs without one person, by the person's place; under −1, that with everybody."""
        asked = self.rows[~self.known[self.rows]]
        sides = [asked[self.labels[asked] * side > 0][: self.people // 2] for side in (1.0, -1.0)]
        if self.again is None:
            return {}
        places = np.arange(len(self.labels))
        return {int(one): self.again(places != one) for one in (-1, *np.concatenate(sides))}


@dataclass(frozen=True, eq=False)
class View:
    """What `members` have together: their own columns, and messages from others.

    The server runs at the first active party, which holds labels and groups: a member that is one of the two is both.
    """

    scene: AuditInput
    members: frozenset[str]

    @classmethod
    def of(cls, scene: AuditInput, names: Sequence[str]) -> View:
        members = frozenset(names)
        if members & {SERVER, scene.active[0]}:
            members |= {SERVER, scene.active[0]}
        return cls(scene, members)

    @property
    def name(self) -> str:
        """Name of the attackers in findings."""
        names = [name for name in self.scene.columns if name in self.members]
        return " + ".join(f"{name} (server)" if name == self.scene.active[0] else name for name in names)

    @property
    def knows_labels(self) -> bool:
        return bool(self.members & {SERVER, *self.scene.active})

    @property
    def others(self) -> list[str]:
        return [name for name in self.scene.columns if name not in self.members]

    @cached_property
    def own(self) -> Matrix:
        """The members' columns side by side."""
        return side_by_side([matrix for name, matrix in self.scene.columns.items() if name in self.members])

    @cached_property
    def mail(self) -> list[Message]:
        return [one for one in self.scene.messages if one.receiver in self.members and one.sender not in self.members]

    @cached_property
    def signals(self) -> list[Signal]:
        """Numbers by row in the order of arrival; what several members received counts once."""
        found: dict[bytes, Signal] = {}
        for one in (*self._by_row(), *self._thetas()):
            found.setdefault(hashlib.blake2b(one.values.tobytes(), digest_size=16).digest(), one)
        return list(found.values())

    def _by_row(self) -> Iterator[Signal]:
        rows, classes = len(self.scene.labels), len(self.scene.terms.job.classes)
        for message in self.mail:
            for name, nature in READ.get(message.kind, {}).items():
                values = message[name]
                if name == "right":
                    values = np.unpackbits(values)[:rows]
                if nature == "category":
                    values = values.reshape(rows, -1).T if len(values) == rows else values[:0]
                elif nature in ("derivative", "contribution") and values.shape == (classes * rows,):
                    # The numbers of all rows for one class, then those for the next.
                    values = values.reshape(classes, rows)
                elif nature == "words":
                    values = values.reshape(-1)[: values.size // rows * rows].reshape(-1, rows)[:MOST_WORDS]
                if nature not in ("gradient", "step", "ciphertext") and values.shape[-1:] == (rows,):
                    for output, one in enumerate(values.reshape(-1, rows)):
                        exact = one if nature == "words" else one.astype(np.float64)
                        yield Signal(message.kind, message.sender, nature, exact, output)

    def _thetas(self) -> Iterator[Signal]:
        """Yield ϑ of VFB², which arrives in batches: one number for each visited row of each pass."""
        asked: dict[tuple[str, int], Array] = {}
        passing: Array = np.zeros(len(self.scene.labels))
        for message in self.mail:
            if message.kind == vfb2.SCORE_REQUEST.kind:
                asked[message.sender, message.integer("request")] = message["rows"]
            elif message.kind == vfb2.THETA.kind:
                rows = asked.pop((message.sender, message.integer("request")), None)
                if rows is None:
                    continue
                visited = rows >= 0
                places = rows[visited].astype(np.int64)
                if passing[places].any():
                    yield Signal(vfb2.THETA.kind, message.sender, "derivative", passing)
                    passing = np.zeros_like(passing)
                passing[places] = message["theta"][visited]
        if passing.any():
            yield Signal(vfb2.THETA.kind, "", "derivative", passing)

    @cached_property
    def gradients(self) -> list[tuple[str, Array]]:
        """X_kᵀν before the first step as final weights imply it, and the owner of the columns.

        On shared weights with ``weights = "party"`` a party learns its weights at the end. After a single step, they
        are a known matrix times this gradient, if somebody tells the party the step's coefficients.
        """
        found: list[tuple[str, Array]] = []
        for name in sorted(self.members & self.scene.weights.keys()):
            told = [one for one in self.mail if one.receiver == name]
            steps = [one for one in told if one.kind == linear.COEFFICIENTS.kind and one["coefficients"].any()]
            if len(steps) == 1 and any(one.kind == protected.WEIGHT_SHARE.kind for one in told):
                step = one_step(self.scene.terms, self.scene.columns[name], steps[0]["coefficients"])
                implied = np.linalg.lstsq(step, self.scene.weights[name], rcond=None)[0]
                found.append((name, -np.asarray(implied, dtype=np.float64)))
        return found

    def of_nature(self, *natures: Nature) -> list[Signal]:
        return [one for one in self.signals if one.nature in natures]

    @property
    def derivatives(self) -> list[Array]:
        return [one.values for one in self.of_nature("derivative")]

    def about(self, other: str) -> dict[str, list[Signal]]:
        """Return numbers and partitions of rows by the columns of another party, by what they are and their kind.

        They are the party's own, sums over several parties, or joint ones.
        """
        found: dict[str, list[Signal]] = {}
        for one in self.of_nature("contribution", "category", "joint"):
            if one.sender == other:
                found.setdefault(one.kind, []).append(one)
            elif one.sender not in self.scene.columns:
                found.setdefault(one.kind if one.nature == "joint" else f"sum of {one.kind}", []).append(one)
        return found


def one_step(terms: VerticalTerms, columns: Matrix, coefficients: Array) -> Array:
    """Return the matrix by which a passive party's first step follows from its gradient on shared weights."""
    matrix, bands = ProductGrid(terms.n_rows).on_grid(columns), terms.job.settings(Subspace).bands_asked(terms)
    return np.asarray(np.tensordot(coefficients[:bands], inverse_by_bands(terms, matrix, bands), axes=1))
