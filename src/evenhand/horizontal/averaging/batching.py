"""How clients' rows are dealt to batches: each client's by its own number of rows and the options alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.models.stacked import LANES, whole_lanes

LEAST_STEPS: Final = 20
"""Of a round, where the options leave it open."""


@dataclass(frozen=True)
class Batching:
    """One client's batches.

    Attributes
    ----------
    first, size
        Where its rows begin among those of the process, and how many it has.
    batch
        |B|: rows of a full batch.
    padded
        The same with padding, which clients that train side by side must have in common.
    steps
        Batches of an epoch, ⌈n / |B|⌉.
    epochs
        Passes over the rows in a round.
    """

    first: int
    size: int
    batch: int
    padded: int
    steps: int
    epochs: int

    @classmethod
    def of(cls, rows: slice, batch_size: int | None, epochs: int | Literal["auto"] = 1, *, lone_rows: bool) -> Batching:
        """The batches of a client with these rows.

        Parameters
        ----------
        epochs
            ``"auto"`` is as many as make `LEAST_STEPS`.
        lone_rows
            Whether the last batch may be one row; if not, that row is left out of the epoch.
        """
        size = rows.stop - rows.start
        batch = size if batch_size is None else min(batch_size, size)
        whole, last = divmod(size, batch)
        steps = whole + (last > 1 or (last == 1 and lone_rows))
        passes = -(-LEAST_STEPS // max(steps, 1)) if epochs == "auto" else epochs
        return cls(rows.start, size, batch, _padded(size, batch_size), steps, passes)


def _padded(size: int, batch_size: int | None) -> int:
    """Whole lanes, so that company does not change how a row is rounded.

    Sizes that are alike are made equal, at the cost of a quarter more rows at most: unequal ones share no arithmetic.
    """
    alike = max(LANES, 2 ** (size.bit_length() - 3))
    padded = -(-size // alike) * alike
    return padded if batch_size is None else min(padded, whole_lanes(batch_size))


def deal(clients: Sequence[Batching], draws: Sequence[np.random.Generator]) -> tuple[Integers, npt.NDArray[np.float32]]:
    """(steps, clients, padded): row numbers of an epoch's batches, and one where they are no padding."""
    shape = (max(client.steps for client in clients), len(clients), clients[0].padded)
    numbers, inside = np.empty(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for place, (client, draw) in enumerate(zip(clients, draws, strict=True)):
        # Padding repeats a row of the client's own, which is then given no weight.
        numbers[:, place] = client.first
        drawn = client.first + draw.permutation(client.size)
        whole, batch = client.size // client.batch, client.batch
        numbers[:whole, place, :batch] = drawn[: whole * batch].reshape(whole, batch)
        inside[:whole, place, :batch] = 1.0
        if client.steps > whole:
            rest = client.size - whole * batch
            numbers[whole, place, :rest] = drawn[whole * batch :]
            inside[whole, place, :rest] = 1.0
    return numbers, inside
