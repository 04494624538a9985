"""Draw randomised responses that stay the same when they are asked for again.

Averaging many independent answers about one label would reveal it. So an answer is a function of the label holder's
secret, the row's id, the label's name, ε and the true value. Another run, other rows beside it and a resumed run give
the same answer, and a changed label has its own. Without the secret, answers look random (keyed BLAKE2b).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Integers
from evenhand.constraints.responses import ResponseMechanism
from evenhand.errors import MissingExtraError
from evenhand.privacy.accounting import accounting_package

SECRET_BYTES: Final = 32
_GRID: Final = 1e-4
"""Of the privacy loss distribution: ε is good to as much, from above."""
_SIMULATED: Final = (
    "Simulated: answers came from a seed that others may know, and whoever knows it can take them back. With a secret "
    "of the label holder's own, the same run would have "
)


@dataclass(frozen=True)
class AnswerKey:
    """What answers are drawn from.

    Attributes
    ----------
    secret
        The label holder's secret.
    ids
        Ids of the rows, in order; None numbers them.
    simulated
        Whether others may know the secret, because it follows from the job's seed.
    label
        Name of the label. One draw for two labels would reveal whether they differ.
    """

    secret: bytes
    ids: Iterable[Hashable] | None = None
    simulated: bool = False
    label: str = ""

    @classmethod
    def from_seed(cls, seed: int, ids: Iterable[Hashable] | None = None) -> AnswerKey:
        """Return a key for simulations, which must be repeatable."""
        return cls(blake2b(str(seed).encode(), digest_size=SECRET_BYTES).digest(), ids, simulated=True)


def answers(codes: Integers, response: ResponseMechanism, key: AnswerKey, what: str) -> Integers:
    """Return the answers of all rows, as positions among the values.

    Parameters
    ----------
    codes
        The true value of each row, as a position.
    what
        The question: answers to different questions are independent.
    """
    drawn = _words(codes, response, key, what)
    # 64 bits each: whether to answer truthfully, and which other value to name otherwise.
    honest = drawn[:, 0] < np.uint64(int(response.keep * 2.0**64))
    away = 1 + (drawn[:, 1] % np.uint64(response.values - 1)).astype(np.int64)
    return np.where(honest, codes, (codes + away) % response.values)


def _words(codes: Integers, response: ResponseMechanism, key: AnswerKey, what: str) -> NDArray[np.uint64]:
    """Return two words for each row that look random without the secret."""
    question = f"{key.label}\0{what}\0{response.epsilon!r}\0{response.values}\0".encode()
    head = blake2b(question, key=key.secret[:64], digest_size=16)
    ids = range(len(codes)) if key.ids is None else key.ids
    seen: Counter[str] = Counter()
    found = bytearray()
    for name, code in zip(map(str, ids), codes.tolist(), strict=True):
        # Two rows must never share a draw: the answer of one would reveal the other.
        again, one = seen[name], head.copy()
        seen[name] += 1
        one.update(f"{code}\0{again}\0{name}".encode())
        found += one.digest()
    return np.frombuffer(bytes(found), dtype="<u8").astype(np.uint64).reshape(-1, 2)


@dataclass(frozen=True)
class LabelStatement:
    """The privacy of a person's label, and of groups if they are randomised too.

    Attributes
    ----------
    epsilon
        ε of the label.
    groups
        ε of each attribute's group; attributes without one are sent as they are.
    by_accountant
        ε of label and groups together: the sum, and dp-accounting's value if it is installed.
    simulated
        Whether answers came from a seed that others may know.
    finish
        Whether the label holder's own part of the model uses the true labels.
    """

    epsilon: float
    groups: Mapping[str, float]
    by_accountant: Mapping[str, float]
    simulated: bool
    finish: bool

    @classmethod
    def of(
        cls, label: ResponseMechanism, groups: Mapping[str, ResponseMechanism], *, simulated: bool, finish: bool
    ) -> LabelStatement:
        responses = [label, *groups.values()]
        found = {"closed form": sum(one.epsilon for one in responses)}
        with contextlib.suppress(MissingExtraError):
            found["PLD"] = accounted(responses)
        return cls(label.epsilon, {name: one.epsilon for name, one in groups.items()}, found, simulated, finish)

    @property
    def words(self) -> str:
        """The statement in words, with its assumptions."""
        accountants = ", ".join(f"{name} {epsilon:.4g}" for name, epsilon in self.by_accountant.items())
        groups = (
            "; of each group " + ", ".join(f"{name} {epsilon:.4g}" for name, epsilon in self.groups.items())
            if self.groups
            else "; groups are not covered"
        )
        known = (
            "The label holder's own part of the model was fitted to the true labels at the end and never leaves it: "
            "what it makes of scores is not covered."
            if self.finish
            else "The model follows from them, and so do its scores."
        )
        return (
            f"{_SIMULATED if self.simulated else ''}ε = {self.epsilon:.4g} for each person's label (randomised "
            f"response, one answer for all runs with this label, secret and ε{groups}; together by accountant: "
            f"{accountants}). It holds against whoever reads all that the label holder sends. {known} Runs with "
            "another ε add to it."
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "words": self.words}


def accounted(responses: Iterable[ResponseMechanism]) -> float:
    """Return ε at δ = 0 of several responses about one person, by dp-accounting's privacy loss distributions."""
    accounting = accounting_package()
    relation = accounting.NeighboringRelation.REPLACE_ONE
    accountant = accounting.pld.PLDAccountant(neighboring_relation=relation, value_discretization_interval=_GRID)
    for one in responses:
        accountant.compose(accounting.RandomizedResponseDpEvent(one.values * one.other, one.values))
    return float(accountant.get_epsilon(0.0))
