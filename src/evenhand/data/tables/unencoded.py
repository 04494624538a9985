"""Hand a party's columns to its model as they are: for models that read text, dates or images by themselves."""

from __future__ import annotations

from typing import Any, Self

import pandas as pd
from scipy import sparse

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.data.tables.columns import Bin, EncodedColumn, Shape, require, require_keys
from evenhand.data.tables.encoding import VERSION, PartyEncoder, as_frame
from evenhand.errors import DataError
from evenhand.printing import listed


class UnencodedColumns(PartyEncoder):
    """Remembers which columns there are, and returns them as a DataFrame."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._names: list[str] | None = None

    @classmethod
    def of(cls, names: list[str]) -> Self:
        """Return a fitted encoder of these columns."""
        found = cls()
        found._names = names
        return found

    @property
    def is_fitted(self) -> bool:
        return self._names is not None

    def fit(self, data: Any) -> Self:
        self._names = [str(name) for name in _frame(data).columns]
        return self

    def transform(self, data: Any) -> Matrix:
        frame = _frame(data)
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        if missing := [name for name in self.columns_in if name not in frame.columns]:
            raise DataError(f"column {missing[0]!r} is missing; the table has {listed(list(frame.columns))}")
        return frame[self.columns_in]

    def marking_absence(self) -> Self:
        raise DataError(
            "a model that takes columns as they are needs every row of the label holder, and some are absent; choose "
            "columns='standard' for the model"
        )

    def spread(self, encoded: Matrix, there: Booleans) -> Matrix:
        if not there.all():
            raise DataError("its model takes raw columns and needs all rows; choose ids = 'inner', or another model")
        return encoded

    @property
    def columns_in(self) -> list[str]:
        if self._names is None:
            raise DataError("this encoder has not been fitted; call fit first")
        return self._names

    @property
    def feature_names_out(self) -> list[str]:
        return self.columns_in

    @property
    def width_out(self) -> int:
        return len(self.columns_in)

    @property
    def categorical(self) -> tuple[int, ...]:
        return ()

    @property
    def signs(self) -> Integers | None:
        return None

    @property
    def encoded_columns(self) -> tuple[EncodedColumn, ...]:
        return ()

    @property
    def kinds(self) -> dict[str, str]:
        return dict.fromkeys(self.columns_in, "raw")

    @property
    def widths(self) -> dict[str, int]:
        return dict.fromkeys(self.columns_in, 1)

    @property
    def missing_features(self) -> dict[str, int]:
        return {}

    @property
    def bins(self) -> dict[str, list[Bin]]:
        return {}

    def shapes(self, weights: Array) -> dict[str, Shape]:
        return {}

    def remarks_on(self, data: Any) -> list[str]:
        return []

    @property
    def gives_sparse(self) -> bool:
        return False

    def to_state(self) -> dict[str, Any]:
        return {"version": VERSION, "raw": self.columns_in}


def encoder_from_state(state: Any) -> PartyEncoder:
    """Rebuild a party's encoder, of whatever kind, from its state."""
    if not (isinstance(state, dict) and "raw" in state):
        return PartyEncoder.from_state(state)
    names = state["raw"]
    require(isinstance(names, list) and all(isinstance(one, str) for one in names), "raw", "a list of names")
    require(len(set(names)) == len(names), "raw", "a list of different names")
    require_keys(state, ("version", "raw"), "the state")
    require(state["version"] == VERSION, "version", f"{VERSION}")
    return UnencodedColumns.of(names)


def _frame(data: Any) -> pd.DataFrame:
    if sparse.issparse(data):
        raise DataError("a sparse matrix has no raw columns; choose columns='standard' for the model")
    return as_frame(data)
