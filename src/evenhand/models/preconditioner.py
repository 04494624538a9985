"""Solve with the curvature of a linear block, Xᵀ diag(w) X + μI: the local half of a subspace round.

The weights w are the curvature of the loss on each row of data, and change from round to round. Narrow blocks are
formed (`weighted_squares`) and factored each time, short ones (fewer rows than columns) through their rows. Blocks
that are large both ways are solved by conjugate gradients, which cost passes over the party's own data but no messages.
If factoring each time is too expensive, it is done once, with a bound on w.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse.linalg import LinearOperator, cg

from evenhand.arrays import ALL, Array, Matrix, Rows

SPARSE_PRICE = 20.0
"""What a multiplication of a sparse product costs, in those of a dense one."""
ROWS_FOR_EACH_COLUMN = 200
"""Rows of a tall dense block to take the curvature from, for each column: the direction is then about a tenth off."""
MOST_PAIRS = 3e6
"""Most pairs of entries of a sparse block to keep in a list: about 50 MB."""


class WeightedSquare(Protocol):
    """Xᵀ diag(w) X, as a function of w."""

    products: float
    """Multiplications that it takes."""
    rows: Rows
    """Of which rows it asks for w."""

    def __call__(self, weights: Array) -> Array: ...


def weighted_square(matrix: Matrix) -> WeightedSquare:
    """Choose the cheapest form for this block."""
    rows, columns = matrix.shape
    if not sp.issparse(matrix):
        few = 2 * ROWS_FOR_EACH_COLUMN * columns < rows
        return _SampledSquare(matrix) if few else _DenseSquare(matrix)
    filled = np.bincount(matrix.tocsc().indices, minlength=rows).astype(np.float64)
    pairs = float(filled @ filled)
    return _PairedSquare(matrix, pairs) if pairs <= MOST_PAIRS else _SparseSquare(matrix, pairs)


class _DenseSquare:
    rows: Rows = ALL

    def __init__(self, matrix: Array) -> None:
        self._matrix = matrix
        self.products = float(matrix.shape[0]) * float(matrix.shape[1]) ** 2

    def __call__(self, weights: Array) -> Array:
        roots = np.sqrt(weights)
        total = np.zeros((self._matrix.shape[1], self._matrix.shape[1]))
        for start in range(0, len(roots), 1 << 16):
            # In blocks: a scaled copy of a large table might not fit in memory.
            part = self._matrix[start : start + (1 << 16)] * roots[start : start + (1 << 16), None]
            total += part.T @ part
        return total


class _SampledSquare:
    """Estimate from some rows of a tall block, drawn with a fixed seed.

    Columns are scaled to their size in all rows. Otherwise a column with a few large entries that were not drawn would
    look almost empty, and steps along it would be far too long.
    """

    def __init__(self, matrix: Array) -> None:
        rows, columns = matrix.shape
        count = ROWS_FOR_EACH_COLUMN * columns
        self.rows: Rows = np.sort(np.random.default_rng(0).choice(rows, count, replace=False, shuffle=False))
        some = np.asfortranarray(matrix[self.rows])
        self._sizes = np.array([column @ column for column in matrix.T])
        drawn = np.array([column @ column for column in some.T])
        some *= np.sqrt(np.divide(self._sizes, drawn, out=np.zeros(columns), where=drawn > 0.0))
        self._lacking = np.where(drawn > 0.0, 0.0, self._sizes)
        self._some = _DenseSquare(some)
        self.products = self._some.products

    def __call__(self, weights: Array) -> Array:
        square = self._some(weights)
        diagonal = square.diagonal()
        # Columns that are equal in the sample may differ in other rows.
        apart = len(diagonal) / len(weights) * diagonal + float(weights.mean()) * self._lacking
        square[np.diag_indices_from(square)] += apart
        return square


class _SparseSquare:
    rows: Rows = ALL

    def __init__(self, matrix: Matrix, pairs: float) -> None:
        self._matrix = matrix
        self.products = SPARSE_PRICE * pairs

    def __call__(self, weights: Array) -> Array:
        columns, roots = self._matrix.tocsc(), np.sqrt(weights)
        data = columns.data * roots[columns.indices]
        scaled = sp.csc_array((data, columns.indices, columns.indptr), self._matrix.shape)
        return np.asarray((scaled.T @ scaled).toarray())


class _PairedSquare:
    """One product with w: the pairs of entries that share a row of a sparse block do not change between rounds."""

    rows: Rows = ALL

    def __init__(self, matrix: Matrix, pairs: float) -> None:
        self._matrix = matrix
        self.products = pairs

    @cached_property
    def _pairs(self) -> Matrix:
        """(columns², rows): the product of two columns in each row, for one of each two orders."""
        by_row = self._matrix.tocsr()
        size, columns = by_row.shape
        filled = np.diff(by_row.indptr)
        row = np.repeat(np.arange(size, dtype=np.int32), filled)
        firsts = [np.arange(len(row), dtype=np.int32)]
        for apart in range(1, int(filled.max(initial=0))):
            # Entries so many places before another of their row.
            firsts.append(np.flatnonzero(row[:-apart] == row[apart:]).astype(np.int32))
        first = np.concatenate(firsts)
        second = first + np.repeat(np.arange(len(firsts), dtype=np.int32), [len(part) for part in firsts])
        # Short integers are sorted many times faster.
        code = by_row.indices.astype(np.int64 if columns > 255 else np.uint16)
        place = code[first] * code.dtype.type(columns) + code[second]
        order = np.argsort(place, kind="stable")
        first, second = first[order], second[order]
        ends = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=columns**2))]).astype(np.int32)
        products = by_row.data[first] * by_row.data[second]
        return sp.csr_array((products, row[first], ends), shape=(columns**2, size))

    def __call__(self, weights: Array) -> Array:
        columns = self._matrix.shape[1]
        half: Array = (self._pairs @ weights).reshape(columns, columns)
        # By way of rows in which indices are out of order, a pair may be on either side of the diagonal.
        return half + half.T - np.diag(half.diagonal())


LARGEST_FACTOR = 3000
"""Largest matrix to factor: 70 MB and about a second."""
LARGEST_AGAIN = 1e9
"""Most multiplications to spend on a new factor in every round: about a tenth of a second."""
LARGEST_SPECTRUM = 400
"""Largest matrix to split by its spectrum in every round: a few hundredths of a second."""
LEAST_FILLED = 1e-9
"""Least share of the largest curvature that the columns have along an eigenvector, if they are not dependent."""
RIDGE = 1e-10
"""Share of the mean diagonal added where μ is too small to make a singular block definite."""


class Preconditioner(Protocol):
    effort: float
    """Multiplications of one solution."""
    rows: Rows
    """Of which rows of data it asks for weights."""

    def solve(self, gradient: Array, weights: Array | None, bands: int = 1) -> Array:
        """(bands, m): (Xᵀ diag(w) X + μI)⁻¹ g, or the like with the bound in place of w, which None is.

        With two bands, its parts in the lower and in the upper half of the spectrum; where that is too dear, or there
        is no factor, its parts in the first and in the second half of the columns.
        """

    def inverse(self, weights: Array | None) -> Callable[[Array], Array]:
        """Return multiplication by (Xᵀ diag(w) X + μI)⁻¹, or the like, of a vector or of columns."""


def make_preconditioner(matrix: Matrix, bound: float, regulariser: float) -> Preconditioner:
    """Make a preconditioner for a block X (n × m), weights of at most `bound`, and μ = `regulariser`."""
    rows, columns = matrix.shape
    entries = matrix.data if sp.issparse(matrix) else matrix.ravel(order="K")
    floor = max(regulariser, RIDGE * bound * float(entries @ entries) / max(columns, 1), np.finfo(float).tiny)
    if columns <= LARGEST_FACTOR:
        return _Factored(matrix, bound, floor)
    if rows <= LARGEST_FACTOR:
        return _FactoredByRows(matrix, bound, floor)
    return _Iterated(matrix, bound, floor)


def squared(matrix: Matrix) -> Matrix:
    return matrix.multiply(matrix) if sp.issparse(matrix) else matrix**2


class _Factored:
    """Cholesky factorisation with a unit diagonal, so that ill-scaled columns lose no digits."""

    def __init__(self, matrix: Matrix, bound: float, floor: float) -> None:
        self._matrix, self._bound, self._floor = matrix, bound, floor
        columns = matrix.shape[1]
        self.effort = float(columns) ** 2
        self._square = weighted_square(matrix)
        self.rows = self._square.rows
        again = self._square.products + float(columns) ** 3 / 3.0
        self._again = again <= LARGEST_AGAIN
        if self._again:
            self.effort += again

    @cached_property
    def _bounded(self) -> tuple[Array, Array]:
        return self._scaled(np.full(self._matrix.shape[0], self._bound)[self.rows])

    @cached_property
    def _once(self) -> Array:
        return self._factor(self._bounded[0])

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        return eigh(self._bounded[0])

    def _scaled(self, weights: Array) -> tuple[Array, Array]:
        dense = self._square(weights)
        dense[np.diag_indices_from(dense)] += self._floor
        units = 1.0 / np.sqrt(dense.diagonal())
        dense *= units * units[:, None]
        # Dependent columns make it semi-definite up to rounding; this keeps the factor real.
        dense[np.diag_indices_from(dense)] += 1e-13
        return dense, units

    def _factor(self, dense: Array) -> Array:
        return cho_factor(dense, lower=True, check_finite=False)[0]

    def inverse(self, weights: Array | None) -> Callable[[Array], Array]:
        anew = weights is not None and self._again
        dense, units = self._scaled(weights) if weights is not None and anew else self._bounded
        factor = self._factor(dense) if anew else self._once

        def times(given: Array) -> Array:
            across = units if given.ndim == 1 else units[:, None]
            found: Array = across * cho_solve((factor, True), across * given, check_finite=False)
            return found

        return times

    def solve(self, gradient: Array, weights: Array | None, bands: int = 1) -> Array:
        if bands == 1 or len(gradient) > LARGEST_SPECTRUM:
            return _banded(self.inverse(weights)(gradient), bands)
        anew = weights is not None and self._again
        dense, units = self._scaled(weights) if weights is not None and anew else self._bounded
        values, vectors = eigh(dense) if anew else self._spectrum
        along = vectors.T @ (units * gradient) / np.maximum(values, 1e-13)
        half = middle(values - self._floor * (units**2 @ vectors**2))
        return np.stack([vectors[:, :half] @ along[:half], vectors[:, half:] @ along[half:]]) * units


class _FactoredByRows:
    """By the matrix inversion lemma: (Xᵀ W X + μI)⁻¹ = (I − Xᵀ (XXᵀ + μ W⁻¹)⁻¹ X) / μ."""

    rows: Rows = ALL

    def __init__(self, matrix: Matrix, bound: float, floor: float) -> None:
        outer = matrix @ matrix.T
        self._outer: Array = outer.toarray() if sp.issparse(outer) else outer
        self._matrix, self._bound, self._floor = matrix, bound, floor
        rows = matrix.shape[0]
        self.effort = float(rows) ** 2
        again = float(rows) ** 3 / 3.0
        self._again = again <= LARGEST_AGAIN
        if self._again:
            self.effort += again

    @cached_property
    def _once(self) -> Array:
        return self._factor(np.full(self._matrix.shape[0], self._bound))

    def _factor(self, weights: Array) -> Array:
        dense = self._outer.copy()
        dense[np.diag_indices_from(dense)] += self._floor / weights
        return cho_factor(dense, lower=True, overwrite_a=True, check_finite=False)[0]

    def inverse(self, weights: Array | None) -> Callable[[Array], Array]:
        factor = self._factor(weights) if weights is not None and self._again else self._once

        def times(given: Array) -> Array:
            inner = cho_solve((factor, True), self._matrix @ given, check_finite=False)
            found: Array = (given - self._matrix.T @ inner) / self._floor
            return found

        return times

    def solve(self, gradient: Array, weights: Array | None, bands: int = 1) -> Array:
        return _banded(self.inverse(weights)(gradient), bands)


class _Iterated:
    """Conjugate gradients with a diagonal preconditioner, a fixed number of steps: a direction, not a solution.

    With any number of steps the result is a descent direction, and the server's search over directions and history
    does the rest.
    """

    STEPS = 20
    rows: Rows = ALL

    def __init__(self, matrix: Matrix, bound: float, floor: float) -> None:
        self._matrix, self._bound, self._floor = matrix, bound, floor
        entries = matrix.nnz if sp.issparse(matrix) else matrix.size
        self.effort = float((2 * self.STEPS + 1) * entries)

    @cached_property
    def _squared(self) -> Matrix:
        return squared(self._matrix)

    def inverse(self, weights: Array | None) -> Callable[[Array], Array]:
        columns = self._matrix.shape[1]
        curved = np.full(self._matrix.shape[0], self._bound) if weights is None else weights
        inverse = 1.0 / (self._squared.T @ curved + self._floor)

        def times(v: Array) -> Array:
            return self._matrix.T @ (curved * (self._matrix @ v)) + self._floor * v

        operator = LinearOperator((columns, columns), matvec=times, dtype=np.float64)
        diagonal = LinearOperator((columns, columns), matvec=lambda v: inverse * v, dtype=np.float64)

        def one(given: Array) -> Array:
            solution, _ = cg(operator, given, rtol=1e-3, maxiter=self.STEPS, M=diagonal)
            return np.asarray(solution, dtype=np.float64)

        return lambda given: one(given) if given.ndim == 1 else np.array([one(column) for column in given.T]).T

    def solve(self, gradient: Array, weights: Array | None, bands: int = 1) -> Array:
        return _banded(self.inverse(weights)(gradient), bands)


def middle(curvatures: Array) -> int:
    """Return where the spectrum is cut in two: in the middle, but with some of the columns' curvature in both halves.

    Parameters
    ----------
    curvatures
        The columns' curvature along each eigenvector, without the regulariser; dependent columns have zeros.
    """
    filled = np.flatnonzero(curvatures > LEAST_FILLED * float(curvatures.max(initial=0.0)))
    half = len(curvatures) // 2
    return int(np.clip(half, filled[0] + 1, filled[-1])) if len(filled) > 1 else half


def _banded(solution: Array, bands: int) -> Array:
    """Return the solution in one band, or its parts in the first and in the second half of the columns."""
    if bands == 1:
        return solution[None]
    found = np.zeros((2, len(solution)))
    half = len(solution) // 2
    found[0, :half], found[1, half:] = solution[:half], solution[half:]
    return found
