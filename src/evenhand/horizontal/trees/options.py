"""Options of boosted trees across clients."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.models.growth import GrowthOptions
from evenhand.protocol.job import Share


@dataclass(frozen=True)
class HistogramTrees(GrowthOptions):
    """Options of boosted trees across clients: those of `GrowthOptions`, with a smaller step for each tree.

    Here each step adds one tree; in vertical runs every party adds one. None of `patience` is 8 trees.
    """

    shrinkage: Share = 0.3

    @property
    def trees_of_patience(self) -> int:
        return self.patience or 8
