"""Fill both parts of a direction, where the server opens sums over parties.

A part of zeros covers nothing: the sum is then the other parties' part. The smaller part of a direction is next to zero
if the columns of a party have rank one, or if the slope lies along one half of the spectrum. The party then moves a
share of the larger part into the smaller one. The sum of both parts stays the same. The share differs by round, and
follows from the party's columns, so that the server cannot take the parts apart again by a share that it knows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from evenhand.arrays import Array

LEAST_PART: Final = 0.03
"""A part is filled if its scores vary less than so much of those of the other part."""
LEAST_SHARE: Final = 0.25
MOST_SHARE: Final = 0.75


def filling(scores: Array, round_: int, nu: Array | None = None) -> Array | None:
    """Return the combinations of two parts that fill both of them, or None if neither is next to zero.

    Parameters
    ----------
    scores
        (2, rows): the change of every row's score along each part.
    round_
        Number of the round, which gives every round a share of its own.
    nu
        ν of each row, where the party knows it.
    """
    sizes = scores.std(axis=1)
    small = int(np.argmin(sizes))
    if sizes[small] >= LEAST_PART * sizes[1 - small]:
        return None
    share = _share(scores[1 - small], round_, np.zeros(scores.shape[1]) if nu is None else nu)
    found = np.eye(2)
    found[small, 1 - small], found[1 - small, 1 - small] = share, 1.0 - share
    return found


def _share(scores: Array, round_: int, nu: Array) -> float:
    """Return a number that follows from all rows' scores beside their ν, in any order of the rows.

    It varies little with the last digits, and a few rows with other scores change it altogether.
    """
    first, second, start = np.random.default_rng(round_).uniform(1.0, 3.0, size=3)
    waves = np.sin(first * _standardised(scores) + second * _standardised(nu) + start)
    place = 0.5 + 0.5 * float(np.sin(2.0 * np.pi * waves.sum() / np.sqrt(len(waves))))
    return LEAST_SHARE + (MOST_SHARE - LEAST_SHARE) * place


def _standardised(values: Array) -> Array:
    size = float(values.std())
    return (values - values.mean()) / size if size > 0.0 else np.zeros_like(values)
