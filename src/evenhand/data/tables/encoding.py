"""Turn one party's raw columns into the numbers its model works on, learning from its own training rows only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse

from evenhand.arrays import Array, Matrix
from evenhand.data.tables.as_is import (
    assemble_as_is,
    categorical_places,
    learn_column,
    learn_more,
    learned,
    names_as_is,
)
from evenhand.data.tables.columns import Column, LevelColumn, NumberColumn
from evenhand.data.tables.encoder_state import Learned, from_json, learned_from_state
from evenhand.data.tables.learning import PartialColumn
from evenhand.data.tables.making import Made, MissingRule, Rules, fit_column
from evenhand.data.tables.onehot import assemble_dense, assemble_sparse, sparse_is_faster, total_width
from evenhand.data.tables.raw import RawColumn
from evenhand.errors import DataError
from evenhand.printing import listed


class PartyEncoder:
    """Encoder of one party's columns.

    Text, category and boolean columns become one 0/1 feature for each level, with no level left out; a value not seen
    at fit becomes zeros. The levels a pandas category declares all count, seen or not. Numeric columns are
    standardised with the mean and population standard deviation of the rows of :meth:`fit`. A date becomes the number
    of its day, standardised, and 0/1 features for its month, its day of the week and, if there are times, its hour.
    Missing values are a level of their own in categories; of numbers and dates they are filled with the median and
    have a 0/1 feature beside it (with the mean where rows come batch by batch or from several clients: medians do not
    add up). Text that is different in every row says who a row is, and nothing is made of it.

    Sparse matrices are divided by each column's largest absolute value and not centred, which keeps them sparse. With
    ``scale=False`` a sparse matrix passes as it is: float64 in CSR form is not copied, the result shares its memory.

    The result is a float64 array, or a :class:`scipy.sparse.csr_array` where products with it are faster; which
    of the two depends on the columns, never on the rows.

    Parameters
    ----------
    scale : standardise numeric columns; otherwise they pass as they are.
    as_is : one feature a column, for trees: numbers are not scaled and may be missing, categories become codes, and a
        missing value or a level not seen at fit is NaN.
    missing : ``"indicator"`` takes missing values as said above, ``"refuse"`` makes an error of them; or one of the two
        by a column's name.
    max_levels : how many levels of a column to keep, the most frequent ones; all others are one more.

    Attributes
    ----------
    remarks : what was made of columns where that may surprise, in sentences.
    """

    # Of saved encoders that know nothing of it.
    as_is = False
    rules = Rules("refuse")
    remarks: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        scale: bool = True,
        as_is: bool = False,
        missing: MissingRule | Mapping[str, MissingRule] = "indicator",
        max_levels: int | None = None,
    ) -> None:
        self.scale = scale and not as_is
        self.as_is = as_is
        self.rules = Rules(missing, max_levels)
        self._columns: tuple[Column, ...] | None = None
        self._partial: tuple[PartialColumn, ...] | None = None
        # Of a sparse matrix: how many columns there are, and what each is divided by, if anything.
        self._width: int | None = None
        self._divisors: Array | None = None

    def fit(self, data: Any) -> Self:
        """Learn levels, means and scales from a DataFrame, a 2-D array or a sparse matrix."""
        if sparse.issparse(data):
            matrix = _finite_sparse(data)
            _require_rows(matrix.shape[0])
            self._columns, self._partial = None, None
            self._width, self._divisors = matrix.shape[1], _largest(matrix) if self.scale else None
        else:
            frame = _as_frame(data)
            _require_rows(len(frame))
            names = _unique_names(frame)
            found = [RawColumn.of(frame.iloc[:, k], name) for k, name in enumerate(names)]
            self._take(
                learn_column(raw, self.rules) if self.as_is else fit_column(raw, self.scale, self.rules)
                for raw in found
            )
            self._partial, self._width, self._divisors = None, None, None
        return self

    def partial_fit(self, data: Any) -> Self:
        """Learn from some more rows of a DataFrame or 2-D array, as if all had come to :meth:`fit` at once.

        Levels are the same; means and deviations agree but for rounding. After :meth:`fit` it begins anew.
        """
        if sparse.issparse(data):
            raise DataError("a sparse matrix is learned whole: use fit")
        frame = _as_frame(data)
        _require_rows(len(frame))
        names = _unique_names(frame)
        seen = self._partial or tuple(PartialColumn(name) for name in names)
        if [column.name for column in seen] != names:
            raise DataError(f"columns {', '.join(names)} came after {', '.join(column.name for column in seen)}")
        found = [RawColumn.of(frame.iloc[:, k], name) for k, name in enumerate(names)]
        for raw in found:
            if self.rules.refuses(raw.name):
                raw.refuse_gaps()
        self._partial = tuple(
            learn_more(column, raw) if self.as_is else column.after(raw)
            for column, raw in zip(seen, found, strict=True)
        )
        self._columns, self._width, self._divisors = None, None, None
        return self

    def _take(self, made: Iterable[Made]) -> None:
        found = list(made)
        self._columns = tuple(column for one in found for column in one.columns)
        self.remarks = tuple(remark for one in found for remark in one.remarks)

    def to_summary(self) -> dict[str, Any]:
        """What was learned so far as sums that add up over holders of rows, in plain JSON values."""
        if self._width is not None:
            return {"width": self._width, "largest": None if self._divisors is None else self._divisors.tolist()}
        if self._partial is None:
            raise DataError("only what was learned batch by batch, or from a sparse matrix, can be summed up")
        return {"columns": [column.to_state(self.scale, self.rules) for column in self._partial]}

    @classmethod
    def from_summaries(
        cls,
        summaries: Mapping[str, Mapping[str, Any]],
        *,
        scale: bool,
        missing: MissingRule | Mapping[str, MissingRule] = "indicator",
        max_levels: int | None = None,
        as_is: bool = False,
    ) -> Self:
        """The encoder of everybody's rows together, from everybody's summaries by name."""
        encoder = cls(scale=scale, as_is=as_is, missing=missing, max_levels=max_levels)
        for owner, summary in summaries.items():
            try:
                encoder._add(summary)
            except (DataError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise DataError(f"client {owner!r}: {error}") from error
        return encoder

    def _add(self, summary: Mapping[str, Any]) -> None:
        if "width" in summary:
            self._add_sparse(int(summary["width"]), summary["largest"])
            return
        columns = tuple(PartialColumn.from_state(state) for state in summary["columns"])
        names = [column.name for column in columns]
        seen = self._partial or tuple(PartialColumn(name) for name in names)
        if self._width is not None or [column.name for column in seen] != names:
            raise DataError(f"columns {', '.join(names)} came after {', '.join(column.name for column in seen)}")
        self._partial = tuple(mine.joined(other) for mine, other in zip(seen, columns, strict=True))

    def _add_sparse(self, width: int, largest: Any) -> None:
        if self._partial is not None or self._width not in (None, width):
            raise DataError(f"a matrix of {width} columns came after other columns; all clients need the same")
        self._width = width
        if self.scale:
            divisors = np.asarray(largest, dtype=np.float64)
            if divisors.shape != (width,) or not (np.isfinite(divisors).all() and (divisors > 0).all()):
                raise DataError("a sparse matrix needs one positive number a column to be divided by")
            self._divisors = divisors if self._divisors is None else np.maximum(self._divisors, divisors)

    def transform(self, data: Any) -> Matrix:
        """Encode rows; columns are found by name and those not seen at fit are ignored."""
        if self._width is not None:
            return self._transform_sparse(data)
        columns = self._fitted()
        if sparse.issparse(data):
            raise DataError("this encoder was fitted on named columns and cannot encode a sparse matrix")
        frame = _as_frame(data)
        found = _find_columns(frame, columns)
        if self.as_is:
            return assemble_as_is(columns, found, len(frame))
        if self.gives_sparse:
            return assemble_sparse(columns, found, len(frame))
        return assemble_dense(columns, found, len(frame))

    def fit_transform(self, data: Any) -> Matrix:
        """Fit on these rows and encode them."""
        return self.fit(data).transform(data)

    @property
    def columns_in(self) -> list[str]:
        """Names of the raw columns the encoder needs; a sparse matrix has numbered ones."""
        if self._width is not None:
            return self.feature_names_out
        return list(dict.fromkeys(column.name for column in self._fitted()))

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the encoded features, such as ``age`` and ``education=Masters``."""
        if self._width is not None:
            return [f"x{k}" for k in range(self._width)]
        if self.as_is:
            return names_as_is(self._fitted())
        return [name for column in self._fitted() for name in column.names_out]

    @property
    def categorical(self) -> tuple[int, ...]:
        """Which encoded features hold codes of categories: none, unless columns are taken as they are."""
        return categorical_places(self._fitted()) if self.as_is and self._width is None else ()

    @property
    def width_out(self) -> int:
        """How many encoded features there are."""
        if self._width is not None:
            return self._width
        return len(self._fitted()) if self.as_is else total_width(self._fitted())

    @property
    def entries_a_row(self) -> int:
        """How many entries a row of a sparse result has at most."""
        return len(self._fitted())

    @property
    def gives_sparse(self) -> bool:
        """Whether :meth:`transform` returns a sparse array."""
        return self._width is not None or (not self.as_is and sparse_is_faster(self._fitted()))

    @property
    def sparse_columns(self) -> int | None:
        """How many columns the sparse matrix has that this was fitted on; None where it was fitted on named columns."""
        return self._width

    @property
    def numbers_with_gaps(self) -> list[str]:
        """The numbers and dates of which some were missing at fit."""
        return [one.name for one in self._fitted() if isinstance(one, NumberColumn) and one.missing == "seen"]

    def fill_with(self, fills: Mapping[str, float]) -> None:
        """Put other values in the place of those that are missing, by column: medians, where these can be had."""
        self._columns = tuple(
            replace(one, fill=fills[one.name]) if isinstance(one, NumberColumn) and one.name in fills else one
            for one in self._fitted()
        )

    @property
    def kinds(self) -> dict[str, str]:
        """What each raw column was taken for: ``"number"``, ``"date"``, or the kind of its levels."""
        found: dict[str, str] = {}
        for column in self._fitted() if self._width is None else ():
            if isinstance(column, (NumberColumn, LevelColumn)):
                found[column.name] = column.kind if isinstance(column, NumberColumn) or column.levels else "nothing"
        return found

    @property
    def widths(self) -> dict[str, int]:
        """How many features were made of each raw column."""
        found: dict[str, int] = {}
        for column in self._fitted():
            found[column.name] = found.get(column.name, 0) + (1 if self.as_is else column.width)
        return found

    @property
    def places_of_gaps(self) -> dict[str, int]:
        """Which feature says that a raw column's value is missing, where one does."""
        named = {f"{name} is missing": name for name in self.columns_in}
        return {named[one]: place for place, one in enumerate(self.feature_names_out) if one in named}

    def remarks_on(self, data: Any) -> list[str]:
        """What of new rows the model cannot use as they are: values of categories that were not there at fit."""
        if self._width is not None:
            return []
        columns = self._fitted()
        said = []
        for column, raw in zip(columns, _find_columns(_as_frame(data), columns), strict=True):
            if isinstance(column, LevelColumn) and (unseen := column.unseen(raw)).any():
                some = listed(raw.series[unseen].unique().tolist(), most=3)
                taken = "the place of all other values" if column.other else "none of its levels"
                said.append(
                    f"column {column.name!r}: {int(unseen.sum()):,} of {len(unseen):,} rows have a value that no "
                    f"training row has, such as {some}; they count as {taken}"
                )
        return said

    def to_state(self) -> dict[str, Any]:
        """Return what was learned as plain JSON values."""
        columns = self._fitted() if self._width is None else None
        return Learned(self.scale, columns, self._width, self._divisors, self.as_is and columns is not None).to_state()

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Rebuild a fitted encoder from :meth:`to_state`; anything that it could not have given is refused."""
        found = learned_from_state(state)
        encoder = cls(scale=found.scale, as_is=found.as_is)
        encoder._columns, encoder._width, encoder._divisors = found.columns, found.width, found.divisors
        return encoder

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Rebuild a fitted encoder from a file that holds its state."""
        return cls.from_state(from_json(content))

    def _fitted(self) -> tuple[Column, ...]:
        if self._columns is None and self._partial is not None:
            self._take(
                learned(column, self.rules) if self.as_is else column.made(self.scale, self.rules)
                for column in self._partial
            )
        if self._columns is None:
            raise DataError("this encoder has not been fitted; call fit with the training rows first")
        return self._columns

    def _transform_sparse(self, data: Any) -> Matrix:
        if not sparse.issparse(data) and not isinstance(data, np.ndarray):
            raise DataError("this encoder was fitted on a sparse matrix and encodes matrices only, not named columns")
        matrix = _finite_sparse(data)
        if matrix.shape[1] != self._width:
            raise DataError(f"the matrix has {matrix.shape[1]} columns; the encoder was fitted on {self._width}")
        if self._divisors is None:
            return matrix
        # The values alone are new: the caller's matrix keeps its own, and both share where they stand.
        values = self._divisors[matrix.indices]
        with np.errstate(over="ignore"):
            np.divide(matrix.data, values, out=values)
        if not np.isfinite(values).all():
            raise DataError("the matrix holds values far larger than those it was fitted on; rescale them")
        return sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def _as_frame(data: Any) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, np.ndarray):
        if data.ndim != 2:
            raise DataError(f"an array of {data.ndim} dimensions came; rows and columns make two")
        frame = pd.DataFrame(data, columns=[f"x{k}" for k in range(data.shape[1])])
        return frame.infer_objects() if data.dtype == object else frame
    raise DataError(f"a DataFrame, a 2-D array or a sparse matrix is needed, not {type(data).__name__}")


def _unique_names(frame: pd.DataFrame) -> list[str]:
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"columns {', '.join(twice)} occur more than once; names must differ")
    return names


def _find_columns(frame: pd.DataFrame, columns: Sequence[Column]) -> list[RawColumn]:
    """Each column's raw one, looked at once however many columns are made of it."""
    places = {name: k for k, name in enumerate(_unique_names(frame))}
    names = dict.fromkeys(column.name for column in columns)
    missing = [name for name in names if name not in places]
    if missing:
        raise DataError(f"columns {', '.join(missing)} are missing; the encoder was fitted on them")
    found = {name: RawColumn.of(frame.iloc[:, places[name]], name) for name in names}
    return [found[column.name] for column in columns]


def _require_rows(rows: int) -> None:
    if rows == 0:
        raise DataError("there are no rows to fit the encoder on")


def _finite_sparse(data: Any) -> Matrix:
    matrix = sparse.csr_array(data, dtype=np.float64)
    finite = int(np.count_nonzero(np.isfinite(matrix.data)))
    if infinite := matrix.data.size - finite:
        raise DataError(f"the matrix holds {infinite:,} values that are missing or infinite; replace them")
    return matrix


def _largest(matrix: Matrix) -> Array:
    """The largest absolute value of each column, and 1 for columns of zeros."""
    largest = np.zeros(matrix.shape[1])
    np.maximum.at(largest, matrix.indices, np.abs(matrix.data))
    return np.where(largest > 0.0, largest, 1.0)
