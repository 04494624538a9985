"""Rows that are mostly zeros, as in tables with categories: a network's first layer skips the zeros."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

MOST_FILLED = 0.2
"""Where a larger share of the numbers is not zero, products of all of them are as quick."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The non-zero entries, row after row.

    Attributes
    ----------
    columns, values
        Column and value of each entry.
    starts
        Where the entries of each row begin.
    """

    columns: Tensor
    values: Tensor
    starts: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> SparseRows | None:
        """None where it would not pay."""
        if rows.ndim != 2 or int(torch.count_nonzero(rows)) > MOST_FILLED * rows.numel():
            return None
        places, columns = rows.nonzero(as_tuple=True)
        ends = torch.bincount(places, minlength=len(rows)).cumsum(0)
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        return cls(columns.int(), rows[places, columns], starts.int())

    def __len__(self) -> int:
        return len(self.starts)

    def product(self, weight: Tensor) -> Tensor:
        """(rows, outputs): the rows times the transpose of a layer's (outputs, inputs)."""
        across = weight.t().contiguous()
        return embedding_bag(self.columns, across, self.starts, mode="sum", per_sample_weights=self.values)
