"""More ways to split rows among clients, and the rows of each client.

Every split is one client number, 0 to clients − 1, for each row, as that of `evenhand.data.dirichlet_clients`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Integers
from evenhand.data.splits import client_codes, require_rows
from evenhand.errors import DataError, InputError


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
