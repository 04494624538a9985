"""Options of boosted trees, for vertical and horizontal data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from evenhand.protocol.job import CheckedOptions, Count, Share

MOST_LEAVES = 256
"""A row's leaf travels as one byte."""


@dataclass(frozen=True)
class GrowthOptions(CheckedOptions):
    """How trees grow, and when a run stops.

    Parameters
    ----------
    leaves
        Maximum number of leaves of a tree, at most 256.
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
    """

    leaves: Annotated[int, Field(ge=2, le=MOST_LEAVES)] = 16
    depth: Annotated[int, Field(ge=0, le=64)] = 6
    rows_a_leaf: Annotated[int, Field(ge=1, lt=2**31)] = 20
    shrinkage: Share = 0.5
    exact_rates: bool = True
    patience: Count | None = None


@dataclass(frozen=True)
class HistogramTrees(GrowthOptions):
    """Options of boosted trees across clients: those of `GrowthOptions`, with a smaller step for each tree.

    Here each step adds one tree; in vertical runs every party adds one. None of `patience` is 8 trees.
    """

    shrinkage: Share = 0.3

    @property
    def trees_of_patience(self) -> int:
        return self.patience or 8
