"""Shares of products under encryption: the ring, rounding, noise, and what random numbers look like."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from support.lattice import ask, lifted, share_of

from evenhand.errors import ProtocolError
from evenhand.privacy import lattice, rings
from evenhand.privacy.lattice import DELTA_BITS, ProductPacking
from evenhand.privacy.rings import DEGREE, MODULUS, PRIMES
from evenhand.protocol.messages import Message

RNG = np.random.default_rng(0)
STANDARD_BITS = 109
"""Largest modulus at degree 4096 for 128 bits: Homomorphic Encryption Standard (2018), Table 1, ternary secrets."""


def test_the_modulus_is_within_the_standard_and_splits_the_ring() -> None:
    assert DEGREE == 4096
    assert math.log2(MODULUS) <= STANDARD_BITS
    for prime in PRIMES:
        assert prime % (2 * DEGREE) == 1
        assert all(prime % divisor for divisor in range(2, math.isqrt(prime) + 1))


def test_products_are_those_of_polynomials_modulo_x_to_the_degree_plus_one() -> None:
    left, right = RNG.integers(-9, 10, DEGREE), RNG.integers(-1000, 1000, DEGREE)
    whole = np.append(np.convolve(left, right), 0)
    expected = whole[:DEGREE] - whole[DEGREE:]
    product = rings.multiplied(*(rings.transform(rings.residues_of(one)[None]) for one in (left, right)))
    np.testing.assert_array_equal(rings.transform_back(product)[0], rings.residues_of(expected))


@given(st.lists(st.integers(0, MODULUS - 1), min_size=1, max_size=8), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_rounding_is_that_of_whole_numbers(numbers: list[int], word: int) -> None:
    residues = np.array([[one % prime for one in numbers] for prime in PRIMES], dtype=np.uint32)
    expected = [(2**65 * one + MODULUS) // (2 * MODULUS) % 2**64 for one in numbers]
    assert lattice.rounded(residues).tolist() == expected
    (found,) = lifted(lattice.scaled_up(np.array([[word]], dtype=np.uint64))[0])
    assert found % MODULUS == (2 * MODULUS * word + 2**64) // 2**65 % MODULUS


@pytest.mark.parametrize(("rows", "columns", "bits"), [(3, 90, 17), (90, 3, 17), (5, 9000, 17), (60, 30, 24)])
def test_shares_add_up_to_the_product_of_words(rows: int, columns: int, bits: int) -> None:
    matrix = RNG.integers(-(2**bits), 2**bits, (rows, columns)).view(np.uint64)
    vector = RNG.integers(0, 2**64, columns, dtype=np.uint64)
    packing = ProductPacking.of(rows, columns)
    assert packing.noise_bits(matrix) < DELTA_BITS - 10
    asked = ask(packing, vector)
    c0, c1, mine = asked.answer(matrix)
    errors = (mine + share_of(asked, c0, c1) - matrix @ vector).view(np.int64)
    # A result is off by one unit with probability 2^(1 + noise − Δ) or less.
    assert np.abs(errors).max() <= 1
    assert np.mean(errors != 0) <= 0.2


@pytest.mark.parametrize("bits", [10, 20, 30])
def test_noise_is_as_large_as_stated(bits: int) -> None:
    packing, matrix = ProductPacking.of(DEGREE, 3), RNG.integers(-(2**bits), 2**bits, (DEGREE, 3)).view(np.uint64)
    vector = RNG.integers(0, 2**64, 3, dtype=np.uint64)
    asked = ask(packing, vector)
    found = asked.noise(matrix, vector).astype(float)
    # 4,096 coefficients: a ratio of standard deviations beyond 1.2 is fifteen standard errors away.
    assert 1 / 1.2 < found.std() / 2.0 ** packing.noise_bits(matrix) < 1.2


def test_numbers_are_drawn_as_stated() -> None:
    """Each check fails once in 10⁹ runs or less."""
    drawn = lattice.uniform(1 << 15)
    for line, prime in zip(drawn, PRIMES, strict=True):
        counts = np.bincount(line.astype(np.int64) * 64 // prime, minlength=64)
        assert chisquare(counts).pvalue > 1e-10
    secret = _centred(lattice._ternary(8)).ravel()
    assert chisquare(np.bincount(secret + 1, minlength=3)).pvalue > 1e-10
    errors = _centred(lattice._errors(8)).ravel()
    assert np.abs(errors).max() <= 21
    assert errors.var() == pytest.approx(10.5, rel=0.05)
    assert abs(errors.mean()) < 0.13


def _centred(residues: Any) -> Any:
    line = residues[:, 0].astype(np.int64)
    return np.where(line > PRIMES[0] // 2, line - PRIMES[0], line)


def test_the_same_seed_gives_both_sides_the_same_polynomials_and_another_gives_others() -> None:
    one, other = os.urandom(32), os.urandom(32)
    first, again, second = (lattice.polynomials(2, lattice.seeded(seed, "a")) for seed in (one, one, other))
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == second) < 0.001
    assert np.mean(first[0] == first[1]) < 0.001


def test_what_is_no_ciphertext_is_refused() -> None:
    packing = ProductPacking.of(4, 50)
    asked = ask(packing, np.arange(50, dtype=np.uint64))
    c0, c1, _ = asked.answer(np.ones((4, 50), dtype=np.uint64))
    good = lattice.answered([(c0, c1)])
    assert len(lattice.read_answers(asked.message(good), [packing])) == 1
    large, zero = c1.copy(), np.zeros_like(c1)
    large[0, 2, 7] = PRIMES[2]
    for wrong, why in (
        (lattice.answered([(c0, large)]), "beyond the modulus"),
        (lattice.answered([(np.full_like(c0, 2**31), c1)]), "beyond the modulus"),
        (lattice.answered([(c0, zero)]), "not encrypted"),
        (lattice.answered([(c0, c1), (c0, c1)]), "another size"),
        (good | {"places": good["places"][:-1]}, "another size"),
    ):
        with pytest.raises(ProtocolError, match=why):
            lattice.read_answers(asked.message(wrong), [packing])


def test_a_key_has_one_error_in_a_context_whatever_is_asked() -> None:
    """Two errors with one a' would tell their difference; one error with two a' would tell the secret."""
    key, errors = lattice.Key(bytes(32)), []
    for value, context in ((1, "one"), (2, "one"), (1, "another")):
        words = np.full((1, DEGREE), value, dtype=np.uint64)
        body = lattice.EncryptedQuestion.asked(key, words, context)
        a, b = lattice.EncryptedQuestion.read(Message("server", "shop", "encrypted-words", body), 1, context).public
        errors.append(lifted(rings.transform_back(rings.added(b, key.times(a))[None])[0]))
    assert (errors[0] == errors[1]).all()
    assert (errors[0] != errors[2]).any()
    assert max(abs(errors[0])) <= 21
