"""Attacks on `encrypted`: noise of answers, ciphertexts of the attacker's choice, replays, hostile bytes.

Each attack has a control on which it succeeds: the same answer without the part that protects it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp
from support.lattice import Asked, ask
from support.problems import deal, small
from vertical.contract import CLOCK, make_job

from evenhand.errors import ProtocolError, RunError
from evenhand.privacy import lattice, rings
from evenhand.privacy.lattice import ProductPacking
from evenhand.privacy.rings import DEGREE, MODULUS, PRIMES
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.protected.dealing import DealtServer
from evenhand.vertical.protected.encrypting import EncryptedServer
from evenhand.vertical.protected.sharing_server import SharedServer
from evenhand_reproductions.in_memory import Holdings

ROWS = 1000
CHANCE = 0.2
"""Of a correlation over 1,000 rows. Chance exceeds it once in 10⁹ tries."""
RUNS = 5
PROBLEM = small(2, rows=120)
Attack = Callable[[Any], float]
Control = Callable[[pytest.MonkeyPatch], None]


def column(run: int) -> Any:
    """One column of 17 binary places, as words."""
    return np.rint(np.random.default_rng(run).standard_normal((ROWS, 1)) * 2**17).astype(np.int64).view(np.uint64)


def no_flood(size: int, _: Any) -> Any:
    """Masks of the plaintext only: uniform multiples of q/t."""
    return lattice.scaled_up(lattice.fresh(size)[None])[0]


def quotient(product: Any, factor: Any) -> Any:
    """Divide real polynomials modulo X^DEGREE + 1."""
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    found = np.fft.fft(product * turn) / np.fft.fft(factor * turn)
    return (np.fft.ifft(found) / turn).real


def below_delta(phase: Any) -> Any:
    """Return what is left of a phase without the nearest multiple of q/t, as floats."""
    words = (2 * phase * 2**64 + MODULUS) // (2 * MODULUS)
    return (phase - (2 * MODULUS * words + 2**64) // 2**65).astype(float)


def from_noise(matrix: Any) -> float:
    """Divide the noise of an honest answer by the errors of the question, which the server knows."""
    packing, vector = ProductPacking.of(ROWS, 1), lattice.fresh(1)
    asked = ask(packing, vector)
    c0, c1, _ = asked.answer(matrix)
    found = quotient(below_delta(asked.phase(c0, c1)), asked.errors(vector).astype(float))
    return _correlation(found[:ROWS], matrix)


def from_chosen_noise(matrix: Any) -> float:
    """Add 2²⁰ to a coefficient of the question: it decrypts to the same, and the noise of its answer is 2²⁰ times X."""
    asked = ask(ProductPacking.of(ROWS, 1), lattice.fresh(1), [2**20])
    c0, c1, _ = asked.answer(matrix)
    return _correlation(below_delta(asked.phase(c0, c1))[:ROWS], matrix)


def from_second_half(matrix: Any) -> float:
    """Divide c₁ by the question's a."""
    asked = ask(ProductPacking.of(ROWS, 1), lattice.fresh(1))
    _, c1, _ = asked.answer(matrix)
    return _correlation(_divided(c1, asked.question.vectors[0]), matrix)


def from_zero_key(matrix: Any) -> float:
    """Send zeros as b' of the public key. Its a' cannot be chosen."""
    asked = ask(ProductPacking.of(ROWS, 1), lattice.fresh(1))
    public = asked.question.public
    asked = Asked(
        asked.packing, asked.key, lattice.EncryptedQuestion(asked.question.vectors, (public[0], 0 * public[1]))
    )
    _, c1, _ = asked.answer(matrix)
    return _correlation(_divided(c1, asked.question.vectors[0]), matrix)


def _divided(c1: Any, a: Any) -> Any:
    """Return the first coefficients of c₁ / a modulo the first prime."""
    prime = PRIMES[0]
    inverse = np.array([pow(int(one), -1, prime) if one else 0 for one in a[0, 0]], dtype=np.uint64)
    found = np.zeros((1, len(PRIMES), DEGREE), dtype=np.uint32)
    found[0, 0] = c1[0, 0] * inverse % prime
    line = rings.transform_back(found)[0, 0].astype(np.int64)[:ROWS]
    return np.where(line > prime // 2, line - prime, line).astype(float)


def _correlation(found: Any, matrix: Any) -> float:
    return float(np.corrcoef(found, matrix[:, 0].view(np.int64).astype(float))[0, 1])


def without_flood(patch: pytest.MonkeyPatch) -> None:
    """Hide the product, and not what is below q/t."""
    patch.setattr(lattice, "_mask", no_flood)


def without_cover(patch: pytest.MonkeyPatch) -> None:
    """Leave out w and e''."""
    for name in ("_ternary", "_errors"):
        patch.setattr(lattice, name, lambda count, draw=None: np.zeros((count, 4, DEGREE), dtype=np.uint32))


@pytest.mark.parametrize(
    ("attack", "control"),
    [
        (from_noise, without_flood),
        (from_chosen_noise, without_flood),
        (from_second_half, without_cover),
        (from_zero_key, without_cover),
    ],
)
def test_an_answer_does_not_reveal_the_column(
    attack: Callable[[Any], float], control: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """The control recovers the column from one answer. With the cover, each of five runs is at chance."""
    with pytest.MonkeyPatch.context() as patch:
        control(patch)
        assert attack(column(0)) > 0.9
    for run in range(RUNS):
        assert abs(attack(column(run))) < CHANCE


@pytest.mark.parametrize("more", [None, [2**30] * DEGREE])
def test_covered_noise_is_the_same_for_any_column(more: Any) -> None:
    """Two samples of what is left below q/t: columns of zeros, and columns of 2²⁰, under honest and chosen noise."""
    found = []
    for value in (0, 2**20):
        asked = ask(ProductPacking.of(DEGREE, 1), lattice.fresh(1), more)
        c0, c1, share = asked.answer(np.full((DEGREE, 1), value, dtype=np.int64).view(np.uint64))
        found.append((below_delta(asked.phase(c0, c1)), c1[0, 0].astype(float), share.astype(float)))
    for one, other in zip(*found, strict=True):
        assert ks_2samp(one, other).pvalue > 1e-10
    scale = MODULUS / 2**64
    counts = np.bincount(np.floor((found[1][0] / scale + 0.5) * 64).astype(int).clip(0, 63), minlength=64)
    assert chisquare(counts).pvalue > 1e-10


def test_without_the_flood_the_same_two_samples_differ() -> None:
    found = []
    for value in (0, 2**20):
        asked = ask(ProductPacking.of(DEGREE, 1), lattice.fresh(1))
        with pytest.MonkeyPatch.context() as patch:
            without_flood(patch)
            c0, c1, _ = asked.answer(np.full((DEGREE, 1), value, dtype=np.int64).view(np.uint64))
        found.append(below_delta(asked.phase(c0, c1)))
    assert ks_2samp(*found).pvalue < 1e-10


def roles(level: str = "encrypted") -> dict[str, Role]:
    job = make_job("subspace", protection=level, allow_experimental=True, max_rounds=3, tol=0.0)
    held = Holdings.of(job, deal(PROBLEM, [[0], [1, 2], [3]]), PROBLEM.labels, PROBLEM.sensitive).with_keys()
    server, others = held.roles()
    return {role.name: role for role in [server, *others]}


def until(made: dict[str, Role], kind: str, receiver: str, *, after: bool) -> Message:
    """Run until a message of this kind reaches its receiver, and return it; `after` it was handled, or before."""
    queue = [message for role in made.values() for message in role.start()]
    while queue:
        message = queue.pop(0)
        found = (message.kind, message.receiver) == (kind, receiver)
        if found and not after:
            return message
        queue += made[message.receiver].receive(message)
        if found:
            return message
    raise AssertionError(kind)


def test_a_question_is_answered_once_and_no_other_while_it_is_open() -> None:
    made = roles()
    asked = until(made, "encrypted-words", "p1", after=True)
    for number in (asked["number"], asked["number"] + 1):
        with pytest.raises(ProtocolError, match="answers no question"):
            made["p1"].receive(Message("server", "p1", asked.kind, dict(asked.body) | {"number": np.asarray(number)}))


def test_a_derivative_is_answered_once_and_only_under_the_number_of_its_question() -> None:
    made = roles()
    told = until(made, "blinded-derivative", "p1", after=False)
    other = dict(told.body) | {"number": np.asarray(told.integer("number") + 1)}
    with pytest.raises(ProtocolError, match="has answered no question"):
        made["p1"].receive(Message("server", "p1", told.kind, other))
    made["p1"].receive(told)
    with pytest.raises(ProtocolError, match="has answered number 1; number 1 is refused"):
        made["p1"].receive(told)


@pytest.mark.parametrize(
    ("kind", "receiver"),
    [
        ("encrypted-words", "p1"),
        ("encrypted-products", "server"),
        ("blinded-derivative", "p1"),
        ("encrypted-inner-products", "server"),
    ],
)
def test_a_ciphertext_that_is_none_is_refused_and_changes_nothing(kind: str, receiver: str) -> None:
    made = roles()
    message = until(made, kind, receiver, after=False)
    given = message["polynomials"]
    large = given.copy()
    large[0, 1, 3] = -1
    before = str(made[receiver].snapshot())
    for wrong in (large, given[:-1], np.concatenate([given, given])):
        with pytest.raises(ProtocolError, match="refused"):
            made[receiver].receive(Message(message.sender, receiver, kind, dict(message.body) | {"polynomials": wrong}))
        assert str(made[receiver].snapshot()) == before
    made[receiver].receive(message)


def test_no_ciphertext_or_cover_comes_twice_over_resumed_runs() -> None:
    """Runs taken up from one checkpoint ask about other words under other keys, and cover answers anew."""
    taken: list[dict[str, Any]] = []
    whole = InProcess(list(roles().values()), CLOCK, Transcript(keep_messages=True), lambda _: taken.append(save()))

    def save() -> dict[str, Any]:
        return whole.snapshot()

    whole.run()
    runs = [whole]
    for _ in range(2):
        again = InProcess(list(roles().values()), CLOCK, Transcript(keep_messages=True))
        again.restore(taken[0])
        again.run()
        runs.append(again)
    seen: set[bytes] = set()
    for one in runs:
        own = {line for message in one.transcript.messages or [] for line in _random_lines(message, _tag(one))}
        assert len(own) > 50
        assert not own & seen
        seen |= own


def _tag(runtime: InProcess) -> int:
    role: Any = runtime.mailboxes["p1"].role
    return int(role.inner._tag)


def _random_lines(message: Message, tag: int) -> list[bytes]:
    """Return each polynomial and each vector of a message, unless another attempt wrote it."""
    if "polynomials" not in message.body or int(message.body.get("session", tag)) != tag:
        return []
    names = ("key", "seed", "nu", "pull", "shares", "places")
    vectors = [message[name].tobytes() for name in names if name in message.body and message[name].size]
    return [*(one.tobytes() for one in message["polynomials"]), *vectors]


@pytest.mark.parametrize(("level", "kind"), [("encrypted", EncryptedServer), ("dealer", DealtServer)])
def test_a_server_that_sends_a_share_of_its_choice_reads_a_column(
    level: str, kind: type[SharedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not promised: nothing proves that the server's share of a direction is that of the protocol."""
    found: list[Any] = []
    told, opened = kind.told, SharedServer.open

    def lie(self: SharedServer, name: str, ask: Any, slope: Any, new: Any) -> Message:
        chosen = new.copy()
        if name == "p1" and len(new):
            chosen[0, 0] += np.uint64(1 << 36)
        return told(self, name, ask, slope, chosen)

    def read(self: SharedServer) -> Any:
        if self._sum is not None and self.crossed_all:
            words = self._sum["words"].view(np.uint64) + self._words
            found.append(words[: self.grid.rows].view(np.int64) / 2.0 ** (36 + self.grid.column_bits))
            raise RunError("it has what it wanted")
        return opened(self)

    monkeypatch.setattr(kind, "told", lie)
    monkeypatch.setattr(SharedServer, "open", read)
    with pytest.raises(RunError, match="it has what it wanted"):
        InProcess(list(roles(level).values()), CLOCK).run()
    np.testing.assert_allclose(found[0], PROBLEM.matrix[:, 1], atol=1e-3)
