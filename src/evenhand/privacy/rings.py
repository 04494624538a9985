"""Polynomials modulo X⁴⁰⁹⁶ + 1 and a product q of four primes, for encryption on lattices (`lattice.py`).

A polynomial is an array of residues, (4, 4096), one line for each prime. A product of polynomials is taken in the
transformed domain (number-theoretic transform), where it is one product for each place. Primes are below 2²⁷, so a
thousand products of residues add up in 64 bits without reduction.

Transforms are those of Longa and Naehrig (2016, Algorithms 1 and 2) with Harvey's lazy reduction (2014): between stages
residues may exceed the prime, and stay below 2³².
"""

from __future__ import annotations

import math
from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

DEGREE: Final = 4096
PRIMES: Final = (134176769, 134111233, 67084289, 67043329)
"""The two largest primes below 2²⁷, and below 2²⁶, that are 1 modulo 8192."""
MODULUS: Final = math.prod(PRIMES)
"""q: 105.996 bits. At degree 4096 and 128 bits of security, the guidelines of Bossuat et al. (2024) allow 106, and the
Homomorphic Encryption Standard (2018, Table 1) allows 109.
"""
Residues = NDArray[np.uint32]
"""(..., 4, size)."""

_U64 = np.uint64


def _root(prime: int) -> int:
    """Return a primitive root of unity of order 2 · DEGREE."""
    found = (pow(base, (prime - 1) // (2 * DEGREE), prime) for base in range(2, prime))
    return next(one for one in found if pow(one, DEGREE, prime) == prime - 1)


def _powers(prime: int, root: int) -> list[int]:
    """Return powers of the root in bit-reversed order."""
    bits = DEGREE.bit_length() - 1
    powers = [1]
    for _ in range(DEGREE - 1):
        powers.append(powers[-1] * root % prime)
    return [powers[int(f"{place:0{bits}b}"[::-1], 2)] for place in range(DEGREE)]


def _tables(inverse: bool) -> tuple[Any, Any]:
    """Return roots for all primes, and the same times 2³² / prime."""
    found = [_powers(p, pow(_root(p), -1, p) if inverse else _root(p)) for p in PRIMES]
    scaled = [[(one << 32) // p for one in line] for line, p in zip(found, PRIMES, strict=True)]
    return np.array(found, dtype=np.uint64), np.array(scaled, dtype=np.uint64)


PRIME_ARRAY: Final = np.array(PRIMES, dtype=np.uint64)
_NARROW: Final = np.array(PRIMES, dtype=np.uint32)[:, None]
_FORWARD: Final = _tables(False)
_BACKWARD: Final = _tables(True)
_SHRINK: Final = np.array([pow(DEGREE, -1, p) for p in PRIMES], dtype=np.uint64)


@numba.njit(cache=True, nogil=True)
def _transform(values: Any, roots: Any, scaled: Any, primes: Any) -> None:
    for number in range(values.shape[0]):
        for line in range(values.shape[1]):
            prime = primes[line]
            work = values[number, line].astype(np.uint64)
            blocks, gap = 1, values.shape[2] // 2
            while gap > 0:
                for block in range(blocks):
                    root, factor = roots[line, blocks + block], scaled[line, blocks + block]
                    for place in range(2 * block * gap, 2 * block * gap + gap):
                        one, other = work[place], work[place + gap]
                        other = root * other - ((factor * other) >> _U64(32)) * prime
                        work[place] = one + other
                        work[place + gap] = one + _U64(2) * prime - other
                blocks, gap = 2 * blocks, gap // 2
            for place in range(len(work)):
                values[number, line, place] = work[place] % prime


@numba.njit(cache=True, nogil=True)
def _transform_back(values: Any, roots: Any, scaled: Any, primes: Any, shrink: Any) -> None:
    for number in range(values.shape[0]):
        for line in range(values.shape[1]):
            prime = primes[line]
            twice = _U64(2) * prime
            work = values[number, line].astype(np.uint64)
            blocks, gap = values.shape[2] // 2, 1
            while blocks > 0:
                for block in range(blocks):
                    root, factor = roots[line, blocks + block], scaled[line, blocks + block]
                    for place in range(2 * block * gap, 2 * block * gap + gap):
                        one, other = work[place], work[place + gap]
                        total = one + other
                        work[place] = total - twice if total >= twice else total
                        other = one + twice - other
                        work[place + gap] = root * other - ((factor * other) >> _U64(32)) * prime
                blocks, gap = blocks // 2, 2 * gap
            for place in range(len(work)):
                values[number, line, place] = work[place] * shrink[line] % prime


@numba.njit(cache=True, nogil=True)
def _summed(left: Any, right: Any, primes: Any) -> Any:
    total = np.empty(left.shape[1:], dtype=np.uint32)
    for line in range(left.shape[1]):
        work = np.zeros(left.shape[2], dtype=np.uint64)
        for number in range(left.shape[0]):
            for place in range(left.shape[2]):
                work[place] += _U64(left[number, line, place]) * _U64(right[number, line, place])
            if number % 512 == 511:
                for place in range(left.shape[2]):
                    work[place] %= primes[line]
        for place in range(left.shape[2]):
            total[line, place] = work[place] % primes[line]
    return total


def transform(values: Residues) -> Residues:
    """Return polynomials (k, 4, DEGREE) in the transformed domain."""
    found = np.ascontiguousarray(values).copy()
    _transform(found, *_FORWARD, PRIME_ARRAY)
    return found


def transform_back(values: Residues) -> Residues:
    """Undo `transform`."""
    found = np.ascontiguousarray(values).copy()
    _transform_back(found, *_BACKWARD, PRIME_ARRAY, _SHRINK)
    return found


def summed_products(left: Residues, right: Residues) -> Residues:
    """Return Σ_k left_k · right_k of polynomials (k, 4, DEGREE) in the transformed domain."""
    found: Residues = _summed(np.ascontiguousarray(left), np.ascontiguousarray(right), PRIME_ARRAY)
    return found


def added(left: Residues, right: Residues) -> Residues:
    """Return left + right. Of a sum and the same minus the prime, modulo 2³², the smaller is right."""
    total = left + right
    return np.minimum(total, total - _NARROW)


def subtracted(left: Residues, right: Residues) -> Residues:
    """Return left − right."""
    total = left - right
    return np.minimum(total, total + _NARROW)


def multiplied(left: Residues, right: Residues) -> Residues:
    """Return left · right in the transformed domain."""
    return (left.astype(np.uint64) * right % PRIME_ARRAY[:, None]).astype(np.uint32)


def residues_of(integers: NDArray[Any]) -> Residues:
    """Return residues (..., 4, n) of integers (..., n)."""
    return np.stack([np.remainder(integers, prime).astype(np.uint32) for prime in PRIMES], axis=-2)


def residues_of_small(integers: NDArray[Any]) -> Residues:
    """Return residues (..., 4, n) of integers (..., n) that are smaller than the primes."""
    return np.stack([np.where(integers < 0, integers + prime, integers) for prime in PRIMES], axis=-2).astype(np.uint32)
