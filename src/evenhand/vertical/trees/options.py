"""Settings of fair boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.errors import InputError
from evenhand.models.trees import MOST_LEAVES
from evenhand.numbers import is_number, is_whole

Interactions = Literal["none", "full", "auto"]
INTERACTIONS: tuple[Interactions, ...] = ("none", "full", "auto")


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
    interactions
        ``"none"``: every tree is one party's, and the model knows no interaction between columns of two. ``"full"``:
        trees cross parties, grown level by level, a round a level; every party then learns in which node each row is.
        ``"auto"``: begins with parties' own trees, tries one that crosses them, and goes on with whichever lowers the
        leave-one-out loss more a round.
    patience
        Steps without progress in the leave-one-out loss (rounds of own trees, or whole trees across parties) after
        which a run ends with the best model it had. None is 3, and 8 where trees cross parties: the first splits of an
        interaction gain nothing yet.
    """

    trees: int = 1
    leaves: int = 16
    depth: int = 6
    rows_a_leaf: int = 20
    shrinkage: float = 0.5
    exact_rates: bool = True
    interactions: Interactions = "none"
    patience: int | None = None

    def __post_init__(self) -> None:
        for name, least, most in (
            ("trees", 1, 16),
            ("leaves", 2, MOST_LEAVES),
            ("depth", 0, 64),
            ("rows_a_leaf", 1, 2**31 - 1),
        ):
            value = getattr(self, name)
            if not (is_whole(value) and least <= value <= most):
                raise InputError(f"{name} is {value!r}; it must be a whole number from {least} to {most:,}")
        if not (is_number(self.shrinkage) and 0.0 < self.shrinkage <= 1.0):
            raise InputError(f"shrinkage is {self.shrinkage!r}; it must be above 0 and at most 1")
        if self.patience is not None and not (is_whole(self.patience) and self.patience >= 1):
            raise InputError(f"patience is {self.patience!r}; it must be a whole number from 1, or None")
        if self.interactions not in INTERACTIONS:
            raise InputError(
                f"interactions is {self.interactions!r}; choose one of {', '.join(map(repr, INTERACTIONS))}"
            )
        if not isinstance(self.exact_rates, bool):
            raise InputError(f"exact_rates is {self.exact_rates!r}; it must be true or false")

    @property
    def steps_of_patience(self) -> int:
        return self.patience or (3 if self.interactions == "none" else 8)
