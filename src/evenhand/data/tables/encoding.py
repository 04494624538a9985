"""Turn one party's raw columns into the numbers its model works on, learning from its own training rows only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from scipy import sparse

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.data.tables import column_kinds, curve_counts
from evenhand.data.tables.absence import ABSENT, spread, with_mark
from evenhand.data.tables.category_columns import CategoryColumn
from evenhand.data.tables.columns import (
    Bin,
    ColumnSummary,
    Direction,
    EncodedColumn,
    FitRules,
    MissingRule,
    NumbersRule,
    Rules,
    Shape,
    as_is,
    count_blocks,
    count_features,
    dense,
    from_json,
    in_csr,
    require,
    require_keys,
    sparse_is_faster,
)
from evenhand.data.tables.curve_columns import CurveColumn
from evenhand.data.tables.matrix_encoding import MatrixScaling
from evenhand.data.tables.numeric_columns import NumericColumn, NumericSummary
from evenhand.data.tables.raw import NUMBER, RawColumn
from evenhand.errors import DataError
from evenhand.printing import listed

_SIGN: Final = {"up": 1, "down": -1}
VERSION: Final = 1
"""The version of the state that is written and read."""


class PartyEncoder:
    """Encode one party's columns.

    Text, category and boolean columns become one 0/1 feature for each level, and no level is left out. A value not seen
    at fit becomes zeros. All levels that a pandas category declares count, seen or not. Numeric columns are
    standardised with the mean and population standard deviation of the rows of :meth:`fit`, or become curves. A date
    becomes the number of its day, standardised, and 0/1 features for its month, its weekday and, if there are times,
    its hour.

    A missing category is a level of its own. A missing number or date is filled with the median, and a 0/1 feature
    marks it. Where rows come batch by batch or from several clients, the mean takes the median's place, because medians
    do not add up. Text that is different in every row is an id and gives no features.

    Sparse matrices are divided by each column's largest absolute value and not centred, which keeps them sparse. With
    ``scale=False`` a sparse matrix passes as it is: float64 in CSR form is not copied, the result shares its memory.

    The result is a float64 array, or a :class:`scipy.sparse.csr_array` where products with it are faster. Which of the
    two depends on the columns, never on the rows.

    Parameters
    ----------
    scale : standardise numeric columns; otherwise they pass as they are.
    as_is : one feature a column, for trees: numbers are not scaled and may be missing, categories become codes, and a
        missing value or a level not seen at fit is NaN.
    missing : ``"indicator"`` encodes missing values as said above, ``"refuse"`` raises an error; or one of the two
        by a column's name.
    max_levels : how many levels of a column to keep, the most frequent ones; all others share one feature.
    numbers : ``"curves"`` makes piecewise-linear curves of numbers, ``"standard"`` standardises them, ``"bins"`` makes
        0/1 features of bins with equal shares of rows; or one of the three by a column's name. ``"auto"`` is
        `auto_numbers`.
    monotone : ``"up"`` for columns of numbers with which scores may only rise, ``"down"`` where they may only fall, by
        name. A missing value is free. For linear models with ``subspace``, and trees.
    auto_numbers : what ``"auto"`` is. Estimators and jobs set it: curves for linear models across columns.

    Attributes
    ----------
    remarks : sentences about columns that are encoded in a way users may not expect.
    marks_absence : whether the last feature marks rows that the party lacks, because there were some in training.
    """

    def __init__(
        self,
        *,
        scale: bool = True,
        as_is: bool = False,
        missing: MissingRule | Mapping[str, MissingRule] = "indicator",
        max_levels: int | None = None,
        numbers: NumbersRule | Mapping[str, NumbersRule] = "auto",
        monotone: Mapping[str, Direction] | None = None,
        auto_numbers: NumbersRule = "standard",
    ) -> None:
        self.scale, self.as_is = scale and not as_is, as_is
        self.rules = Rules(missing, max_levels, numbers, auto_numbers, {} if monotone is None else monotone)
        self._rules = FitRules(**vars(self.rules), scale=self.scale, as_is=as_is)
        self.remarks: tuple[str, ...] = ()
        self.marks_absence = False
        # One of the three: fitted columns, summaries to fit them from, or a matrix with numbered columns.
        self._columns: tuple[EncodedColumn, ...] | None = None
        self._summaries: tuple[ColumnSummary, ...] | None = None
        self._matrix: MatrixScaling | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters of the encoder."""
        return {"scale": self.scale, "as_is": self.as_is, **vars(self.rules)}

    def __repr__(self) -> str:
        usual = {"scale": True, "as_is": False, **vars(Rules())}
        given = (f"{name}={value!r}" for name, value in self.settings.items() if value != usual[name])
        return f"{type(self).__name__}({', '.join(given)})"

    def unfitted(self, **changed: Any) -> Self:
        """Return a new encoder with the same parameters, or some changed, that has learned nothing."""
        return type(self)(**{**self.settings, **changed})

    @property
    def is_fitted(self) -> bool:
        """Whether the encoder has learned from rows."""
        return any(one is not None for one in (self._columns, self._summaries, self._matrix))

    def fit(self, data: Any) -> Self:
        """Learn levels, means and scales from a DataFrame, a 2-D array or a sparse matrix."""
        if sparse.issparse(data):
            _require_rows(data.shape[0])
            self._matrix = MatrixScaling.fit(data, self.scale)
            self._columns, self._summaries = None, None
        else:
            raws = _raw_columns(data)
            self.rules.require_columns([raw.name for raw in raws])
            self._set_columns([column_kinds.fit_column(raw, self._rules) for raw in raws])
            self._summaries, self._matrix = None, None
        return self

    def partial_fit(self, data: Any) -> Self:
        """Learn from more rows of a DataFrame or 2-D array, as if all had come to :meth:`fit` at once.

        Levels are the same; means and deviations agree up to rounding. After :meth:`fit` it starts over.
        """
        if sparse.issparse(data):
            raise DataError("a sparse matrix is learned whole: use fit")
        raws = _raw_columns(data)
        self.rules.require_columns([raw.name for raw in raws])
        seen = self._summaries_of([raw.name for raw in raws])
        for raw in raws:
            if self._rules.refuses(raw.name):
                raw.refuse_missing()
        self._summaries = tuple(column_kinds.summarise(raw, one) for raw, one in zip(raws, seen, strict=True))
        self._columns, self._matrix = None, None
        return self

    def _summaries_of(self, names: Sequence[str]) -> Sequence[ColumnSummary]:
        """Return the summaries so far, of these columns and no others."""
        seen: Sequence[ColumnSummary] = self._summaries or [column_kinds.EmptySummary(name) for name in names]
        if [one.name for one in seen] != list(names):
            raise DataError(f"columns {', '.join(names)} came after {', '.join(one.name for one in seen)}")
        return seen

    def _set_columns(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = tuple(columns)
        self.remarks = tuple(remark for column in columns for remark in column.remarks)

    def to_summary(self) -> dict[str, Any]:
        """Return what was learned so far as sums that add up over clients, in plain JSON values."""
        if self._matrix is not None:
            return self._matrix.to_summary()
        if self._summaries is None:
            raise DataError("only an encoder fitted with partial_fit, or on a sparse matrix, has a summary")
        return {"columns": [one.to_state(self._rules) for one in self._summaries]}

    @classmethod
    def from_summaries(
        cls,
        summaries: Mapping[str, Mapping[str, Any]],
        *,
        scale: bool,
        missing: MissingRule | Mapping[str, MissingRule] = "indicator",
        max_levels: int | None = None,
        numbers: NumbersRule | Mapping[str, NumbersRule] = "auto",
        auto_numbers: NumbersRule = "standard",
        monotone: Mapping[str, Direction] | None = None,
        as_is: bool = False,
    ) -> Self:
        """Return the encoder of all clients' rows together, given each client's summary by name."""
        rules = Rules(missing, max_levels, numbers, auto_numbers, {} if monotone is None else monotone)
        encoder = cls(scale=scale, as_is=as_is, **vars(rules))
        for owner, summary in summaries.items():
            try:
                encoder._add(summary)
            except (DataError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise DataError(f"client {owner!r}: {error}") from error
        return encoder

    def curve_edges(self) -> dict[str, list[float]]:
        """Return the edges between which clients count their values, for columns that become curves; see `finish`."""
        found = {}
        for one, summary in zip(self._fitted() if self._summaries else (), self._summaries or (), strict=True):
            if not (isinstance(one, NumericColumn) and isinstance(summary, NumericSummary)):
                continue
            if column_kinds.becomes_curve(one, self._rules) and (edges := curve_counts.edges_of(summary, one)):
                found[one.name] = edges
        return found

    def count_values(self, data: Any, edges: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        """Return one client's counts of its values between these edges."""
        raws = {raw.name: raw for raw in _find_columns(as_frame(data), self._fitted())}
        if strange := [name for name in edges if name not in raws or self.kinds[name] != NUMBER]:
            raise DataError(f"there are edges for {strange[0]!r}, which is not a column of numbers")
        return {
            name: curve_counts.count(raws[name].known, curve_counts.checked_edges(one, name))
            for name, one in edges.items()
            if raws[name].kind is not None
        }

    def add_curves(self, edges: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        """Make the curves of all clients' rows, given their counts by client's name."""
        made = []
        for one in self._fitted():
            curved = None
            if isinstance(one, NumericColumn) and one.name in edges:
                sides = curve_counts.checked_edges(edges[one.name], one.name)
                counts = curve_counts.added(told, one.name, sides)
                curved = curve_counts.curve(one, sides, counts, self._rules)
            made.append(one if curved is None else replace(curved, remarks=one.remarks))
        self._set_columns(made)

    def _add(self, summary: Mapping[str, Any]) -> None:
        if (self._matrix if "columns" in summary else self._summaries) is not None:
            raise DataError("some clients have a sparse matrix and others named columns; all need the same")
        if "columns" in summary:
            more = [column_kinds.summary_from_state(state) for state in summary["columns"]]
            seen = self._summaries_of([one.name for one in more])
            self._summaries = tuple(mine.merge(other) for mine, other in zip(seen, more, strict=True))
        else:
            matrix = MatrixScaling.from_summary(summary, self.scale)
            self._matrix = matrix if self._matrix is None else self._matrix.merge(matrix)

    def transform(self, data: Any) -> Matrix:
        """Encode rows; columns are found by name and those not seen at fit are ignored."""
        found = self._transformed(data)
        return with_mark(found) if self.marks_absence else found

    def _transformed(self, data: Any) -> Matrix:
        if self._matrix is not None:
            return self._matrix.transform(data)
        columns = self._fitted()
        if sparse.issparse(data):
            raise DataError("this encoder was fitted on named columns and cannot encode a sparse matrix")
        frame = as_frame(data)
        assemble = as_is if self.as_is else in_csr if self.gives_sparse else dense
        return assemble(columns, _find_columns(frame, columns), len(frame))

    def marking_absence(self) -> Self:
        """Return this fitted encoder with one more feature, which marks rows that the party lacks."""
        found = copy(self)
        found.marks_absence = True
        return found

    def require_learned(self, owner: str, there: Booleans) -> None:
        """Refuse rows that a party lacks if it had all rows in training: its model has no number for them."""
        if not there.all() and not self.marks_absence:
            raise DataError(
                f"{owner} lacks {int((~there).sum()):,} of {len(there):,} rows, and had all rows in training: the "
                'model has learned nothing for rows that it lacks. Train with ids = "left" on rows some of which it '
                "lacks, or without it"
            )

    def spread(self, encoded: Matrix, there: Booleans) -> Matrix:
        """Return encoded rows among rows that the party lacks, which have zeros (NaN for trees) and the mark.

        Parameters
        ----------
        encoded : the rows that the party has, as :meth:`transform` returns them.
        there : which rows of the result these are.
        """
        if there.all():
            return encoded
        return spread(encoded, there, marked=self.marks_absence, as_is=self.as_is)

    def fit_transform(self, data: Any) -> Matrix:
        """Fit on these rows and encode them."""
        return self.fit(data).transform(data)

    @property
    def columns_in(self) -> list[str]:
        """Names of the raw columns the encoder needs; a sparse matrix has numbered ones."""
        if self._matrix is not None:
            return self._matrix.feature_names
        return [column.name for column in self._fitted()]

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the encoded features, such as ``age`` and ``education=Masters``."""
        if self._matrix is not None:
            found = list(self._matrix.feature_names)
        else:
            found = [name for column in self._fitted() for name in column.feature_names(self.as_is)]
        return [*found, ABSENT] if self.marks_absence else found

    @property
    def bins(self) -> dict[str, list[Bin]]:
        """The parts of each raw column's values, as a scorecard lists them; a sparse matrix has none."""
        return {} if self._matrix is not None else {one.name: one.bins() for one in self._fitted()}

    def shapes(self, weights: Array) -> dict[str, Shape]:
        """Return what each column that is a curve, or bins, adds to the score, given the weights of all features."""
        return {column.name: column.shape(weights[place]) for column, place in self._curves()}

    def bands(self, covariance: Array) -> dict[str, dict[str, Any]]:
        """Return the standard errors of the shapes, given the covariance of the weights of all features."""
        return {column.name: column.band(covariance[place, place]) for column, place in self._curves()}

    def _curves(self) -> Iterator[tuple[CurveColumn, slice]]:
        """Yield each column that is a curve, or bins, and the places of its features."""
        start = 0
        for column in self._fitted() if self._matrix is None and not self.as_is else ():
            width = sum(column.widths)
            if isinstance(column, CurveColumn):
                yield column, slice(start, start + width)
            start += width

    @property
    def categorical(self) -> tuple[int, ...]:
        """The encoded features that hold codes of categories: none, unless columns are taken as they are."""
        if not self.as_is or self._matrix is not None:
            return ()
        blocks = (column for column in self._fitted() for _ in column.widths)
        return tuple(place for place, column in enumerate(blocks) if isinstance(column, CategoryColumn))

    @property
    def signs(self) -> Integers | None:
        """For each encoded feature the sign that its weight must have, or 0 for any; None without `monotone`."""
        asked = self.rules.monotone
        if not asked:
            return None
        if strange := [name for name in asked if name not in self.columns_in]:
            raise DataError(
                f"monotone names {strange[0]!r}, which is not a column; there are {listed(self.columns_in)}"
            )
        if self._matrix is not None:
            signs = [_SIGN.get(asked.get(name, ""), 0) for name in self.columns_in]
            return np.array([*signs, 0] if self.marks_absence else signs)
        found = []
        for column in self._fitted():
            width = len(column.widths) if self.as_is else sum(column.widths)
            signs = column.signs(_SIGN[asked[column.name]]) if column.name in asked else [0] * width
            found += signs[:1] if self.as_is else signs
        return np.array([*found, 0] if self.marks_absence else found)

    @property
    def width_out(self) -> int:
        """Number of encoded features."""
        if self._matrix is not None:
            width = self._matrix.width
        else:
            width = count_blocks(self._fitted()) if self.as_is else count_features(self._fitted())
        return width + self.marks_absence

    @property
    def encoded_columns(self) -> tuple[EncodedColumn, ...]:
        """What was learned of each raw column; none for a sparse matrix."""
        return () if self._matrix is not None else self._fitted()

    @property
    def entries_a_row(self) -> int:
        """The most entries that a row of a sparse result can have."""
        return count_blocks(self._fitted())

    @property
    def gives_sparse(self) -> bool:
        """Whether :meth:`transform` returns a sparse array."""
        return self._matrix is not None or (not self.as_is and sparse_is_faster(self._fitted()))

    @property
    def sparse_columns(self) -> int | None:
        """Number of columns of the sparse matrix the encoder was fitted on; None if it was fitted on named columns."""
        return None if self._matrix is None else self._matrix.width

    @property
    def unfinished(self) -> list[str]:
        """Names of the columns of which sums are not enough: numbers with missing values, for medians, and curves."""
        return [one.name for one in self._fitted() if isinstance(one, NumericColumn) and self._needs_values(one)]

    def _needs_values(self, column: NumericColumn) -> bool:
        return column.missing == "seen" or column_kinds.becomes_curve(column, self._rules)

    def finish(self, name: str, known: Array) -> None:
        """Give all known values of a column: its missing values are then filled with the median, and curves fitted."""
        self._set_columns(
            [
                column_kinds.fit_numbers(replace(one, fill=float(np.median(known))), known, self._rules)
                if isinstance(one, NumericColumn) and one.name == name
                else one
                for one in self._fitted()
            ]
        )

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each raw column: ``"number"``, ``"date"``, the kind of its levels, or ``"nothing"``."""
        return {
            column.name: "nothing" if isinstance(column, CategoryColumn) and not column.levels else column.kind
            for column in (self._fitted() if self._matrix is None else ())
        }

    @property
    def widths(self) -> dict[str, int]:
        """Number of features of each raw column."""
        return {one.name: len(one.widths) if self.as_is else sum(one.widths) for one in self._fitted()}

    @property
    def missing_features(self) -> dict[str, int]:
        """Place of the feature that marks a raw column's missing values, by column, where there is one."""
        named = {f"{name} is missing": name for name in self.columns_in}
        return {named[one]: place for place, one in enumerate(self.feature_names_out) if one in named}

    def remarks_on(self, data: Any) -> list[str]:
        """Describe values in new rows that fit did not see.

        Where only the most frequent levels were kept, the others may have been seen: nothing is said of them.
        """
        if self._matrix is not None:
            return []
        columns = self._fitted()
        said = []
        for column, raw in zip(columns, _find_columns(as_frame(data), columns), strict=True):
            if isinstance(column, CategoryColumn) and not column.other and (unseen := column.unseen(raw)).any():
                some = listed(raw.series[unseen].unique().tolist(), most=3)
                said.append(
                    f"column {column.name!r}: {int(unseen.sum()):,} of {len(unseen):,} rows have a value that no "
                    f"training row has, such as {some}; they are encoded as none of its levels"
                )
        return said

    def to_state(self) -> dict[str, Any]:
        """Return what was learned as plain JSON values."""
        head: dict[str, Any] = {"version": VERSION, "scale": self.scale}
        if self.marks_absence:
            head["absence"] = True
        if self._matrix is not None:
            return {**head, **self._matrix.to_state()}
        columns = [column.to_state() for column in self._fitted()]
        return {**head, **({"as_is": True} if self.as_is else {}), "columns": columns}

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Rebuild a fitted encoder from :meth:`to_state`; refuse a state that no encoder could have written."""
        version: Any = state.get("version") if isinstance(state, dict) else None
        require(type(version) is int, "version", "a number")
        if version != VERSION:
            raise DataError(
                f"the encoder's state has version {version}; this evenhand reads version {VERSION}: use the evenhand "
                "that wrote it"
            )
        scale, as_is = state.get("scale"), "as_is" in state
        require(isinstance(scale, bool), "scale", "true or false")
        encoder = cls(scale=scale, as_is=as_is)
        encoder.marks_absence = "absence" in state
        require(not encoder.marks_absence or state["absence"] is True, "absence", "true")
        content = next((key for key in ("divisors", "unscaled") if key in state), "columns")
        named = content == "columns"
        optional = [*(["as_is"] if as_is and named else []), *(["absence"] if encoder.marks_absence else [])]
        require_keys(state, ("version", "scale", *optional, content), "the state")
        if not named:
            encoder._matrix = MatrixScaling.from_state(state, scale)
            return encoder
        require(not as_is or (state["as_is"] is True and not scale), "as_is", "true, of an encoder that does not scale")
        require(isinstance(state["columns"], list), "columns", "a list")
        columns = [
            column_kinds.column_from_state(one, f"columns[{k}]", scale) for k, one in enumerate(state["columns"])
        ]
        require(len({column.name for column in columns}) == len(columns), "columns", "a list of different names")
        encoder._columns = tuple(columns)
        return encoder

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Rebuild a fitted encoder from a file that holds its state."""
        return cls.from_state(from_json(content))

    def _fitted(self) -> tuple[EncodedColumn, ...]:
        if self._columns is None and self._summaries is not None:
            self._set_columns([one.fitted(self._rules) for one in self._summaries])
        if self._columns is None:
            raise DataError("this encoder has not been fitted; call fit with the training rows first")
        return self._columns


def column_names(data: Any) -> list[str]:
    """Return the names of a table's columns; those of an array or a sparse matrix are numbered."""
    if isinstance(data, pd.DataFrame):
        return [str(name) for name in data.columns]
    return [f"x{k}" for k in range(data.shape[1])]


def as_frame(data: Any) -> pd.DataFrame:
    """Return a DataFrame, or a 2-D array as one."""
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, np.ndarray):
        if data.ndim != 2:
            raise DataError(f"an array of {data.ndim} dimensions came; rows and columns make two")
        frame = pd.DataFrame(data, columns=column_names(data))
        return frame.infer_objects() if data.dtype == object else frame
    raise DataError(f"a DataFrame, a 2-D array or a sparse matrix is needed, not {type(data).__name__}")


def _unique_names(frame: pd.DataFrame) -> list[str]:
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"columns {', '.join(twice)} occur more than once; names must differ")
    return names


def _raw_columns(data: Any) -> list[RawColumn]:
    frame = as_frame(data)
    _require_rows(len(frame))
    return [RawColumn.of(frame.iloc[:, k], name) for k, name in enumerate(_unique_names(frame))]


def _find_columns(frame: pd.DataFrame, columns: Sequence[EncodedColumn]) -> list[RawColumn]:
    """Return the raw column of each fitted one."""
    places = {name: k for k, name in enumerate(_unique_names(frame))}
    if missing := [column.name for column in columns if column.name not in places]:
        raise DataError(f"columns {', '.join(missing)} are missing; the encoder was fitted on them")
    return [RawColumn.of(frame.iloc[:, places[column.name]], column.name) for column in columns]


def _require_rows(rows: int) -> None:
    if rows == 0:
        raise DataError("there are no rows to fit the encoder on")
