"""Split columns among parties and rows among clients, to simulate a federation; the same seed, the same split."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.errors import DataError, InputError


def split_columns(
    columns: int | Sequence[str] | pd.DataFrame, parties: int | Sequence[int], seed: int
) -> list[Integers]:
    """Split encoded features among parties at random, as the papers do.

    Parameters
    ----------
    columns : the features, or how many there are.
    parties : the number of features of each party, or the number of parties, for shares as equal as possible.
    seed : seed of the random draw.

    Returns
    -------
    For each party the sorted positions of its features.
    """
    count = columns if isinstance(columns, int) else _names(columns).size
    sizes = _equal_sizes(count, parties) if isinstance(parties, int) else list(parties)
    if sum(sizes) != count or min(sizes, default=0) < 1:
        raise InputError(
            f"shares {sizes} sum to {sum(sizes)}, but there are {count} features; each share is at least 1"
        )
    order = np.random.default_rng(seed).permutation(count).astype(np.int64)
    return [np.sort(share) for share in np.split(order, np.cumsum(sizes)[:-1])]


def _names(columns: Sequence[str] | pd.DataFrame) -> np.ndarray[Any, np.dtype[np.object_]]:
    return np.asarray(list(columns.columns if isinstance(columns, pd.DataFrame) else columns), dtype=object)


def _equal_sizes(count: int, parties: int) -> list[int]:
    if not 1 <= parties <= count:
        raise InputError(f"{count} columns cannot be shared between {parties} parties so that each gets one")
    small, larger = divmod(count, parties)
    return [small + (k < larger) for k in range(parties)]


# Beyond these a Dirichlet draw is one class, or its mean, to the last digit.
_CONCENTRATIONS: Final = (1e-200, 1e15)


def dirichlet_clients(labels: npt.ArrayLike | pd.Series, clients: int, alpha: float, seed: int) -> Integers:
    """Split rows among clients with label skew from a Dirichlet distribution; sizes differ by at most one.

    Each client draws its own mix of classes q ~ Dirichlet(α K p), where p are the shares of the K classes among all
    rows (Hsu, Qi and Brown 2019), and takes rows without replacement, a row of class k with weight
    q_k / p_k. While a class has its share of what is left, q is the chance that the next row is of each class; a
    class that is running out counts for less and one that has run out for nothing, the others being renormalised.

    Large α gives every client the mix of the whole (in the limit, a random split); α near 0 gives each client as
    nearly one class as the equal sizes allow. Clients draw one after another, in random order; the last take what is
    left. Hsu et al. draw by q alone until a class has run out. Then the last client has all the others' random
    deviations, and differs from the whole even for large α.

    With classes of equal size this is the symmetric Dirichlet(α, ..., α) of most programs. Hsu et al. write
    Dirichlet(α p), so their α is K times this one.

    Parameters
    ----------
    labels : the class of each row.
    clients : number of clients (N in FairFedAvgALM).
    alpha : α, the concentration; FairFedAvgALM has 1 for CelebA and 2 for imSitu.
    seed : seed of the random draws of mixes and rows.
    """
    if not (np.isfinite(alpha) and alpha > 0):
        raise InputError(f"alpha is {alpha}; it is a finite number above 0")
    classes, codes = client_codes(labels)
    require_rows(codes.size, clients, 1)
    generator = np.random.default_rng(seed)
    shares = np.bincount(codes) / codes.size
    concentrations = np.clip(alpha * len(classes) * shares, *_CONCENTRATIONS)
    weights = _log_dirichlet(concentrations, clients, generator) - np.log(shares)
    numbers = np.empty(codes.size, dtype=np.int64)
    left = generator.permutation(codes.size)
    sizes = np.bincount(np.arange(codes.size) % clients)
    for client, size in zip(generator.permutation(clients), sizes, strict=True):
        # The largest sums of a logarithmic weight and a Gumbel variable are a weighted draw without replacement.
        keys = weights[client, codes[left]] + generator.gumbel(size=left.size)
        order = np.argpartition(-keys, size - 1)
        numbers[left[order[:size]]] = client
        left = left[order[size:]]
    return numbers


def _log_dirichlet(concentrations: Array, draws: int, generator: np.random.Generator) -> Array:
    """Draw logarithms of Dirichlet variables, up to a constant each; plain ones would underflow for small α."""
    shape = (draws, concentrations.size)
    # If G ~ Gamma(a + 1) and U is uniform, then G U^(1/a) ~ Gamma(a).
    return (
        np.log(generator.gamma(concentrations + 1.0, size=shape)) - generator.exponential(size=shape) / concentrations
    )


def client_codes(values: npt.ArrayLike | pd.Series | Sequence[Hashable]) -> tuple[tuple[Any, ...], Integers]:
    column = pd.Series(values)
    if column.empty:
        raise DataError("there are no rows to split")
    if missing := int(column.isna().sum()):
        raise DataError(f"{missing:,} of {column.size:,} rows have no value in the column they are split by")
    codes, names = pd.factorize(column, sort=True)
    return tuple(names.tolist()), np.asarray(codes, dtype=np.int64)


def require_rows(rows: int, clients: int, minimum: int) -> None:
    if clients < 1:
        raise InputError(f"clients is {clients}; there must be at least one")
    if rows < clients * minimum:
        raise DataError(
            f"{rows:,} rows cannot be shared between {clients:,} clients so that each gets at least {minimum}; "
            "use fewer clients"
        )
