"""Fixed point modulo 2⁶⁴ and masks: exact sums, stated errors, uniform looks."""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from evenhand.errors import InputError
from evenhand.privacy import compiled, fixed_point
from evenhand.privacy import masks as masking
from evenhand.privacy.sum_trees import two_trees

BITS = st.integers(0, 62)


def _integer(encoded: np.ndarray) -> list[int]:
    return [int(value) for value in encoded.view(np.int64)]


@given(bits=BITS, data=st.data())
def test_one_value_is_off_by_half_a_unit_at_most(bits: int, data: st.DataObject) -> None:
    limit = fixed_point.largest(1, bits)
    value = data.draw(st.floats(-limit, limit))
    (integer,) = _integer(fixed_point.encode([value], bits))
    assert abs(Fraction(integer, 2**bits) - Fraction(value)) <= Fraction(1, 2 ** (bits + 1))


@given(bits=BITS, parties=st.integers(1, 5000), data=st.data())
def test_masked_sums_are_exact_and_as_close_as_stated(bits: int, parties: int, data: st.DataObject) -> None:
    limit = fixed_point.largest(parties, bits)
    few = data.draw(st.lists(st.floats(-limit, limit), min_size=1, max_size=6))
    values = np.resize(np.array(few), parties)  # all at the limit included: nothing wraps round
    masks = masking.secret_masks(np.arange(4, dtype=np.uint64), 7, parties)
    encoded = fixed_point.encode(values, bits, parties)
    order = np.random.default_rng(parties).permutation(parties)
    total = (encoded + masks)[order].sum(keepdims=True) - masks.sum(keepdims=True)
    assert _integer(total) == [sum(_integer(encoded))]
    exact = sum(map(Fraction, values.tolist()))
    assert abs(Fraction(_integer(total)[0], 2**bits) - exact) <= Fraction(parties, 2 ** (bits + 1))


@given(bits=BITS, parties=st.integers(1, 5000), sign=st.sampled_from([-1.0, 1.0]))
def test_all_parties_at_the_limit_do_not_wrap_round(bits: int, parties: int, sign: float) -> None:
    values = np.full(parties, sign * fixed_point.largest(parties, bits))
    total = fixed_point.encode(values, bits, parties).sum(keepdims=True)
    assert sign * fixed_point.decode(total, bits)[0] == pytest.approx(parties * fixed_point.largest(parties, bits))


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1).map(np.array))
def test_multiples_of_the_unit_come_back_unchanged(units: np.ndarray) -> None:
    values = units / fixed_point.SCALE
    np.testing.assert_array_equal(fixed_point.decode(fixed_point.encode(values)), values)


def test_shapes_are_kept_and_strided_sums_decoded() -> None:
    values = np.arange(12.0).reshape(3, 4) - 5.5
    np.testing.assert_array_equal(fixed_point.decode(fixed_point.encode(values)[:, ::2]), values[:, ::2])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31)])
def test_what_does_not_fit_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="cannot be masked"):
        fixed_point.encode([0.0, value])


def test_the_limit_is_shared_among_the_parties() -> None:
    value = [0.75 * 2.0**31]
    fixed_point.encode(value, parties=1)
    with pytest.raises(InputError, match="2 parties"):
        fixed_point.encode(value, parties=2)


@pytest.mark.parametrize(("parties", "bits"), [(0, 32), (3, 63), (3, -1)])
def test_a_fixed_point_that_cannot_be_is_refused(parties: int, bits: int) -> None:
    with pytest.raises(InputError, match="fixed point"):
        fixed_point.largest(parties, bits)


@given(bits=BITS, data=st.data())
def test_compiled_and_array_versions_agree(bits: int, data: st.DataObject) -> None:
    limit = fixed_point.largest(1, bits)
    value = data.draw(st.floats(-limit, limit))
    encoded = fixed_point.encode([value], bits)
    assert compiled.encode_scalar(value, 2.0**bits) == encoded[0]
    assert compiled.decode_scalar(encoded[0], 2.0**bits) == fixed_point.decode(encoded, bits)[0]


def _secret(rows: int) -> np.ndarray:
    return masking.secret_masks(np.arange(4, dtype=np.uint64), 1, rows)


def _compiled(rows: int) -> np.ndarray:
    states = masking.mask_states(3, 2)
    return np.array([compiled.next_mask(states, 1) for _ in range(rows)], dtype=np.uint64)


@pytest.mark.parametrize("source", [_secret, _compiled])
@pytest.mark.parametrize("shift", [56, 28, 0])
def test_a_masked_value_looks_uniform(source: object, shift: int) -> None:
    masked = fixed_point.encode(np.full(50_000, -3.25)) + source(50_000)  # type: ignore[operator]
    counts = np.bincount(((masked >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
    # Fixed seeds: a mask that left a byte alone, or was of a narrower range, would be at p = 0.
    assert chisquare(counts).pvalue > 1e-3


def test_fresh_masks_fill_all_bits_and_never_repeat() -> None:
    masks = masking.fresh_masks(1000)
    assert masks.shape == (1000,)
    assert masks.flags.writeable
    assert len(np.unique(np.concatenate([masks, masking.fresh_masks(1000)]))) == 2000
    assert np.bitwise_or.reduce(masks) == np.uint64(2**64 - 1)


def test_the_stream_of_one_party_moves_on_alone() -> None:
    states = masking.mask_states(1, 3)
    before = states.copy()
    compiled.next_mask(states, 1)
    assert (states != before).tolist() == [False, True, False]


def test_splitmix64_gives_its_published_first_outputs() -> None:
    states = np.array([1234567], dtype=np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(compiled.next_mask(states, 0)) for _ in range(3)] == expected


@pytest.mark.parametrize("parties", [3, 4, 7, 16])
def test_algorithm_1_gives_the_score_to_the_root(parties: int) -> None:
    """Steps 2 to 5 for a block of rows, as parties would do it."""
    rows = 20
    scores = np.random.default_rng(parties).normal(scale=10.0, size=(parties, rows))
    masks = np.array([masking.fresh_masks(rows) for _ in range(parties)])
    masked = fixed_point.encode(scores, parties=parties) + masks
    root = parties // 2
    for tree, values in zip(two_trees(parties, root), (masked, masks), strict=True):
        for party in tree.order[:-1]:
            values[tree.parent[party]] += values[party]
    result = fixed_point.decode(masked[root] - masks[root])
    np.testing.assert_allclose(result, scores.sum(axis=0), rtol=0.0, atol=parties * 2.0**-33 + 1e-13)


@numba.njit
def _compiled_sum(
    scores: np.ndarray,
    states: np.ndarray,
    first: np.ndarray,
    first_order: np.ndarray,
    second: np.ndarray,
    order: np.ndarray,
) -> float:
    masked, masks = np.empty(len(scores), np.uint64), np.empty(len(scores), np.uint64)
    for party in range(len(scores)):
        masks[party] = compiled.next_mask(states, party)
        masked[party] = compiled.encode_scalar(scores[party], fixed_point.SCALE) + masks[party]
    for party in first_order[:-1]:
        masked[first[party]] += masked[party]
    for party in order[:-1]:
        masks[second[party]] += masks[party]
    return compiled.decode_scalar(masked[order[-1]] - masks[order[-1]], fixed_point.SCALE)


def test_the_helpers_work_inside_a_compiled_loop() -> None:
    first, second = two_trees(6, 2)
    states = masking.mask_states(0, 6)
    for scores in np.random.default_rng(0).normal(scale=100.0, size=(50, 6)):
        found = _compiled_sum(scores, states, first.parent, first.order, second.parent, second.order)
        assert found == fixed_point.decode(fixed_point.encode(scores, parties=6).sum(keepdims=True))[0]
