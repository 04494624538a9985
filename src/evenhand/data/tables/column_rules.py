"""Rules for encoding columns: missing values, the number of levels, and scaling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from evenhand.errors import InputError
from evenhand.printing import quoted

MissingRule: TypeAlias = Literal["indicator", "refuse"]
MissingMode: TypeAlias = Literal["refused", "unseen", "seen"]
"""How a fitted column takes missing values: it refuses them, or accepts them and fit saw none, or saw some."""
ID_ROWS: Final = 50
"""Text with a different value in each of at least this many rows is treated as an id."""
MANY_LEVELS: Final = 500
"""A category with more levels than this gets a remark."""


@dataclass(frozen=True)
class Rules:
    """The user's rules: what to do with missing values, for all columns or by name, and how many levels to keep."""

    missing: MissingRule | Mapping[str, MissingRule] = "indicator"
    max_levels: int | None = None

    def __post_init__(self) -> None:
        by_column = isinstance(self.missing, Mapping)
        for rule in self.missing.values() if isinstance(self.missing, Mapping) else [self.missing]:
            if rule not in ("indicator", "refuse"):
                where = " for a column" if by_column else ""
                raise InputError(f"missing is {quoted(rule)}{where}; choose 'indicator' or 'refuse'")
        if self.max_levels is not None and (type(self.max_levels) is not int or self.max_levels < 1):
            raise InputError(f"max_levels is {quoted(self.max_levels)}; it is a whole number above 0, or None")

    def refuses(self, name: str) -> bool:
        """Tell whether missing values in this column are an error."""
        rule = self.missing.get(name, "indicator") if isinstance(self.missing, Mapping) else self.missing
        return rule == "refuse"


DEFAULT_RULES: Final = Rules()


@dataclass(frozen=True)
class FitRules(Rules):
    """All that fitting a column depends on: the user's rules, and whether to scale or to take columns as they are."""

    scale: bool = True
    as_is: bool = False

    def mode(self, name: str, missing: bool) -> MissingMode:
        """Return how a column takes missing values, given whether the training rows have any.

        Columns taken as they are have no indicator: missing values stay NaN.
        """
        if self.refuses(name):
            return "refused"
        return "seen" if missing and not self.as_is else "unseen"
