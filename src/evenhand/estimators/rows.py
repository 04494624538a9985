"""A party's rows in memory, from the input of `fit`: the source of the party's steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.data.tables.align import check_ids
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError
from evenhand.estimators.tables import align_rows, encode, in_words_of_fit, weights_beside
from evenhand.jobs.tables import tell
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.protocol.align import How
from evenhand.protocol.job import Job
from evenhand.training.vertical import check_weights
from evenhand.training.vertical_sources import EncodedColumns, HeldLabels, named_problem

ReadLabels = Callable[[npt.NDArray[Any], Any], tuple[Array, pd.DataFrame | None]]
"""Function that converts labels and groups of the training rows to numbers and a frame."""


class FrameRows:
    """A party's rows: a DataFrame, array or sparse matrix.

    Parameters
    ----------
    ids
        The id of each row, or the number of rows if they have no ids.
    everybody
        The ids of all parties, for errors that name some.
    encoder
        How columns are encoded; it is fitted on the common rows, unless it is fitted already.
    """

    def __init__(
        self,
        name: str,
        table: Any,
        everybody: Mapping[str, pd.Index | int],
        how: How,
        job: Job,
        encoder: PartyEncoder,
    ) -> None:
        self.name, self.table = name, table
        self._everybody, self._how = everybody, how
        self._job, self._encoder = job, encoder
        self._encoded: tuple[PartyEncoder, Matrix] | None = None
        self.weights: Array | None = None

    def ids(self) -> pd.Index | int:
        found = self._everybody[self.name]
        if not isinstance(found, int):
            check_ids(found, self.name)
        return found

    def unaligned(self, problem: str, _: Integers) -> DataError:
        return in_words_of_fit(named_problem(self._everybody, self._how, problem))

    def take(self, places: Integers) -> int:
        self.table = take_rows(self.table, places)
        return len(places)

    def labels(self) -> HeldLabels:
        raise DataError(f"{self.name} holds no labels")

    def columns(self) -> EncodedColumns:
        return EncodedColumns(self.matrix, self.encoder.categorical, self.weights)

    @property
    def encoder(self) -> PartyEncoder:
        """How the columns are encoded, fitted on the common rows."""
        return self._encode()[0]

    @property
    def matrix(self) -> Matrix:
        """The encoded rows."""
        return self._encode()[1]

    def _encode(self) -> tuple[PartyEncoder, Matrix]:
        if self._encoded is None:
            encoder = self._encoder
            if not encoder.is_fitted:
                try:
                    encoder.fit(self.table)
                except DataError as error:
                    raise DataError(f"{self.name}: {error}") from error
                tell(self.name, encoder.remarks)
            self._encoded = encoder, encode(self.name, encoder, self.table)
        return self._encoded


class Beside(NamedTuple):
    """Labels, groups and weights of the label holder, as given to `fit`."""

    y: Any
    groups: Any
    weights: Any = None

    @property
    def ids(self) -> pd.Index | None:
        """Ids of the labels or groups, if they have any."""
        indexed = (one for one in (self.y, self.groups) if isinstance(one, (pd.DataFrame, pd.Series)))
        return next((one.index for one in indexed), None)


class HolderRows(FrameRows):
    """The rows of the party that holds labels and groups.

    Parameters
    ----------
    table
        The party's table; its rows are brought to the order of the labels' ids, if both have ids.
    read
        Turns labels and groups of the common rows into numbers.
    seed
        Seed of randomised responses.
    """

    def __init__(
        self,
        name: str,
        table: Any,
        everybody: dict[str, pd.Index | int],
        how: How,
        job: Job,
        encoder: PartyEncoder,
        beside: Beside,
        read: ReadLabels,
        seed: int,
    ) -> None:
        self._read, self._seed = read, seed
        self._weights: Array | None = None
        y = beside.y
        if beside.weights is not None:
            self._weights, y = weights_beside(y, beside.weights)
        self._whole = beside.y
        own, self._labels, groups = align_rows({name: table}, y, beside.groups, how)
        self._groups = groups if groups is None or hasattr(groups, "shape") else np.asarray(groups)
        table = own[name]
        if isinstance(table, pd.DataFrame):
            everybody[name] = table.index
        elif beside.ids is not None:
            everybody[name] = beside.ids
        super().__init__(name, table, everybody, how, job, encoder)
        self._held: HeldLabels | None = None

    def take(self, places: Integers) -> int:
        self._labels = take_rows(self._labels, places)
        self._groups = None if self._groups is None else take_rows(self._groups, places)
        return super().take(places)

    def labels(self) -> HeldLabels:
        if self._held is None:
            labels, people = self._labels, None
            if self._weights is not None:
                # Positions were aligned in place of the labels.
                order = labels.astype(np.int64)
                labels, people = np.asarray(self._whole)[order], self._weights[order]
            numbers, groups = self._read(labels, self._groups)
            if people is not None:
                check_weights(self._job, people, len(numbers))
            # Draw the same responses for the same rows in every fit.
            key = AnswerKey.from_seed(self._seed, self.table.index if isinstance(self.table, pd.DataFrame) else None)
            self._held = HeldLabels(LabelledRows(numbers, groups, sample_weight=people), key)
        return self._held


def take_rows(table: Any, places: Integers) -> Any:
    """Return rows of a table, series or array in this order; the object itself if nothing changes."""
    n_rows = table.shape[0]
    if len(places) == n_rows and bool((places == np.arange(n_rows)).all()):
        return table
    return table.iloc[places] if isinstance(table, (pd.DataFrame, pd.Series)) else table[places]
