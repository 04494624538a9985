"""Split clients' rows into mini-batches, depending only on each client's number of rows and the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.models.stacked import LANES, whole_lanes

LEAST_STEPS: Final = 20
"""Fewest steps in a round if `local_epochs` is automatic."""


@dataclass(frozen=True)
class Batching:
    """Mini-batches of one client.

    Attributes
    ----------
    first, size
        Index of the client's first row among those of the process, and its number of rows.
    batch
        |B|: rows of a full batch.
    padded
        Rows of a batch with padding. Clients that train side by side must have the same.
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
        """Return the batches of a client with these rows.

        Parameters
        ----------
        epochs
            ``"auto"`` takes as many as give `LEAST_STEPS`.
        lone_rows
            Whether the last batch may have a single row; if not, that row is left out of the epoch.
        """
        size = rows.stop - rows.start
        batch = size if batch_size is None else min(batch_size, size)
        whole, last = divmod(size, batch)
        steps = whole + (last > 1 or (last == 1 and lone_rows))
        passes = -(-LEAST_STEPS // max(steps, 1)) if epochs == "auto" else epochs
        return cls(rows.start, size, batch, _padded(size, batch_size), steps, passes)


def _padded(size: int, batch_size: int | None) -> int:
    """Round the batch size up to whole lanes, so that other clients do not change how a row is rounded.

    Similar sizes become equal, with at most a quarter more rows, because only batches of equal size train together.
    """
    alike = max(LANES, 2 ** (size.bit_length() - 3))
    padded = -(-size // alike) * alike
    return padded if batch_size is None else min(padded, whole_lanes(batch_size))


def deal(clients: Sequence[Batching], draws: Sequence[np.random.Generator]) -> tuple[Integers, npt.NDArray[np.float32]]:
    """Return (steps, clients, padded): row numbers of an epoch's batches, and 1 for real rows or 0 for padding."""
    shape = (max(client.steps for client in clients), len(clients), clients[0].padded)
    numbers, inside = np.empty(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for place, (client, draw) in enumerate(zip(clients, draws, strict=True)):
        # Padding repeats one of the client's own rows, with weight zero.
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
