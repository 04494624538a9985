"""Masks cancel exactly, for any values, any order and whoever goes away; what is sent is uniform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, hypergeom

pytest.importorskip("nacl")
from evenhand.errors import InputError, ProtocolError, RunError
from evenhand.privacy import neighbours, shamir
from evenhand.privacy.fixed_point import decode, encode
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.neighbours import Company
from evenhand.privacy.pairwise import public_half
from evenhand.privacy.secret_sums import Member, left_over, wanted

SECRET = st.binary(min_size=32, max_size=32)


def members(count: int, company: Company | None = None) -> dict[int, Member]:
    secrets = {place: bytes([place + 1]) * 32 for place in range(count)}
    names = [str(place) for place in secrets]
    keys = {str(place): public_half(secret) for place, secret in secrets.items()}
    sessions = {place: Session(str(place), secret, keys, b"a run") for place, secret in secrets.items()}
    return {place: Member(place, session, names, "terms") for place, session in sessions.items()}


def summed(company: Company, values: np.ndarray, present: list[int], telling: list[int]) -> np.ndarray:
    """The sum of those whose words are there, opened by those who tell."""
    people = members(len(values))
    total = np.zeros(values.shape[1], dtype=np.uint64)
    for place in present:
        total += encode(values[place], parties=len(values)) + people[place].mask(company, values.shape[1])
    boxes = {
        place: dict(zip(company.neighbours(place), people[place].sealed(company), strict=True)) for place in present
    }
    told = {}
    for place in telling:
        near = [other for other in company.neighbours(place) if other in present]
        told[place] = people[place].opened(company, present, [boxes[other][place] for other in near])
    return decode(total - left_over(company, values.shape[1], present, told))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_masks_cancel_for_any_values_and_any_dropouts_below_the_threshold(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    company = Company(tuple(range(count)), data.draw(st.text(max_size=5)))
    present = data.draw(st.permutations(range(count)))[: data.draw(st.integers(company.least, count))]
    present = sorted(present)
    telling = data.draw(st.permutations(present))[: data.draw(st.integers(company.threshold, len(present)))]
    values = np.array(
        data.draw(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=count, max_size=count))
    )
    expected = decode(np.sum([encode(values[place], parties=count) for place in present], axis=0, dtype=np.uint64))
    assert summed(company, values, present, telling).tobytes() == expected.tobytes()


def test_a_sum_over_neighbours_only_cancels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "degree", lambda count: 4)
    company, values = Company(tuple(range(12)), "ring"), np.random.default_rng(0).normal(size=(12, 5))
    assert {len(company.neighbours(place)) for place in range(12)} == {4}
    present = [place for place in range(12) if place not in (3, 7)]
    telling = [place for place in present if place != 5]
    near = [len(set(company.holders(place)) & set(telling)) for place in present]
    if min(near) >= company.threshold:
        expected = decode(np.sum([encode(values[place], parties=12) for place in present], axis=0, dtype=np.uint64))
        assert summed(company, values, present, telling).tobytes() == expected.tobytes()
    else:
        with pytest.raises(RunError, match="too many participants have gone"):
            summed(company, values, present, telling)


def test_above_the_threshold_of_dropouts_there_is_a_clear_stop() -> None:
    company = Company((0, 1, 2, 3, 4), "five")
    values = np.ones((5, 2))
    with pytest.raises(RunError, match=r"2 of the 5 who hold shares .* are left, 3 are needed"):
        summed(company, values, [0, 1, 2, 3], [0, 1])
    with pytest.raises(ProtocolError, match="a sum over 2 of 5 is not opened"):
        summed(company, values, [0, 1], [0, 1])


@pytest.mark.parametrize("value", [0.0, 1.0, -123.456])
def test_a_masked_word_is_uniform_whatever_it_hides(value: float) -> None:
    company, person = Company((0, 1, 2), "uniform"), members(3)[0]
    words = encode(np.full(40_000, value), parties=3) + person.mask(company, 40_000)
    for shift in (0, 24, 56):
        counts = np.bincount(((words >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        assert chisquare(counts).pvalue > 1e-4


def test_every_exchange_has_other_masks() -> None:
    person = members(3)[0]
    one, other = (person.mask(Company((0, 1, 2), label), 100) for label in ("1", "2"))
    assert not (one == other).any()


def test_sealed_shares_that_were_changed_are_refused() -> None:
    company, people = Company((0, 1, 2), "sealed"), members(3)
    box = bytearray(people[1].sealed(company)[0])
    box[-1] ^= 1
    with pytest.raises(ProtocolError, match="changed under way"):
        people[0].opened(company, [0, 1], [bytes(box)])


def test_what_is_opened_says_nothing_of_those_whose_words_are_missing() -> None:
    """Of a client whose words came late, its own mask stays closed."""
    company = Company((0, 1, 2, 3), "late")
    for holder in (0, 1, 2):
        opened = list(wanted(company, holder, [0, 1, 2]))
        assert (3, 0) not in opened
        assert all(owner != 3 for owner, _ in opened)


# -- shares


@settings(max_examples=40, deadline=None)
@given(SECRET, SECRET, st.integers(1, 6), st.integers(0, 4), st.randoms(use_true_random=False))
def test_enough_shares_have_the_secret_back(
    secret: bytes, entropy: bytes, threshold: int, more: int, random: object
) -> None:
    places = list(range(1, threshold + more + 1))
    dealt = shamir.deal(secret, places, threshold, entropy)
    random.shuffle(places)  # type: ignore[attr-defined]
    assert shamir.join({place: dealt[place] for place in places[:threshold]}) == secret


def test_too_few_shares_fit_every_secret() -> None:
    """One share fewer than needed: for any other secret there is a polynomial through the same points."""
    dealt = shamir.deal(bytes(32), [1, 2, 3], 3, b"x" * 32)
    seen = {1: dealt[1], 2: dealt[2]}
    for other in (b"\1" * 32, b"\xff" * 32):
        # The line through the two seen shares and the other secret at zero gives a third share.
        points = {0: int.from_bytes(other, "big")} | {
            place: int.from_bytes(share, "big") for place, share in seen.items()
        }
        third = 0
        for place, value in points.items():
            factor = value
            for rest in points:
                if rest != place:
                    factor = factor * (3 - rest) * pow(place - rest, -1, shamir.PRIME) % shamir.PRIME
            third = (third + factor) % shamir.PRIME
        assert shamir.join({**seen, 3: third.to_bytes(33, "big")}) == other


def test_shares_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError):
        shamir.deal(bytes(32), [1, 2], 3, bytes(32))
    with pytest.raises(ProtocolError):
        shamir.join({1: b"\xff" * 33})


# -- neighbours


@pytest.mark.parametrize("count", [50, 100, 1000])
def test_neighbours_meet_their_bounds_and_no_fewer_would(count: int) -> None:
    each = neighbours.degree(count)
    assert each < count - 1

    def fails(k: int) -> bool:
        needed, bad = neighbours.majority(k + 1), int(neighbours.TELLING * count)
        gone = int(neighbours.GONE * count)
        breach = count * hypergeom.sf(needed - 1, count - 1, bad, k)
        loss = count * hypergeom.cdf(needed - 2, count - 1, count - 1 - gone, k)
        cut = count * (neighbours.TELLING + neighbours.GONE) ** (k // 2)
        return bool(breach > 2.0**-40 or loss > 2.0**-20 or cut > 2.0**-40)

    assert not fails(each)
    assert fails(each - 2)


@pytest.mark.parametrize("count", [2, 3, 10, 120])
def test_neighbours_are_mutual(count: int) -> None:
    company = Company(tuple(range(count)), "mutual")
    for place in range(count):
        assert all(place in company.neighbours(other) for other in company.neighbours(place))
        assert place not in company.neighbours(place)


def test_one_alone_has_no_sum_to_hide_in() -> None:
    with pytest.raises(ProtocolError, match="no sum to hide in"):
        Company((0,), "alone")
