"""Xᵀ diag(w) X in each of its forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from evenhand.models import preconditioner as weighted_squares
from evenhand.models.preconditioner import weighted_square


@pytest.mark.parametrize("most", [3e6, 0.0])
@pytest.mark.parametrize("columns", [3, 300])
def test_sparse_blocks_however_their_entries_are_stored(
    most: float, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighted_squares, "MOST_PAIRS", most)
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((40, columns)) * (rng.random((40, columns)) < 0.3)
    weights = rng.random(40)
    backwards = sp.csr_array(dense)
    for row in range(40):
        part = slice(backwards.indptr[row], backwards.indptr[row + 1])
        backwards.indices[part], backwards.data[part] = backwards.indices[part][::-1], backwards.data[part][::-1]
    backwards.has_sorted_indices = False
    for block in (sp.csc_array(dense), sp.csr_array(dense), backwards, sp.csc_array(0.0 * dense)):
        expected = block.toarray().T @ (weights[:, None] * block.toarray())
        np.testing.assert_allclose(weighted_square(block)(weights), expected, atol=1e-12)


def test_tall_dense_blocks_are_judged_by_some_rows() -> None:
    rng = np.random.default_rng(1)
    block = np.asfortranarray(rng.standard_normal((20_000, 4)) @ rng.standard_normal((4, 4)))
    # One row in which nobody was drawn, and a column of which there is nothing else.
    drawn = weighted_squares._SampledSquare(block).rows
    lonely = int(np.setdiff1d(np.arange(20_000), drawn)[0])
    block[:, 3] = 0.0
    block[lonely, 3] = 7.0
    block[lonely, 0] = 500.0
    weights = 0.5 + rng.random(20_000)
    expected = block.T @ (weights[:, None] * block)
    square = weighted_square(block)
    found = square(weights[square.rows])
    assert square.products == 800 * 16
    np.testing.assert_allclose(found.diagonal(), expected.diagonal(), rtol=0.6)
    np.testing.assert_allclose(found[1:3, 1:3], expected[1:3, 1:3], rtol=0.2, atol=0.1 * expected.diagonal()[1:3].min())
    assert (np.linalg.eigvalsh(found) > 0.0).all()
