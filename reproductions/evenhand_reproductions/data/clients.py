"""Split rows among the clients of a horizontal federation, to simulate one; the same seed gives the same split.

Every split is one client number, 0 to clients − 1, for each row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.errors import DataError, InputError

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


def iid_clients(rows: int, clients: int, seed: int) -> Integers:
    """Split rows at random among clients of equal size, up to one row."""
    require_rows(rows, clients, 1)
    numbers = np.arange(rows, dtype=np.int64) % clients
    return np.random.default_rng(seed).permutation(numbers)


def clients_by_column(column: pd.Series | Sequence[Hashable]) -> tuple[Integers, tuple[Any, ...]]:
    """Make each value of a column a client, such as a hospital's name.

    Returns the client number of each row, and each client's value in the order of the numbers (sorted).
    """
    names, codes = client_codes(column)
    return codes, names


def skewed_clients(rows: int, clients: int, skew: float, seed: int, *, minimum: int = 1) -> Integers:
    """Split rows at random among clients with sizes that follow a power law.

    Client k = 0, 1, ... gets `minimum` rows and a share of the rest in proportion to (k + 1)^−skew, rounded by the
    largest remainders.

    Parameters
    ----------
    rows, clients : the numbers of rows and clients.
    skew : exponent; 0 gives equal sizes, 1 makes the second client's share half of the first's.
    seed : seed of the random draw of rows; the sizes do not depend on it.
    minimum : the fewest rows of a client.
    """
    if not (np.isfinite(skew) and skew >= 0):
        raise InputError(f"skew is {skew}; it is a finite number, 0 or more")
    if minimum < 1:
        raise InputError(f"minimum is {minimum}; a client with no rows cannot take part, so it is at least 1")
    require_rows(rows, clients, minimum)
    # By logarithms: a high power of a large rank would overflow.
    weights = np.exp(-skew * np.log(np.arange(1, clients + 1)))
    wanted = (rows - clients * minimum) * weights / weights.sum()
    sizes = np.floor(wanted).astype(np.int64)
    missing = rows - clients * minimum - int(sizes.sum())
    sizes[np.argsort(sizes - wanted, kind="stable")[:missing]] += 1
    numbers = np.repeat(np.arange(clients, dtype=np.int64), sizes + minimum)
    return np.random.default_rng(seed).permutation(numbers)


def rows_of_clients(numbers: npt.ArrayLike, clients: int | None = None) -> list[Integers]:
    """Return each client's rows, sorted; refuse a partition that leaves a client without any.

    Parameters
    ----------
    numbers : the client number of each row.
    clients : the number of clients; by default the largest client number plus one.
    """
    given = np.asarray(numbers)
    if given.ndim != 1 or given.size == 0 or not np.issubdtype(given.dtype, np.integer):
        raise DataError(f"client numbers are one whole number a row, not {given.dtype} of shape {given.shape}")
    count = int(given.max()) + 1 if clients is None else clients
    if given.min() < 0 or given.max() >= count:
        raise DataError(
            f"client numbers run from {given.min()} to {given.max()}; they belong between 0 and {count - 1}"
        )
    sizes = np.bincount(given, minlength=count)
    if empty := np.flatnonzero(sizes == 0).tolist():
        few = ", ".join(map(str, empty[:5])) + (", ..." if len(empty) > 5 else "")
        raise DataError(f"{len(empty)} of {count} clients have no rows (number {few}); use fewer clients or more rows")
    order = np.argsort(given, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(sizes)[:-1])
