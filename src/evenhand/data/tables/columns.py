"""What every kind of column does: learn, merge, encode, name its features, write and read its state.

Beside it stand the rules of encoding, and the functions that put encoded columns side by side in a matrix.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
from scipy import sparse

from evenhand.arrays import Array, Integers, Matrix
from evenhand.data.tables.raw import RawColumn
from evenhand.errors import DataError, InputError
from evenhand.printing import listed, quoted

MissingRule: TypeAlias = Literal["indicator", "refuse"]
NumbersRule: TypeAlias = Literal["auto", "curves", "standard", "bins"]
"""How numbers become features: as piecewise-linear curves of their rank, standardised, or as 0/1 features of bins.

``"auto"`` is the default of the model: curves of linear ones, standardised numbers of others.
"""
Direction: TypeAlias = Literal["up", "down"]
"""Whether scores may only rise, or only fall, with a column."""
MissingMode: TypeAlias = Literal["refused", "unseen", "seen"]
"""How a fitted column takes missing values: it refuses them, or accepts them and fit saw none, or saw some."""
ID_ROWS: Final = 50
"""Text with a different value in each of at least this many rows is treated as an id."""
MANY_LEVELS: Final = 500
"""A category with more levels than this gets a remark."""


@dataclass(frozen=True)
class Rules:
    """The user's rules for missing values and for numbers, for all columns or by name, and how many levels to keep.

    Attributes
    ----------
    monotone
        Columns with which scores may only rise, or only fall.
    auto_numbers
        What ``numbers="auto"`` is; the model decides.
    """

    missing: MissingRule | Mapping[str, MissingRule] = "indicator"
    max_levels: int | None = None
    numbers: NumbersRule | Mapping[str, NumbersRule] = "auto"
    auto_numbers: NumbersRule = "standard"
    monotone: Mapping[str, Direction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.monotone, Mapping):
            raise InputError(f"monotone is {quoted(self.monotone)}; give 'up' or 'down' by column: {{'income': 'up'}}")
        for name, direction in self.monotone.items():
            if direction not in get_args(Direction):
                raise InputError(f"monotone: column {name!r} has {quoted(direction)}; choose 'up' or 'down'")
        for key, known in (("missing", get_args(MissingRule)), ("numbers", get_args(NumbersRule))):
            given = getattr(self, key)
            for rule in given.values() if isinstance(given, Mapping) else [given]:
                if rule not in known:
                    where = " for a column" if isinstance(given, Mapping) else ""
                    raise InputError(f"{key} is {quoted(rule)}{where}; choose {' or '.join(map(repr, known))}")
        if self.max_levels is not None and (type(self.max_levels) is not int or self.max_levels < 1):
            raise InputError(f"max_levels is {quoted(self.max_levels)}; it is a whole number above 0, or None")

    def refuses(self, name: str) -> bool:
        """Tell whether missing values in this column are an error."""
        rule = self.missing.get(name, "indicator") if isinstance(self.missing, Mapping) else self.missing
        return rule == "refuse"

    @property
    def named(self) -> dict[str, Mapping[str, str]]:
        """The rules that are given by the column's name."""
        rules: dict[str, Any] = {"missing": self.missing, "numbers": self.numbers, "monotone": self.monotone}
        return {key: rule for key, rule in rules.items() if isinstance(rule, Mapping)}

    def require_columns(self, names: Sequence[str]) -> None:
        """Refuse rules for columns that do not exist."""
        for key, rule in self.named.items():
            if strange := [name for name in rule if name not in names]:
                raise DataError(f"{key} names {strange[0]!r}, which is not a column; there are {listed(names)}")

    def of_columns(self, names: Sequence[str]) -> Rules:
        """Return the rules with those of other columns left out."""
        kept = {key: {name: one for name, one in rule.items() if name in names} for key, rule in self.named.items()}
        return replace(self, **kept)  # type: ignore[arg-type]

    def numbers_of(self, name: str) -> NumbersRule:
        """Return how this column's numbers become features."""
        rule = self.numbers.get(name, "auto") if isinstance(self.numbers, Mapping) else self.numbers
        return self.auto_numbers if rule == "auto" else rule


DEFAULT_RULES: Final = Rules()


@dataclass(frozen=True)
class FitRules(Rules):
    """All that fitting a column depends on: the user's rules, and whether to scale or to take columns as they are."""

    scale: bool = True
    as_is: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        named = self.numbers.values() if isinstance(self.numbers, Mapping) else [self.numbers]
        if not (self.scale or self.as_is) and (made := {"curves", "bins"} & set(named)):
            raise InputError(
                f"numbers is {min(made)!r}, but scale is false, which leaves numbers as they are; remove one of the two"
            )

    def mode(self, name: str, missing: bool) -> MissingMode:
        """Return how a column takes missing values, given whether the training rows have any.

        Columns taken as they are have no indicator: missing values stay NaN.
        """
        if self.refuses(name):
            return "refused"
        return "seen" if missing and not self.as_is else "unseen"


class Bin(NamedTuple):
    """A part of a column's values: its name, and the column's features at its lower and at its upper end."""

    name: str
    low: Array
    high: Array


class Shape(NamedTuple):
    """What a curve, or bins, of a number add to the score.

    Attributes
    ----------
    values
        Where segments begin and end, in ascending order.
    ends
        Contributions at the lower and at the upper end of each segment.
    shares
        Share of the known training values in each segment; a value at a knot counts half on each side.
    missing
        Contribution of a missing value; None if the training rows had none.
    errors, missing_error
        Standard errors of `ends` and `missing`; None if they were not estimated.
    """

    values: tuple[float, ...]
    ends: tuple[tuple[float, float], ...]
    shares: tuple[float, ...]
    missing: float | None
    errors: tuple[tuple[float, float], ...] | None = None
    missing_error: float | None = None


Block: TypeAlias = Array | Integers
SomeSummary = TypeVar("SomeSummary", bound="ColumnSummary")


class EncodedColumn(ABC):
    """A fitted column.

    Its features come in blocks. A block is one number (an array of floats), or 0/1 features of which a row has at most
    one (an array of integers: the place of that feature, -1 for none).

    Attributes
    ----------
    remarks
        Sentences for the user where the encoding may surprise.
    """

    name: str
    missing: MissingMode
    remarks: tuple[str, ...]

    @property
    @abstractmethod
    def kind(self) -> str:
        """What the raw column holds, as messages and states name it."""

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Number of features in each block."""

    @abstractmethod
    def feature_names(self, as_is: bool) -> list[str]:
        """Name the features; as they are, a block is one feature."""

    @abstractmethod
    def bins(self) -> list[Bin]:
        """Return the parts of the column's values that a scorecard lists."""

    def signs(self, direction: int) -> list[int]:
        """Return the sign of each feature's weight under which scores only rise (1) or fall (−1), or 0 for any."""
        raise DataError(
            f"monotone names {self.name!r}, a column of {self.kind} values; only numbers can have a direction"
        )

    @abstractmethod
    def encode(self, raw: RawColumn) -> list[Block]:
        """Encode rows, block by block."""

    @abstractmethod
    def to_state(self) -> dict[str, Any]:
        """Return the column as plain JSON values."""

    def encode_as_is(self, raw: RawColumn) -> list[Array]:
        """Encode rows for trees: numbers unscaled, categories as codes, NaN where a value is missing or unseen."""
        if self.missing == "refused":
            raw.refuse_missing()
        if raw.missing.all():
            return [np.full(len(raw.series), np.nan) for _ in self.widths]
        return [
            np.where(raw.missing if block.dtype.kind == "f" else block < 0, np.nan, block) for block in self.encode(raw)
        ]


@dataclass(frozen=True)
class ColumnSummary(ABC):
    """What some rows say about a column, in numbers that add up over batches and clients.

    It is a value: a batch that is refused changes nothing.

    Attributes
    ----------
    rows
        The rows with a value.
    missing
        Whether any row has no value.
    infinite
        The number of infinite values.
    """

    name: str
    kind: str | None
    rows: int = 0
    missing: bool = False
    infinite: int = 0

    def merge(self, other: ColumnSummary) -> ColumnSummary:
        """Combine with the summary of other rows of the same column."""
        missing, infinite = self.missing or other.missing, self.infinite + other.infinite
        if not self.rows or not other.rows:
            known = self if self.rows or (self.kind is not None and not other.rows) else other
            return replace(known, missing=missing, infinite=infinite)
        if other.kind != self.kind:
            raise DataError(f"column {self.name!r} held {self.kind} and now holds {other.kind} values; convert it")
        return replace(self._merge_values(other), missing=missing, infinite=infinite)

    def _merge_values(self: SomeSummary, other: SomeSummary) -> SomeSummary:
        """Combine two summaries of the same kind that both have rows."""
        raise NotImplementedError

    @abstractmethod
    def fitted(self, rules: FitRules) -> EncodedColumn:
        """Return the column fitted on all rows summarised."""

    @abstractmethod
    def values_to_state(self, rules: FitRules) -> Mapping[str, Any]:
        """Return what the values say as plain JSON values, and no more than the rules need."""

    def to_state(self, rules: FitRules) -> dict[str, Any]:
        """Return the summary as plain JSON values."""
        head = {"name": self.name, "kind": self.kind, "missing": self.missing, "rows": self.rows}
        return {**head, **self.values_to_state(rules)} if self.rows else head


def from_json(content: bytes) -> Any:
    """Read plain values from JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not the state of an encoder: it cannot be read as JSON ({error})") from error


def require(holds: Any, where: str, what: str) -> None:
    """Refuse the state unless a condition holds."""
    if not holds:
        raise DataError(f"this is not the state of an encoder: {where} is not {what}")


def require_keys(state: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    """Refuse a table that has other keys than these."""
    require(set(state) == set(keys), where, f"made of {', '.join(keys)}")


def number_from_state(value: Any, where: str, *, positive: bool = False) -> float:
    """Read a finite number."""
    require(type(value) in (int, float), where, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    valid = number == value and math.isfinite(number) and (number > 0.0 or not positive)
    require(valid, where, "above 0" if positive else "finite")
    return number


def is_text(value: Any) -> bool:
    """Tell whether a value is text that can be written: JSON can hold half of a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


# Measured with 40,000 and 4,800 rows on one core, X @ w and X.T @ v together: at 104 and 400 columns CSR takes half the
# time of a dense array at density 1/4 and a seventh at 1/20; up to about 26 columns dense wins or ties from 1/5 on.
SPARSE_BELOW: Final = 0.25
SPARSE_FROM_COLUMNS: Final = 32


def count_features(columns: Sequence[EncodedColumn]) -> int:
    """Count the encoded features."""
    return sum(sum(column.widths) for column in columns)


def count_blocks(columns: Sequence[EncodedColumn]) -> int:
    """Count the blocks: an encoded row has at most one entry in each."""
    return sum(len(column.widths) for column in columns)


def sparse_is_faster(columns: Sequence[EncodedColumn]) -> bool:
    """Decide from the columns alone, so that training and test rows have the same form."""
    width = count_features(columns)
    return width >= SPARSE_FROM_COLUMNS and count_blocks(columns) / width <= SPARSE_BELOW


def as_is(columns: Sequence[EncodedColumn], found: Sequence[RawColumn], rows: int) -> Array:
    """Encode into a float64 array with one feature a block."""
    out = np.empty((rows, count_blocks(columns)))
    blocks = (block for column, raw in zip(columns, found, strict=True) for block in column.encode_as_is(raw))
    for place, block in enumerate(blocks):
        out[:, place] = block
    return out


def dense(columns: Sequence[EncodedColumn], found: Sequence[RawColumn], rows: int) -> Array:
    """Encode into a float64 array."""
    out = np.zeros((rows, count_features(columns)))
    start = 0
    for column, raw in zip(columns, found, strict=True):
        for block, width in zip(column.encode(raw), column.widths, strict=True):
            if block.dtype.kind == "f":
                out[:, start] = block
            else:
                seen = np.flatnonzero(block >= 0)
                out[seen, start + block[seen]] = 1.0
            start += width
    return out


def in_csr(columns: Sequence[EncodedColumn], found: Sequence[RawColumn], rows: int) -> Matrix:
    """Encode into a CSR array, built directly: a row has one entry in each block, or none for an unseen level."""
    shape = (rows, count_blocks(columns))
    places, values, kept = np.empty(shape, dtype=np.int64), np.ones(shape), np.ones(shape, dtype=bool)
    start = k = 0
    for column, raw in zip(columns, found, strict=True):
        for block, width in zip(column.encode(raw), column.widths, strict=True):
            if block.dtype.kind == "f":
                places[:, k], values[:, k] = start, block
            else:
                places[:, k], kept[:, k] = start + block, block >= 0
            start, k = start + width, k + 1
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    # Narrow indexes halve the memory traffic of every product.
    narrow = np.int32 if max(start, int(ends[-1])) < 2**31 else np.int64
    parts = (values[kept], places[kept].astype(narrow), ends.astype(narrow))
    return sparse.csr_array(parts, shape=(rows, start))
