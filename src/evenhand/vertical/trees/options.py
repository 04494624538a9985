"""Settings of fair boosted trees."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.errors import InputError
from evenhand.models.trees import MOST_LEAVES
from evenhand.numbers import is_number, is_whole


@dataclass(frozen=True)
class TreesOptions:
    """Settings of fair boosted trees.

    Parameters
    ----------
    trees
        Trees that each party grows in a round. More need fewer rounds, and overfit sooner.
    leaves
        Most leaves of a tree, at most 256.
    depth
        Largest depth of a tree; 0 is any.
    rows_a_leaf
        Fewest rows in a leaf.
    shrinkage
        η, which share of a leaf's own Newton step is taken.
    exact_rates
        Meet bounds at leave-one-out scores: on exact rates those of measures ``"error"`` and ``"positive"``.
    patience
        Rounds without progress in the leave-one-out loss after which a run ends with the best model it had.
    """

    trees: int = 1
    leaves: int = 16
    depth: int = 6
    rows_a_leaf: int = 20
    shrinkage: float = 0.5
    exact_rates: bool = True
    patience: int = 3

    def __post_init__(self) -> None:
        for name, least, most in (
            ("trees", 1, 16),
            ("leaves", 2, MOST_LEAVES),
            ("depth", 0, 64),
            ("rows_a_leaf", 1, 2**31 - 1),
            ("patience", 1, 2**31 - 1),
        ):
            value = getattr(self, name)
            if not (is_whole(value) and least <= value <= most):
                raise InputError(f"{name} is {value!r}; it must be a whole number from {least} to {most:,}")
        if not (is_number(self.shrinkage) and 0.0 < self.shrinkage <= 1.0):
            raise InputError(f"shrinkage is {self.shrinkage!r}; it must be above 0 and at most 1")
        if not isinstance(self.exact_rates, bool):
            raise InputError(f"exact_rates is {self.exact_rates!r}; it must be true or false")
