"""What every kind of column does: learn, merge, encode, name its features, write and read its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.data.tables.column_rules import FitRules, MissingMode
from evenhand.data.tables.raw import RawColumn
from evenhand.errors import DataError

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
