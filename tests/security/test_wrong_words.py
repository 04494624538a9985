"""Wrong words of a party or of the dealer end the run: sketches modulo 2⁶⁴ find every error, also 2⁶³."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from vertical.contract import CLOCK

from evenhand.errors import ProtocolError
from evenhand.privacy.key_exchange import agree_here
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.protected.checking import CHECKS, Sketch
from evenhand.vertical.protected.dealt_scores import ScoreDealer
from evenhand_reproductions.in_memory import Holdings

pytest.importorskip("nacl")
ROWS = 120
LIES = (1, 2**30 + 2**12, 2**49, 2**63)


def roles() -> dict[str, Role]:
    rng = np.random.default_rng(3)
    parties = [
        PartyColumns(f"p{place}", rng.standard_normal((ROWS, (2, 8, 3)[place])), place == 0) for place in range(3)
    ]
    labels = np.where(sum(one.matrix[:, 0] for one in parties) + rng.logistic(size=ROWS) > 0, 1.0, -1.0)
    job = Job(solver="subspace", protection="dealer", max_rounds=8, tol=0.0)
    server, others = Holdings.of(job, parties, labels).roles()
    return {role.name: role for role in [server, *others]}


class Lying:
    """Adds a lie to some words of a field, in the first message of its kind that has any.

    A lie of 2⁶³ in a factor is no error where the other factor is even. So several words are wrong there, each in
    another product: all other factors are even with a probability below 2⁻³⁰.
    """

    def __init__(self, sender: str, kind: str, field: str, lie: int, places: Sequence[int] = (0,)) -> None:
        self.what, self.lie, self.places, self.told = (sender, kind, field), np.uint64(lie), list(places), False

    def __call__(self, message: Message) -> Message:
        sender, kind, field = self.what
        if (message.sender, message.kind) != (sender, kind) or self.told or not message[field].size:
            return message
        self.told = True
        words = message[field].copy()
        words.view(np.uint64).reshape(-1)[self.places] += self.lie
        return Message(message.sender, message.receiver, message.kind, {**message.body, field: words})


def run(lie: Lying) -> None:
    made = roles()
    for role in made.values():
        _meddle(role, lie)
    InProcess(list(made.values()), CLOCK).run()
    assert lie.told


def _meddle(role: Role, lie: Lying) -> None:
    start, receive = role.start, role.receive

    def changed(sent: Iterable[Message]) -> list[Message]:
        return [lie(one) for one in sent]

    role.start = lambda: changed(start())  # type: ignore[method-assign]
    role.receive = lambda message: changed(receive(message))  # type: ignore[method-assign]


DIAGONAL = [place * (CHECKS + 1) for place in range(8)]
FIELDS = [
    ("dealer", "corrections", "scores", [0]),
    ("dealer", "corrections", "checks", [0]),
    ("dealer", "corrections", "checks", [-1]),
    ("dealer", "corrections", "tags", DIAGONAL),
    ("p1", "masked", "words", [0]),
    ("p1", "masked", "words", [-1]),
    ("p1", "hidden-shares", "tags", DIAGONAL),
    ("p1", "hidden-shares", "words", list(range(8, 24))),
    ("p1", "hidden-columns", "words", [place * (ROWS + 1) for place in range(8)]),
]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("sender", "kind", "field", "places"), FIELDS)
def test_a_wrong_word_ends_the_run_and_names_who_may_have_sent_it(
    sender: str, kind: str, field: str, places: list[int], lie: int
) -> None:
    with pytest.raises(ProtocolError, match="do not fit") as caught:
        run(Lying(sender, kind, field, lie, places))
    assert sender in str(caught.value)


def test_without_a_lie_nothing_is_refused() -> None:
    run(Lying("p1", "hidden-columns", "words", 0))


@pytest.mark.parametrize("lie", LIES)
def test_a_sketch_misses_no_error_in_a_thousand(lie: int) -> None:
    """A miss has a probability of 2⁻⁴¹; one factor modulo 2⁶⁴ would miss every second error of 2⁶³."""
    error = np.zeros((1, 70), dtype=np.uint64)
    error[0, 5] = lie
    for number in range(1000):
        assert Sketch(bytes(32), f"{number}", 70)(error).any()


def test_a_sketch_is_a_random_matrix_of_bits_times_words() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, (3, 33000), dtype=np.uint64)
    sketch = Sketch(b"k" * 32, "x", 33000)
    bits = np.unpackbits(sketch._bits, axis=1)[:, :33000].astype(np.uint64)
    assert bits.shape[0] == CHECKS
    assert abs(bits.mean() - 0.5) < 0.01
    np.testing.assert_array_equal(sketch(words), np.matmul(words, bits.T))


def test_tags_are_answered_once_in_an_attempt() -> None:
    """Two sketches behind the same random words differ by sums of the party's columns over subsets of rows."""
    made, first = roles(), dict[str, Any]()
    queue = [message for role in made.values() for message in role.start()]
    while queue:
        message = queue.pop(0)
        if (message.kind, message.receiver) == ("hidden-derivative", "p1"):
            if first:
                break
            first = {"tags": message["tags"], "checks": np.zeros(32, dtype=np.uint8)}
        queue += made[message.receiver].receive(message)
    with pytest.raises(ProtocolError, match="has answered tags of this attempt"):
        made["p1"].receive(Message("server", "p1", message.kind, {**message.body, **first}))
    made["p1"].receive(message)


@pytest.mark.parametrize("columns", [-1, 2**40])
def test_the_dealer_refuses_numbers_of_columns_that_no_party_has(columns: int) -> None:
    with pytest.raises(ProtocolError, match="columns; the message is refused"):
        roles()["dealer"].receive(Message("p1", "dealer", "joining", {"columns": np.asarray(columns)}))


@pytest.mark.parametrize(("columns", "rows"), [(-1, 5), (2**40, 5), (8, 2**40)])
def test_the_dealer_refuses_to_score_what_no_memory_holds(columns: int, rows: int) -> None:
    dealer = ScoreDealer("dealer", ("p1",), agree_here(["p1", "dealer"], "test")["dealer"], "test")
    body = {"columns": np.asarray(columns), "rows": np.asarray(rows)}
    with pytest.raises(ProtocolError, match="columns; the message is refused"):
        dealer.receive(Message("p1", "dealer", "score-triple", body))
