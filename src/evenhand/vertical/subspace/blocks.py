"""Blocks of a subspace round's tiny problem: the columns of each party.

A column is the change that one coefficient makes to every row's score. With its columns a block has the inner products
of the weight vectors behind them. Most blocks consist of a direction, in one or two bands, and the last steps. The
block of the label holder consists of all its columns, because the server works at its side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError
from evenhand.programs.combining.columns import CACHED
from evenhand.programs.combining.elastic import Box
from evenhand.programs.combining.reduced import independent
from evenhand.vertical.subspace.signs import box_of, least_gradient, weights_box

MOST_ROUNDED = 1e-9
"""Steps with a larger relative rounding error are no longer used. Where a party's steps get shorter and shorter, each
is a difference of longer ones, and the server would round it differently than the party."""


def split_step(share: Array, bands: int) -> Array:
    """Split a step into the combinations of directions and past steps that are kept, newest first.

    The accepted part of each band is kept by itself, and the rest of the step with that of the last band. Their sum
    alone would lose the separation into bands. The result is (bands, basis).
    """
    kept = np.zeros((bands, len(share)))
    kept[-1] = share
    for band in range(bands - 1):
        kept[band, band], kept[-1, band] = share[band], 0.0
    return kept


class PartyBlock(ABC):
    """One party's part of the tiny problem, in the present round.

    Attributes
    ----------
    squared_norm, squared_gradient
        Of the party's weights at the start of the round.
    decrement
        Gain that the party's own quadratic model predicts.
    """

    squared_norm: float
    squared_gradient: float
    decrement: float

    @property
    @abstractmethod
    def answered(self) -> bool:
        """Whether the block is complete for this round."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns."""

    @property
    @abstractmethod
    def most(self) -> int:
        """Maximum number of columns in any round."""

    @abstractmethod
    def parts(self) -> tuple[list[Array], Array, Array]:
        """Return the columns, and the inner products of their weight vectors with each other and with the weights."""

    @property
    def box(self) -> Box:
        """Bounds on the coefficients."""
        return Box(np.full(self.width, -np.inf), np.full(self.width, np.inf))

    @abstractmethod
    def go(self, coefficients: Array) -> float:
        """Take a step and return the growth of the squared norm of the weights."""


class DirectionBlock(PartyBlock):
    """A direction and the last steps of a party, or the sums over several parties.

    Parameters
    ----------
    least
        Smallest maximum of a column that is used. Smaller columns have lost their digits to rounding.
    single
        Whether past steps are kept in single precision, to save memory.
    bounded
        Whether signs of weights may be bounded, so that an answer has a reach.

    Attributes
    ----------
    reach
        Reach of each column, as the party has told it for this round.
    """

    state_fields: ClassVar = {
        "_steps": list[NDArray[np.floating]],
        "_errors": list[float],
        "_answer": dict[str, NDArray[Any]],
        "reach": Array | None,
    }

    def __init__(
        self, bands: int, history: int, least: float = 0.0, *, single: bool = False, bounded: bool = False
    ) -> None:
        self._bounded = bounded
        self.reach: Array | None = None
        self._bands, self._history, self._least = bands, history, least
        self._kept_as = np.dtype(np.float32 if single else np.float64)
        self._steps: list[Array] = []
        # Relative rounding errors of the kept steps.
        self._errors: list[float] = []
        self._room: list[Array] = []
        self._answer: Mapping[str, Array] = {}

    def take(self, answer: Mapping[str, Array]) -> None:
        """Take the party's direction: the content of its message."""
        self._answer = answer
        self.squared_norm = float(answer["squared_norm"])
        self.squared_gradient = float(answer["squared_gradient"])
        self.decrement = float(answer["decrement"])

    def limit(self, reach: Array) -> None:
        """Take the reach of each column, down and up: one count in one class."""
        if not np.isin(reach, (0.0, 1.0)).all() or (reach.sum(axis=2) != 1.0).any():
            raise ProtocolError("server: a reach is not one count for each column and side")
        self.reach = reach

    @property
    def answered(self) -> bool:
        return bool(self._answer) and (self.reach is not None or not self._bounded)

    @property
    def width(self) -> int:
        return self._bands + len(self._steps)

    @property
    def most(self) -> int:
        return self._bands + self._history

    def parts(self) -> tuple[list[Array], Array, Array]:
        gram, linear = self._answer["gram"][: self.width, : self.width], self._answer["linear"][: self.width]
        columns = [*self._answer["scores"], *self._steps]
        used = independent(gram)
        used[self._bands :] &= np.array(self._errors, dtype=np.float64) <= MOST_ROUNDED
        if self._least:
            used &= np.array([float(np.abs(column).max(initial=0.0)) >= self._least for column in columns])
            # The difference of two almost equal columns would consist of rounding errors.
            used[used] = independent(_inner([column for column, use in zip(columns, used, strict=True) if use]))
        columns = [column if use else np.zeros_like(column) for column, use in zip(columns, used, strict=True)]
        return columns, gram * (used & used[:, None]), linear * used

    @property
    def box(self) -> Box:
        return super().box if self.reach is None else box_of(self.reach, self.width)

    def go(self, coefficients: Array) -> float:
        width, columns = self.width, [*self._answer["scores"], *self._steps]
        rows, shares = len(columns[0]), split_step(coefficients, self._bands)[: self._history]
        kept = self._steps[: self._history - len(shares)]
        steps = self._places(self._steps[len(kept) :], len(shares), rows)
        for start in range(0, rows, CACHED):
            part = slice(start, start + CACHED)
            totals = np.zeros((len(shares), min(CACHED, rows - start)))
            for weights, column in zip(shares.T, columns, strict=True):
                totals += weights[:, None] * column[part]
            # Written only now, because a step may overwrite one that it is computed from.
            for step, total in zip(steps, totals, strict=True):
                step[part] = total
        self._steps = [*steps, *kept]
        gram, linear = self._answer["gram"][:width, :width], self._answer["linear"][:width]
        sizes = np.sqrt(gram.diagonal())
        rounded = np.abs(shares) @ (sizes * np.array([*[np.finfo(np.float64).eps] * self._bands, *self._errors]))
        length = np.sqrt(np.maximum(np.einsum("bi,ij,bj->b", shares, gram, shares), 0.0))
        errors = [
            error / own if own > 0.0 else 0.0 for error, own in zip(rounded.tolist(), length.tolist(), strict=True)
        ]
        self._errors = [*errors, *self._errors[: len(kept)]]
        self._answer, self.reach = {}, None
        return float(coefficients @ (2.0 * linear + gram @ coefficients))

    def _places(self, leaving: list[Array], count: int, rows: int) -> list[Array]:
        """Return memory for new steps: first of discarded steps, then free memory, then newly allocated.

        In single precision two are allocated at once. The gaps between single ones would be too small to be reused.
        """
        self._room = [*leaving, *self._room]
        while len(self._room) < count:
            self._room.extend(np.empty((8 // self._kept_as.itemsize, rows), self._kept_as))
        taken, self._room = self._room[:count], self._room[count:]
        return taken

    def restored(self) -> None:
        if self._answer:
            self.take(self._answer)


class OwnBlock(PartyBlock):
    """All columns of the party that holds the labels.

    It needs no directions: each round finds the best weights for the label holder's columns, given the other parties'
    columns. Few sums of the other parties' directions are then enough. Signs of weights may be bounded.
    """

    state_fields: ClassVar = {
        "_columns": Array,
        "weights": Array,
        "_signs": Integers,
        "_regulariser": float,
        "_intercept": bool,
        "_looked": bool,
        "decrement": float,
        "squared_norm": float,
        "squared_gradient": float,
    }

    def __init__(self, columns: Array, weights: Array, regulariser: float, intercept: bool) -> None:
        self._columns, self._regulariser, self._intercept = columns, regulariser, intercept
        self._signs: Integers = np.zeros(len(weights), dtype=np.int64)
        self.weights = weights
        self._looked = False
        self.decrement = 0.0
        self.squared_norm = float(weights @ weights)
        self.squared_gradient = np.nan

    def bound(self, signs: Integers) -> None:
        """Bound the signs of weights."""
        if not np.isin(signs, (-1, 0, 1)).all():
            raise ProtocolError("server: a sign of the label holder's weights is none of -1, 0 and 1")
        if len(signs) != len(self.weights):
            raise ProtocolError(f"server: {len(signs)} signs came for {len(self.weights)} weights of the label holder")
        self._signs = signs

    def look(self, nu: Array) -> None:
        """Compute the gradient norm of the weights. The columns are the same in every round."""
        gradient = self._columns @ nu + self._regulariser * self.weights
        gradient = least_gradient(gradient, self.weights, self._signs, self._regulariser)
        self.squared_gradient = float(gradient @ gradient) + (float(nu.sum()) ** 2 if self._intercept else 0.0)
        self.squared_norm = float(self.weights @ self.weights)
        self._looked = True

    @property
    def answered(self) -> bool:
        return self._looked

    @property
    def columns(self) -> Array:
        """(columns, rows)"""
        return self._columns

    @property
    def width(self) -> int:
        return len(self._columns)

    @property
    def most(self) -> int:
        return self.width

    def parts(self) -> tuple[list[Array], Array, Array]:
        return list(self._columns), np.eye(self.width), self.weights

    def go(self, coefficients: Array) -> float:
        before, self.weights = self.weights, self.weights + coefficients
        self._looked = False
        return float(self.weights @ self.weights - before @ before)

    @property
    def box(self) -> Box:
        return weights_box(self.weights, self._signs)

    def scores(self) -> Array:
        return self.weights @ self._columns


def _inner(columns: list[Array]) -> Array:
    """Return the inner products of columns, computed in chunks, so that long columns are not copied as a whole."""
    gram = np.zeros((len(columns), len(columns)))
    for start in range(0, len(columns[0]) if columns else 0, CACHED):
        part = np.array([column[start : start + CACHED] for column in columns], dtype=np.float64)
        gram += part @ part.T
    return gram
