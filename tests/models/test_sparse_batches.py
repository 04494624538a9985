"""Rows that are mostly zeros come out of a network as they would with all their zeros."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evenhand.models.stacked import MOST_FILLED, Passes, SparseRows, StackedPerceptron


def rows_with(filled: float, rows: int = 40, columns: int = 50) -> torch.Tensor:
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < filled)
    # A row of nothing but zeros, at either end and between.
    dense[[0, rows // 2, rows - 1]] = 0.0
    return torch.from_numpy(dense.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
def test_a_pass_from_sparse_rows_is_the_pass_from_all_numbers(bias: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(50, 8, bias=bias), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    stacked = StackedPerceptron.like(module)
    assert stacked is not None
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    dense = rows_with(0.1)
    sparse = SparseRows.of(dense)
    assert sparse is not None
    assert len(sparse) == len(dense)
    found = Passes(stacked, stacked.stack([flat.numpy()]), len(dense)).forward_sparse(sparse)[0]
    torch.testing.assert_close(found, module(dense).detach(), rtol=1e-5, atol=1e-6)


def test_rows_that_are_filled_stay_as_they_are() -> None:
    assert SparseRows.of(rows_with(2 * MOST_FILLED)) is None
    assert SparseRows.of(torch.zeros((3, 2, 2))) is None
