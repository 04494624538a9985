"""What one participant, or several that collude, received in a vertical run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.constraints.groups import groups_frame
from evenhand.models.base import Scorer
from evenhand.models.saved import joint_scores
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.vertical.messages import COMBINED_SCORES, DERIVATIVE, DIRECTION, PRODUCT, SCORES, WEIGHTED_DERIVATIVE
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.trees.messages import DERIVATIVES, LEAVES
from evenhand.vertical.vfb2.messages import SCORE_REQUEST, THETA, TOTALS

MOST_KEPT: Final = 2**25
"""Bytes of messages kept of each kind on each link: a hundred rounds of 40,000 rows."""
Nature = Literal["derivative", "contribution", "joint"]
FIELDS: Final[Mapping[tuple[str, str], Nature]] = {
    (DERIVATIVE.kind, "nu"): "derivative",
    (WEIGHTED_DERIVATIVE.kind, "nu"): "derivative",
    (DERIVATIVES.kind, "gradient"): "derivative",
    (DIRECTION.kind, "scores"): "contribution",
    (SCORES.kind, "scores"): "contribution",
    (COMBINED_SCORES.kind, "scores"): "joint",
    (TOTALS.kind, "total"): "joint",
}
"""Fields with one number per row, and what it is: a derivative of the loss, a score of the sender's own columns, or a
joint score.
"""

GRADIENTS: Final[Mapping[str, str]] = {PRODUCT.kind: "product"}
"""Kinds of messages that carry the gradient of a party's own weights instead of ν, and the field that holds it."""


class Signal(NamedTuple):
    """One number per row that a participant received."""

    kind: str
    sender: str
    nature: Nature
    values: Array


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
        ±1.
    groups
        One column for each sensitive attribute.
    active
        Parties that hold labels and groups; the server runs at the first.
    scores
        Scores of the final model, if they are attacked.
    epsilon
        ε of randomised response on labels, if the run has one.
    protection
        Protection level of the run.
    known
        Half of the rows, drawn by the audit, with answers that attackers may know.
    """

    messages: Sequence[Message]
    columns: Mapping[str, Matrix]
    labels: Array
    groups: pd.DataFrame
    active: Sequence[str]
    scores: Array | None = None
    epsilon: float | None = None
    protection: str = "none"
    known: Booleans = field(default_factory=lambda: np.zeros(0, dtype=bool))

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
            epsilon=None if terms.job.label_privacy is None else terms.job.label_privacy.epsilon,
            protection=terms.job.protection.replace("auto", "none"),
        )


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
        rows = len(self.scene.labels)
        for message in self.mail:
            for name, values in message.body.items():
                nature = FIELDS.get((message.kind, name))
                if nature is not None and values.shape[-1:] == (rows,):
                    for one in values.reshape(-1, rows):
                        yield Signal(message.kind, message.sender, nature, one.astype(np.float64))
            if message.kind == LEAVES.kind:
                for leaves in message["leaves"].T:
                    yield Signal(message.kind, message.sender, "contribution", leaves.astype(np.float64))

    def _thetas(self) -> Iterator[Signal]:
        """Yield ϑ of VFB², which arrives in batches: one number for each visited row of each pass."""
        asked: dict[tuple[str, int], Array] = {}
        passing: Array = np.zeros(len(self.scene.labels))
        for message in self.mail:
            if message.kind == SCORE_REQUEST.kind:
                asked[message.sender, message.integer("request")] = message["rows"]
            elif message.kind == THETA.kind:
                rows = asked.pop((message.sender, message.integer("request")), None)
                if rows is None:
                    continue
                visited = rows >= 0
                places = rows[visited].astype(np.int64)
                if passing[places].any():
                    yield Signal(THETA.kind, message.sender, "derivative", passing)
                    passing = np.zeros_like(passing)
                passing[places] = message["theta"][visited]
        if passing.any():
            yield Signal(THETA.kind, "", "derivative", passing)

    @cached_property
    def gradients(self) -> list[tuple[str, Array]]:
        """X_kᵀν as members received it instead of ν, and the owner of the columns."""
        return [(one.receiver, one[GRADIENTS[one.kind]]) for one in self.mail if one.kind in GRADIENTS]

    def of_nature(self, nature: Nature) -> list[Array]:
        return [one.values for one in self.signals if one.nature == nature]

    def sent_by(self, names: Sequence[str]) -> list[Signal]:
        """Return the scores of other parties' own columns."""
        return [one for one in self.signals if one.nature == "contribution" and one.sender in names]

    @property
    def sums(self) -> list[Signal]:
        """Sums of several parties' scores, as masks reveal them."""
        return [one for one in self.signals if one.nature == "contribution" and one.sender not in self.scene.columns]


def side_by_side(tables: Sequence[Matrix]) -> Matrix:
    if any(sp.issparse(table) for table in tables):
        return sp.hstack([sp.csr_matrix(table) for table in tables], format="csr")
    return np.hstack(tables) if tables else np.zeros((0, 0))
