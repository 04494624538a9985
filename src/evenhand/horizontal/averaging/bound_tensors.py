"""Hold the bounds of inequalities as tensors, for local objectives (needs the `torch` extra)."""

from __future__ import annotations

import torch
from torch import Tensor

from evenhand.constraints.slices import Bounds


class BoundTensors:
    """`Bounds` as tensors, for formulations: the sides are those of `Bounds`, with a first axis for clients.

    Attributes
    ----------
    plain
        Whether every inequality is FairFedAvgALM's own, μ_s0 = μ_s1. Sides and inequalities are then the same.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.lower, self.upper = torch.from_numpy(bounds.lower).float(), torch.from_numpy(bounds.upper).float()
        self.plain = bool(bounds.free.all() and not bounds.bound.any())
        self._row, self._free = torch.from_numpy(bounds.row), torch.from_numpy(bounds.free)
        self._sign, self._bound = torch.from_numpy(bounds.sign).float(), torch.from_numpy(bounds.bound).float()
        self._incidence = torch.from_numpy(bounds.incidence).float()

    def add_excess(self, multipliers: Tensor, factor: float, values: Tensor) -> Tensor:
        """Return (clients, L): the multipliers plus a factor times the excess of each side."""
        excess = values if self.plain else self._sign * (values[:, self._row] - self._bound)
        return torch.add(multipliers, excess, alpha=factor)

    def onto_rows(self, pushes: Tensor) -> Tensor:
        """Return (clients, R): forces on inequalities from those on sides, with [·]₊ for inequalities."""
        if self.plain:
            return pushes
        return (torch.where(self._free, pushes, pushes.relu()).unsqueeze(2) * self._incidence).sum(dim=1)
