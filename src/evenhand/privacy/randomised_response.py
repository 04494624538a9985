"""Draw randomised responses that stay the same when they are asked for again.

Averaging many independent answers about one label would reveal it. So an answer is a function of the label holder's
secret, the row's id, the label's name, the true value, and the ε of the draw. Another run, other rows beside it and a
resumed run give the same answer, and a changed label has its own. Without the secret, answers look random (keyed
BLAKE2b).

A run with a smaller ε than the draw's gets the same answers, lowered by a second response that depends on the first
answer and not on the label. Whatever is asked, all answers together are as private as the one draw.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    "Simulated: answers came from a seed that others may know, and who knows it can undo them. With a secret "
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
    values
        Names of the negative and the positive value. A draw belongs to the value, whichever a job calls positive.
    drawn_at
        ε of the draw for each question. A question that is not named is drawn at the ε that is asked for.
    """

    secret: bytes
    ids: Iterable[Hashable] | None = None
    simulated: bool = False
    label: str = ""
    values: tuple[str, str] | None = None
    drawn_at: Mapping[str, float] = field(default_factory=dict)

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
    base = ResponseMechanism(key.drawn_at.get(what, response.epsilon), response.values)
    first = _drawn(codes, base.keep, base, key, what)
    if base.epsilon == response.epsilon:
        return first
    return _drawn(first, base.keep_again(response), base, key, f"{what}\0to {response.epsilon!r}")


def _drawn(codes: Integers, keep: float, base: ResponseMechanism, key: AnswerKey, what: str) -> Integers:
    """Return each code with probability `keep`, and any other one otherwise."""
    drawn = _words(codes, base, key, what)
    # 64 bits each: whether to answer truthfully, and which other value to name otherwise.
    honest = drawn[:, 0] < np.uint64(min(int(keep * 2.0**64), 2**64 - 1))
    away = 1 + (drawn[:, 1] % np.uint64(base.values - 1)).astype(np.int64)
    return np.where(honest, codes, (codes + away) % base.values)


def _words(codes: Integers, base: ResponseMechanism, key: AnswerKey, what: str) -> NDArray[np.uint64]:
    """Return two words for each row that look random without the secret."""
    question = f"{key.label}\0{what}\0{base.epsilon!r}\0{base.values}\0".encode()
    head = blake2b(question, key=key.secret[:64], digest_size=16)
    named = what.split("\0")[0] == "label" and key.values is not None
    names: Sequence[object] = key.values if named and key.values is not None else range(base.values)
    ids = range(len(codes)) if key.ids is None else key.ids
    seen: Counter[str] = Counter()
    found = bytearray()
    for name, code in zip(map(str, ids), codes.tolist(), strict=True):
        # Two rows must never share a draw: the answer of one would reveal the other.
        again, one = seen[name], head.copy()
        seen[name] += 1
        one.update(f"{names[code]}\0{again}\0{name}".encode())
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
    drawn_at
        ε of the one draw that this run's answers follow from. It covers all runs with this label together.
    """

    epsilon: float
    groups: Mapping[str, float]
    by_accountant: Mapping[str, float]
    simulated: bool
    finish: bool
    drawn_at: float

    @classmethod
    def of(
        cls, label: ResponseMechanism, groups: Mapping[str, ResponseMechanism], key: AnswerKey, *, finish: bool
    ) -> LabelStatement:
        responses = [label, *groups.values()]
        found = {"closed form": sum(one.epsilon for one in responses)}
        with contextlib.suppress(MissingExtraError):
            found["PLD"] = accounted(responses)
        of_groups = {name: one.epsilon for name, one in groups.items()}
        at = key.drawn_at.get("label", label.epsilon)
        return cls(label.epsilon, of_groups, found, key.simulated, finish, at)

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
            f"response{groups}; together by accountant: {accountants}). It holds against a reader of all that the "
            f"label holder sends. {known} Answers were drawn once at ε = {self.drawn_at:.4g}, which covers all runs "
            "with this label, secret and at most this ε together. Runs with a larger ε add to it."
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
