"""Masks that two agree on: they cancel exactly, look uniform, and need the secret."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import decode, decode_wide, encode, encode_wide
from evenhand.privacy.pairwise import BLOCK, PairwiseMasks, new_secret, public_half, shared_seed, stream


def _agreed(names: list[str], context: bytes = b"run") -> dict[str, PairwiseMasks]:
    secrets = {name: new_secret() for name in names}
    public = {name: public_half(secret) for name, secret in secrets.items()}
    return {name: PairwiseMasks.agreed(name, secret, public, context) for name, secret in secrets.items()}


@given(
    values=st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=2, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_masks_cancel_exactly_for_any_values_and_order(values: list[list[float]], order: object) -> None:
    names = [f"p{place}" for place in range(len(values))]
    masks, q = _agreed(names), len(values)
    encoded = {name: encode(row, parties=q) for name, row in zip(names, values, strict=True)}
    shuffled = list(names)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    total = np.zeros(3, dtype=np.uint64)
    for name in shuffled:
        total = total + encoded[name] + masks[name].mask("round 1", 3)
    plain = np.sum(list(encoded.values()), axis=0, dtype=np.uint64)
    np.testing.assert_array_equal(total, plain)
    np.testing.assert_allclose(decode(total), np.sum(values, axis=0), rtol=0, atol=q * 2.0**-33 + 1e-9)


@pytest.mark.parametrize("shift", [56, 28, 0])
def test_a_masked_message_looks_uniform(shift: int) -> None:
    mine = _agreed(["a", "b", "c"])["b"]
    sent = encode(np.full(50_000, 0.125)) + mine.mask("round 7", 50_000)
    counts = np.bincount(((sent >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
    # Keys are fresh each time: a false alarm once in a million runs; a mask that left a byte alone is at p = 0.
    assert chisquare(counts).pvalue > 1e-6


def test_two_have_one_seed_and_others_another() -> None:
    one, two, three = new_secret(), new_secret(), new_secret()
    seed = shared_seed(one, public_half(two), b"run")
    assert seed == shared_seed(two, public_half(one), b"run")
    others = {shared_seed(one, public_half(three), b"run"), shared_seed(one, public_half(two), b"another")}
    assert seed not in others
    assert len(others) == 2


def test_labels_have_masks_of_their_own() -> None:
    seed = bytes(32)
    np.testing.assert_array_equal(stream(seed, "round 1", 50), stream(seed, "round 1", 80)[:50])
    assert not (stream(seed, "round 1", 50) == stream(seed, "round 2", 50)).any()


@pytest.mark.parametrize("size", [BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_masks_of_several_blocks_cancel_and_no_block_is_drawn_twice(size: int) -> None:
    masks = _agreed(["a", "b", "c"])
    drawn = {name: each.mask("round 1", size) for name, each in masks.items()}
    assert not np.sum(list(drawn.values()), axis=0, dtype=np.uint64).any()
    again = min(BLOCK, size - BLOCK)
    assert not (drawn["a"][:again] == drawn["a"][BLOCK : BLOCK + again]).any()


def test_a_key_that_would_give_everybody_the_same_secret_is_refused() -> None:
    with pytest.raises(ProtocolError, match="public key"):
        shared_seed(new_secret(), bytes(32), b"run")


@given(
    st.lists(st.floats(-1e12, 1e12) | st.floats(-1e-9, 1e-9), min_size=1, max_size=20),
    st.integers(20, 100),
)
def test_two_words_have_range_and_precision(values: list[float], parties: int) -> None:
    total = encode_wide(values, parties).sum(axis=1, dtype=np.uint64, keepdims=True)
    exact = float(np.sum(np.array(values, dtype=np.longdouble)))
    found = decode_wide(total, parties)[0]
    assert found == pytest.approx(exact, rel=1e-15, abs=len(values) * 2.0**-70 + 2.0**-53 * abs(exact))
