"""Search for better models with sharper rates: from another cut, and from the model at hand.

A smooth rate tells little of the exact rate of a small slice, so that bounds on it cost more of the objective than
bounds on exact rates need to, or lead to a model that gives everybody one decision. A sharp rate is nearly the exact
one. Its problem has many local optima: it is solved from a model whose exact rates hold, and ever softer rates follow
from another cut, ever sharper ones from the model at hand.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array

SHARPER: Final = (0.4, 0.16, 0.064)
"""Factors on the temperature in a search from the model at hand."""
OF_A_CUT: Final = (0.1, 0.2, 0.4)
"""The same from another cut, where a rate must be sharp from the start to keep the cut."""
ROUNDS: Final = 60
"""Most rounds of a search."""
PATIENCE: Final = 3
"""Most moves of the bounds of a problem without a better model."""


class SharpSearch:
    """Problems with sharper rates, one after the other.

    Parameters
    ----------
    cut, model
        Feasible models to start from: another cut, and the model at hand; None if there is none.
    rounds
        Rounds of the run so far.

    Attributes
    ----------
    start, factor
        Start of the present problem, and its factor on the temperature of rates.
    until
        The last round of the search.
    """

    state_fields: ClassVar = {
        "starts": Array,
        "start": Array,
        "until": int,
        "_factors": tuple[tuple[float, ...], ...],
        "_number": int,
        "_step": int,
    }

    def __init__(self, cut: Array | None, model: Array | None, rounds: int) -> None:
        self.starts: Array = np.array([one for one in (cut, model) if one is not None])
        self._factors: tuple[tuple[float, ...], ...] = (OF_A_CUT, SHARPER) if cut is not None else (SHARPER,)
        self.until = rounds + ROUNDS
        self._number = self._step = 0
        self.start = self.starts[0]

    @classmethod
    def again(cls, model: Array, factor: float, rounds: int) -> SharpSearch:
        """Return a search with one problem: that which the model solves, under other bounds."""
        found = cls(None, model, rounds)
        found._factors = ((factor,),)
        return found

    @property
    def open(self) -> bool:
        return self._number < len(self.starts)

    @property
    def factor(self) -> float:
        return self._factors[self._number][self._step]

    def advance(self, solution: Array | None, *, better: bool) -> None:
        """Go on with the next factor from a problem's solution, or without one from the same start.

        Parameters
        ----------
        better
            Whether the search has found a better solution than the model at hand, which is no start then.
        """
        self._step += 1
        if self._step < len(self._factors[self._number]):
            self.start = self.start if solution is None else solution
            return
        self._number, self._step = len(self.starts) if better else self._number + 1, 0
        if self.open:
            self.start = self.starts[self._number]

    def end(self) -> None:
        self._number = len(self.starts)
