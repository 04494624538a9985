"""Options of boosted trees, for vertical and horizontal data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evenhand.errors import InputError
from evenhand.numbers import is_number, is_whole

MOST_LEAVES = 256
"""A row's leaf travels as one byte."""


@dataclass(frozen=True)
class GrowthOptions:
    """How trees grow, and when a run stops.

    Parameters
    ----------
    leaves
        The most leaves of a tree, at most 256.
    depth
        The largest depth of a tree; 0 is unlimited.
    rows_a_leaf
        The fewest rows in a leaf.
    shrinkage
        η, the share of a leaf's own Newton step that is taken.
    exact_rates
        Meet bounds at leave-one-out scores: on exact rates those of measures ``"error"`` and ``"positive"``.
    patience
        Steps without progress in the leave-one-out loss after which a run ends with the best model it had.
    """

    leaves: int = 16
    depth: int = 6
    rows_a_leaf: int = 20
    shrinkage: float = 0.5
    exact_rates: bool = True
    patience: int | None = None

    def __post_init__(self) -> None:
        for name, least, most in (("leaves", 2, MOST_LEAVES), ("depth", 0, 64), ("rows_a_leaf", 1, 2**31 - 1)):
            check_whole(name, getattr(self, name), least, most)
        if not (is_number(self.shrinkage) and 0.0 < self.shrinkage <= 1.0):
            raise InputError(f"shrinkage is {self.shrinkage!r}; it must be above 0 and at most 1")
        if self.patience is not None and not (is_whole(self.patience) and self.patience >= 1):
            raise InputError(f"patience is {self.patience!r}; it must be a whole number from 1, or None")
        if not isinstance(self.exact_rates, bool):
            raise InputError(f"exact_rates is {self.exact_rates!r}; it must be true or false")


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    if not (is_whole(value) and least <= value <= most):
        raise InputError(f"{name} is {value!r}; it must be a whole number from {least} to {most:,}")
