"""When a run of the subspace solver is as near to the optimum as it was asked to be.

Two numbers come with every round. The bound on the distance (`vertical/distance.py`) is several times the distance, and
falls late where the server has nothing but sums. What parties promise by their own quadratic models is a fraction of
it: these see no coupling between parties. `benchmarks/stopping.py` shows how far from the optimum runs stop by them.
"""

from __future__ import annotations

from typing import Final

SHARPNESS: Final = 8.0
"""How many times the distance its bound is, as a rule: a run stops when the bound is as many times tol."""
SHARPER: Final = 3.0
"""The same where the label holder's own columns are in the tiny problem."""
STILL: Final = 0.12
"""Share of tol that parties promise in two rounds running, where those columns are in the tiny problem, when a run is
as near as tol. In a single round they may promise little, and be about to find more."""
STILL_BLIND: Final = 0.04
"""The same where parties are not told ν: they take curvature for its bound, and promise about a third."""
PROMISE: Final = 0.2
"""Share of the distance that the parties promise, as a rule: where there is no bound, it must do."""


def near(
    left: float | None, promised: tuple[float, float], tol: float, *, own_columns: bool, blind: bool = False
) -> bool:
    """Whether the distance is about tol, or less.

    Parameters
    ----------
    left
        The bound on the distance, or the estimate; None without regulariser.
    promised
        By parties in this round, and in the one before: relative to the objective, as the distance is.
    own_columns
        Whether the label holder's own columns are in the tiny problem.
    blind
        Whether parties are not told ν.
    """
    if left is None:
        return promised[0] <= PROMISE * tol
    if not own_columns:
        return left <= SHARPNESS * tol
    return left <= SHARPER * tol or max(promised) <= (STILL_BLIND if blind else STILL) * tol
