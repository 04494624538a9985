"""A party's rows in memory, from the input of `fit`: the source of the party's steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.constraints.groups import PATTERNS
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.presence import Presence
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.twins import twins
from evenhand.errors import DataError
from evenhand.estimators.tables import Beside, align_all, encode, in_words_of_fit, take_rows
from evenhand.jobs.tables import tell
from evenhand.models.learning.base import PartyLearner
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.protocol.align import How
from evenhand.protocol.job import Job
from evenhand.training.vertical import check_weights
from evenhand.training.vertical_sources import EncodedColumns, HeldLabels, check_ids, named_problem

ReadLabels = Callable[[npt.NDArray[Any], Any, Presence | None], tuple[Array, pd.DataFrame | None]]
"""Function that converts labels and groups of the training rows to numbers and a frame, given who has these rows."""


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
        self._there: Booleans = np.ones(0, dtype=bool)
        self.weights: Array | None = None
        self.learner: PartyLearner | None = None

    def ids(self) -> pd.Index | int:
        found = self._everybody[self.name]
        if not isinstance(found, int):
            check_ids(found, self.name)
        return found

    def unaligned(self, problem: str, _: Integers) -> DataError:
        return in_words_of_fit(named_problem(self._everybody, self._how, problem))

    def take(self, places: Integers, held_out: Booleans | None = None) -> int:
        self._there = places >= 0
        self.table = take_rows(self.table, places[self._there])
        return len(places)

    def held_out(self) -> Booleans:
        """Return that no row is held out: `fit` trains on all rows."""
        return np.zeros(len(self._there), dtype=bool)

    def labels(self, presence: Presence | None = None) -> HeldLabels:
        raise DataError(f"{self.name} holds no labels")

    def columns(self) -> EncodedColumns:
        encoder = self.encoder
        return EncodedColumns(
            self.matrix, encoder.categorical, self.weights, self._signs(), encoder.marks_absence, self.learner
        )

    def _signs(self) -> Integers | None:
        try:
            return self.encoder.signs
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from error

    @property
    def encoder(self) -> PartyEncoder:
        """How the columns are encoded, fitted on the common rows."""
        return self._encode()[0]

    @property
    def matrix(self) -> Matrix:
        """The encoded rows, with those that the party lacks."""
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
            if not self._there.all():
                encoder = encoder.marking_absence()
            self._encoded = encoder, encoder.spread(encode(self.name, encoder, self.table), self._there)
        return self._encoded


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
        # The label holder's rows are all kept, so each of them needs a label.
        own, self._given = align_all({name: table}, beside, "equal" if how == "left" else how)
        table = own[name]
        if isinstance(table, pd.DataFrame):
            everybody[name] = table.index
        elif beside.ids is not None:
            everybody[name] = beside.ids
        super().__init__(name, table, everybody, how, job, encoder)
        self._held: HeldLabels | None = None

    def take(self, places: Integers, held_out: Booleans | None = None) -> int:
        self._given = Beside(*(None if one is None else take_rows(one, places) for one in self._given))
        return super().take(places, held_out)

    def labels(self, presence: Presence | None = None) -> HeldLabels:
        if self._held is None:
            people = self._given.weights
            numbers, groups = self._read(self._given.y, self._given.groups, presence)
            if people is not None:
                check_weights(self._job, people, len(numbers))
            # Draw the same responses for the same rows in every fit.
            key = AnswerKey.from_seed(self._seed, self.table.index if isinstance(self.table, pd.DataFrame) else None)
            if groups is not None and isinstance(self.table, pd.DataFrame):
                columns = ((str(name), self.table.iloc[:, place]) for place, name in enumerate(self.table.columns))
                tell(self.name, twins(columns, groups.drop(columns=PATTERNS, errors="ignore")))
            self._held = HeldLabels(LabelledRows(numbers, groups, sample_weight=people), key)
        return self._held
