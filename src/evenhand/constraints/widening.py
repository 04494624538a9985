"""Search for the widest bounds of smooth rates under which exact rates hold.

Bounds that follow exact rates (`ShiftedBounds`) may end where everybody gets the same decision: all rates are equal
there, whatever the loss. With many small groups that is the rule. This search comes from the other end. It begins
without bounds on rates, where the loss is least, and narrows them until exact rates hold. The loss falls as bounds
widen, so that a bisection ends near the best model on this path.
"""

from __future__ import annotations

from typing import ClassVar, Final

from evenhand.constraints.proving import ShiftedBounds
from evenhand.constraints.slices import Bounds

STEPS: Final = 7
"""Problems that are solved in a search."""
NARROWEST: Final = 0.25
"""Smallest width of a search. Exact rates may need narrower bounds than smooth ones."""
UNBOUNDED: Final = 1e6
"""A width that bounds no rate."""


class WidthSearch:
    """Bisection over the width of smooth bounds, in multiples of the requested ones.

    Parameters
    ----------
    excess, objective, needed
        Of the best model so far: how far its exact rates exceed their bounds, its objective, and the width that its
        smooth rates need.
    gain
        Smallest decrease of the objective that is worth a step.
    steps
        Largest number of problems to solve.

    Attributes
    ----------
    width
        Width of the next problem.
    open
        Whether there is a next problem.
    """

    state_fields: ClassVar = {
        "excess": float,
        "objective": float,
        "gain": float,
        "width": float,
        "open": bool,
        "_low": float,
        "_high": float,
        "_least": float,
        "_left": int,
    }

    def __init__(
        self,
        excess: float = 0.0,
        objective: float = 0.0,
        needed: float = NARROWEST,
        gain: float = 0.0,
        steps: int = STEPS,
    ) -> None:
        self.excess, self.objective, self.gain = excess, objective, gain
        self.width, self.open = UNBOUNDED, True
        self._low = max(NARROWEST, needed) if excess == 0.0 else NARROWEST
        self._high, self._left = UNBOUNDED, steps
        # The least objective that wider bounds than those known to hold could give.
        self._least = -float("inf")

    def bounds(self, shifted: ShiftedBounds) -> Bounds:
        """Return the bounds of the next problem."""
        return shifted.widened(self.width)

    def take(self, excess: float, objective: float, needed: float) -> None:
        """Take the solution of a problem, and choose the next width.

        Parameters
        ----------
        needed
            The width that the solution's own smooth rates need.
        """
        useless = self.excess == 0.0 and objective >= self.objective
        if excess > 0.0 and not useless:
            self._high, self._least = min(self.width, needed), objective
        else:
            self._low = self.width
        self.excess, self.objective = min((self.excess, self.objective), (excess, objective))
        self._left -= 1
        settled = self.excess == 0.0 and (self._low == UNBOUNDED or self.objective - self._least <= self.gain)
        self.open = self._left > 0 and self._low < self._high and not settled
        self.width = (self._low * self._high) ** 0.5
