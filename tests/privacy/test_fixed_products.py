"""Shares modulo 2⁶⁴: they reconstruct, each alone is uniform, and cuts are off by a unit at most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from evenhand.errors import RunError
from evenhand.models.linear import LinearModel
from evenhand.models.saved import joined_model
from evenhand.models.weight_share import split_weights
from evenhand.privacy.fixed_point import decode, encode
from evenhand.privacy.fixed_products import DIRECTION_BITS, FINAL_BITS, cut, limb_factors, weight_share
from evenhand.privacy.pairwise import stream

pytest.importorskip("nacl")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-(2.0**10), 2.0**10), min_size=1, max_size=5), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_cut_shares_add_up_to_the_cut_value(values: list[float], places: int, seed: int) -> None:
    words = encode(values, 30)
    own = stream(seed.to_bytes(32, "little"), "own", len(words))
    found = cut(own, places, first=True) + cut(words - own, places, first=False)
    # A cut goes wrong with probability 2⁻²³ at this size; the seeds are drawn by hypothesis, so exclude these.
    right = (own >= np.uint64(2**41)) & (own < np.uint64(2**64 - 2**41))
    off = found.view(np.int64) - (words.view(np.int64) >> places)
    assert (np.abs(off)[right] <= 1).all()


@pytest.mark.parametrize("seed", range(5))
def test_final_weights_are_the_sum_of_directions_whoever_holds_which_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    directions, factors = rng.normal(size=(12, 7)), rng.normal(size=12)
    words = encode(directions, DIRECTION_BITS)
    own = stream(bytes([seed]) * 32, "own", words.size).reshape(words.shape)
    limbs = limb_factors(factors)
    first, second = (np.matmul(limbs, one) for one in (own, words - own))
    shares = weight_share(first, first=True) + weight_share(second, first=False)
    np.testing.assert_allclose(decode(shares, FINAL_BITS), factors @ directions, atol=1e-6)


def test_one_share_of_weights_is_uniform_whatever_the_weights_are() -> None:
    """A two-sample test with fixed words: the shares of two very different models have the same distribution."""
    rng = np.random.default_rng(0)
    shares = []
    for number, weights in enumerate((rng.normal(size=4000), 100.0 + np.zeros(4000))):
        words = encode(weights, FINAL_BITS) - stream(bytes([number]) * 32, "own", 4000)
        shares.append(words.astype(np.float64))
    assert ks_2samp(*shares).pvalue > 1e-3


def test_shares_of_a_model_join_to_it_and_neither_scores_alone() -> None:
    model = LinearModel(np.zeros((0, 3)), 0.0)
    model.weights = np.array([0.5, -2.25, 7.0])
    own, other = split_weights(model, 17)
    assert joined_model(own, other).weights.tolist() == [0.5, -2.25, 7.0]
    assert joined_model(model, None) is model
    for share in (own, other):
        with pytest.raises(RunError, match="nobody has them"):
            share.predict(np.eye(3))
