"""Options of boosted trees, for vertical and horizontal data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from evenhand.constraints.slices import Inequality
from evenhand.protocol.job import CheckedOptions, Count, Share

MOST_LEAVES = 256
"""A row's leaf travels as one byte."""
Leaves = Annotated[int, Field(ge=2, le=MOST_LEAVES)]


FEWEST_ROWS = 60
"""Number of rows from which on models are cross-fitted."""


@dataclass(frozen=True)
class GrowthOptions(CheckedOptions):
    """How trees grow, and when a run stops.

    Parameters
    ----------
    depth
        Maximum depth of a tree; 0 is unlimited.
    rows_a_leaf
        Minimum number of rows in a leaf.
    shrinkage
        η, the share of a leaf's Newton step that is taken.
    exact_rates
        Whether bounds are met on held-out rows, on exact rates for measures ``"error"`` and ``"positive"``.
    patience
        Number of steps without progress in the held-out loss after which the run ends with its best model.
    folds
        Number of models, each fitted without one fold of the rows. Bounds are met at the scores of rows by the model
        that has not seen them, and new people get the average of all models. Each step grows this many times the trees.
        1 fits a single model, with bounds at leave-one-out scores, as do ``exact_rates=False`` and bounds of zero.
    """

    depth: Annotated[int, Field(ge=0, le=64)] = 6
    rows_a_leaf: Annotated[int, Field(ge=1, lt=2**31)] = 20
    shrinkage: Share = 0.5
    exact_rates: bool = True
    patience: Count | None = None
    folds: Annotated[int, Field(ge=1, le=10)] = 5

    def models_of(self, n_rows: int, inequalities: Sequence[Inequality]) -> int:
        """Return the number of models that a run fits."""
        equal = any(row.lower == row.upper for row in inequalities)
        return 1 if equal or not self.exact_rates or n_rows < FEWEST_ROWS else self.folds


@dataclass(frozen=True)
class HistogramTrees(GrowthOptions):
    """Options of boosted trees across clients: those of `GrowthOptions`, with a smaller step for each tree.

    Here each step adds one tree to each model; in vertical runs every party adds one. None of `patience` is 8 steps.
    Without constraints a single model is fitted, because each more costs as many sums.

    Parameters
    ----------
    leaves
        Maximum number of leaves of a tree, at most 256.
    """

    leaves: Leaves = 16
    shrinkage: Share = 0.3

    def models_of(self, n_rows: int, inequalities: Sequence[Inequality]) -> int:
        return super().models_of(n_rows, inequalities) if inequalities else 1

    @property
    def trees_of_patience(self) -> int:
        return self.patience or 8
