"""State that comes back is not a second chance: every attempt at a run has new keys, and with them new masks."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare
from support.contracts import assert_goes_on_from_any_checkpoint
from support.problems import deal, small

from evenhand.errors import ProtocolError, RunError
from evenhand.privacy.key_exchange import Attempt, KeyParty, KeyServer, Session
from evenhand.privacy.neighbours import Company
from evenhand.privacy.pairwise import stream
from evenhand.privacy.secret_sums import Member
from evenhand.protocol.identity import Identity, make_identities
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER, Role
from evenhand.runtime.identityfiles import AttemptFile
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.vertical.messages import DERIVATIVE
from evenhand.vertical.protected.triples import PartySeed, ServerSeed
from evenhand_reproductions.in_memory import Holdings

NAMES = ("a", "b", "c")
PROBLEM = small(seed=4, rows=80)


def make_roles(held: Holdings) -> dict[str, Role]:
    server, others = held.roles()
    return {role.name: role for role in [server, *others]}


def hold() -> Holdings:
    job = Job(solver="subspace", protection="masked", max_rounds=5, tol=0.0)
    return Holdings.of(job, deal(PROBLEM, [[0], [1, 2], [3]]), PROBLEM.labels, PROBLEM.sensitive)


def test_a_party_that_is_resumed_with_another_question_masks_anew() -> None:
    """The same round is asked again after a restore: the difference of both answers is uniform, not the party's own."""
    first, again = make_roles(hold())["p1"], make_roles(hold())["p1"]
    first.start()
    kept, nu = first.snapshot(), -PROBLEM.labels / (2 * len(PROBLEM.labels))
    (one,) = first.receive(DERIVATIVE.message(SERVER, "p1", round=1, last=0, nu=nu, curvature=np.zeros(0)))
    again.restore(kept)
    (two,) = again.receive(
        DERIVATIVE.message(SERVER, "p1", round=1, last=0, nu=-nu[::-1].copy(), curvature=np.zeros(0))
    )
    difference = one["words"].view(np.uint64) - two["words"].view(np.uint64)
    assert chisquare(np.bincount(difference.view(np.uint8) >> 4, minlength=16)).pvalue > 1e-6
    assert one.integer("session") != two.integer("session")


def test_no_checkpoint_holds_a_secret_of_the_session() -> None:
    held = hold().with_keys()
    roles = make_roles(held)
    runtime = InProcess(list(roles.values()))
    runtime.run()
    for own in held.parties.values():
        assert own.session is not None
        seeds = [own.session.seed(peer, f"sums {held.terms.digest}") for peer in own.session.peers]
        kept = [np.asarray(value).tobytes() for state in runtime.snapshot().values() for value in state.values()]
        assert not any(seed in value for seed in seeds for value in kept)


def test_a_resumed_run_has_other_masks_and_the_same_model() -> None:
    # Roles are made anew for each resume, with keys that are agreed on anew.
    assert_goes_on_from_any_checkpoint(lambda: make_roles(hold()), VirtualClock(latency=1e-6))


def test_a_message_of_an_attempt_that_is_over_is_refused() -> None:
    old, new = make_roles(hold()), make_roles(hold())
    for roles in (old, new):
        roles["p1"].start()
    nu = -PROBLEM.labels / (2 * len(PROBLEM.labels))
    (late,) = old["p1"].receive(DERIVATIVE.message(SERVER, "p1", round=1, last=0, nu=nu, curvature=np.zeros(0)))
    new[SERVER].start()
    with pytest.raises(ProtocolError, match="keys of another attempt"):
        new[SERVER].receive(late)


def test_attempts_only_rise_and_are_on_disk_before_anything_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "attempts.json"
    assert [AttemptFile(path).begin("bank") for _ in range(3)] == [1, 2, 3]
    AttemptFile(path).record({"shop": 4})
    assert AttemptFile(path).numbers == {"bank": 3, "shop": 4}
    path.write_text('{"bank": "x"}')
    with pytest.raises(RunError, match="is damaged"):
        AttemptFile(path)


def agree(identities: dict[str, Identity], numbers: dict[str, int]) -> dict[str, Session]:
    """Begin a new attempt: everybody's number rises, and keys are agreed on."""
    for name in numbers:
        numbers[name] += 1
    server = KeyServer(Attempt(identities[SERVER], "run", numbers[SERVER]), NAMES, "terms")
    parties = {name: KeyParty(Attempt(identities[name], "run", numbers[name]), NAMES, "terms") for name in NAMES}
    for message in [one for party in parties.values() for key in party.start() for one in server.receive(key)]:
        parties[message.receiver].receive(message)
    return {name: party.session for name, party in parties.items()}


def words_of_a_dealer(session: Session, peer: str, number: int) -> list[bytes]:
    """Return the random words of one exchange with a dealer, of its checks, its audits, and of scoring rows."""
    party = PartySeed(session.seed(peer, "triples terms"), 2, 3, 2)
    server = ServerSeed(session.seed(peer, "triples of the server"), 3, 2)
    scores = session.seed(peer, f"scores {number} terms")
    found = [
        *(party.shares(number), party.slope(number), party.directions(number), party.scores(number)),
        *(party.products(number, 3), party.weights(number), *party.checks(number)),
        *(server.nu(number), server.pull(number, 4), server.factors(number, 4), server.shares("a", 2, number)),
        *(stream(scores, label, 4) for label in ("columns", "scores", "weights a")),
        stream(session.secret(f"checks {number}"), "sketch", 2),
    ]
    return [one.tobytes() for one in found]


def words_of_encryption(session: Session, number: int) -> list[bytes]:
    """Return the random words, keys and covers of one encrypted exchange."""
    server, party = session.secret("products terms"), session.secret("covers terms")
    labels = [(server, f"words 0 {number} a"), (server, f"key words {number} a"), (server, f"key weights {number} a")]
    labels += [(party, f"words {number} 0"), (party, f"pull {number}"), (party, f"weights {number} 0")]
    return [stream(secret, label, 4).tobytes() for secret, label in labels]


def test_no_mask_and_no_box_repeats_over_a_thousand_schedules_of_crashes() -> None:
    """Each schedule runs a few rounds, crashes, goes back to a random checkpoint, and begins a new attempt."""
    rng, identities = random.Random(0), make_identities([SERVER, *NAMES])
    numbers = dict.fromkeys((SERVER, *NAMES), 0)
    masks: set[bytes] = set()
    boxes: set[bytes] = set()
    drawn = sealed = rounds_again = 0
    for _ in range(1000):
        sessions = agree(identities, numbers)
        # The state that came back: rounds and numbers of messages begin where some checkpoint left them.
        start = rng.randrange(3)
        for number in range(start, start + rng.randrange(1, 3)):
            name = rng.choice(NAMES)
            peer = rng.choice([one for one in NAMES if one != name])
            company = Company((0, 1, 2), f"terms {number}")
            member = Member(NAMES.index(name), sessions[name], NAMES, "terms")
            for mask in (
                sessions[name].masks("sums terms", NAMES).mask(f"direction {number}", 4).tobytes(),
                member.mask(company, 4).tobytes(),
                sessions[name].secret(f"vfb2 {number}"),
                *words_of_a_dealer(sessions[name], peer, number),
                *words_of_encryption(sessions[name], number),
            ):
                masks.add(mask)
                drawn += 1
            for box in (sessions[name].seal(peer, number, b"the same content"), *member.sealed(company)):
                boxes.add(box)
                sealed += 1
            rounds_again += 1
    assert len(masks) == drawn == 25 * rounds_again
    assert len(boxes) == sealed
    assert set(numbers.values()) == {1000}
