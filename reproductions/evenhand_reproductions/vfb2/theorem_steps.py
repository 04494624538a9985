"""Steps γ that VFB²'s Theorems 1 to 6 allow, from constants of a problem.

Theorems 1 and 4 are of SGD, 2 and 5 of SVRG, 3 and 6 of SAGA. The first three are for strongly convex problems, the
last three for nonconvex ones. Where a theorem says that γ can be chosen to meet conditions, it is the largest γ that
does, to a few per cent.

Condition 3 of Theorem 3 (as printed) does not get easier with a smaller γ: c₀ has terms in γ², and so has its
denominator. As γ → 0 its left side tends to 2304 τ G L_*² / (μ³ (1 − ρ)), which must be at most ε/2. Where that is
larger, no γ will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenhand.errors import InputError

RULES: Final = {1: "SGD", 2: "SVRG", 3: "SAGA", 4: "SGD", 5: "SVRG", 6: "SAGA"}
CONVEX: Final = (1, 2, 3)


class NoStepError(InputError):
    """No step meets a theorem's conditions."""


@dataclass(frozen=True)
class ProblemConstants:
    """What the theorems' steps follow from.

    Attributes
    ----------
    smoothness
        L_*, the largest of the Lipschitz constants of the gradients of a row's loss, its blocks and the regulariser.
    convexity
        μ; zero if the problem is not strongly convex.
    gradient_bound
        G, a bound on the squared norm of a row's gradient.
    rows, parties
        n and q.
    read_delay, message_delay, visit
        τ₁, τ₂, and η₁ (of Theorems 4 to 6, η₂): steps until all blocks have been updated.
    """

    smoothness: float
    convexity: float
    gradient_bound: float
    rows: int
    parties: int
    read_delay: int
    message_delay: int
    visit: int

    @property
    def delay(self) -> float:
        """τ = max(τ₁², τ₂², η₁²)."""
        return float(max(self.read_delay, self.message_delay, self.visit)) ** 2


def theorem_step(theorem: int, of: ProblemConstants, accuracy: float = 0.01, power: float = 1.0) -> float:
    """Return γ of VFB² Theorem 1 to 6.

    Parameters
    ----------
    accuracy
        ε of Theorems 1 to 4.
    power
        α of Theorems 5 and 6, in (0, 1].
    """
    if theorem not in RULES:
        raise InputError(f"theorem is {theorem!r}; choose 1 to 6")
    if theorem in CONVEX and of.convexity <= 0:
        raise InputError(f"theorem {theorem} is for strongly convex problems; choose 4, 5 or 6")
    smooth, bound = of.smoothness, of.gradient_bound
    if theorem == 1:
        return float(accuracy * (of.convexity / (96.0 * bound * smooth**2)) ** (1 / 3))
    if theorem == 2:
        return _largest(lambda step: _second(of, accuracy, step), smooth)
    if theorem == 3:
        return _largest(lambda step: _third(of, accuracy, step), smooth)
    if theorem == 4:
        return accuracy / (smooth * of.parties * bound)
    # Theorem 5 and 6: the largest m₀ whose delay is allowed.
    most, rows = (8.0, 20.0) if theorem == 5 else (20.0, 180.0)
    grid = np.geomspace(1e-12, 1.0 / most, 4000)[:-1]
    allowed = np.minimum(of.rows ** (2 * power) / (rows * grid**2), (1.0 - most * grid) / (40.0 * grid**2))
    if not (allowed > of.delay).any():
        raise NoStepError(f"theorem {theorem} allows no step with delays of this size")
    return float(grid[allowed > of.delay].max() / (smooth * of.rows**power))


def _second(of: ProblemConstants, accuracy: float, step: float) -> bool:
    """The conditions of Theorem 2, Eq. 7."""
    smooth, mu, delay = of.smoothness, of.convexity, of.delay
    size = (smooth**2 * step + smooth) * step**2 / 2.0
    rate = step * mu / 2.0 - 16.0 * smooth**2 * of.visit * size / mu
    room = 1.0 - 2.0 * smooth**2 * step**2 * delay
    if room <= 0 or rate <= 0 or 8.0 * smooth**2 * delay**0.5 * size / (rate * mu) > 0.05:
        return False
    noise = smooth**2 * step**2 * delay**1.5 * (28.0 * size + 5.0 * step) * 36.0 * of.gradient_bound
    return noise / (rate * room) <= accuracy / 8.0


def _third(of: ProblemConstants, accuracy: float, step: float) -> bool:
    """The conditions of Theorem 3, Eq. 8, for some ρ."""
    smooth, mu, delay, rows = of.smoothness, of.convexity, of.delay, of.rows
    room = 1.0 - 72.0 * smooth**2 * step**2 * delay
    if room <= 0 or not 0 < 1.0 - step * mu / 4.0 < 1:
        return False
    inner = smooth**2 * step**3 * delay + smooth * step**2
    first = (2.0 * step**3 * delay**1.5 + inner * 180.0 * step**2 * delay**1.5 + 8.0 * step**2 * delay) * (
        18.0 * of.gradient_bound * smooth**2 / room
    )
    c1, c2 = 2.0 * delay * smooth**2 * inner, 4.0 * inner * smooth**2 * delay / rows
    descent = step * mu**2 / 4.0
    # ρ = 1 − share / n, with 0 < share < 1; then 1 − (1 − 1/n) / ρ = (1 − share) / (n − share).
    for share in np.linspace(0.01, 0.99, 99):
        inverse = (rows - share) / (1.0 - share)
        if -descent + 2.0 * c1 + c2 * (1.0 + inverse) > 0 or -descent + c2 + c1 * (2.0 + inverse) > 0:
            continue
        left = descent - 2.0 * c1 - c2
        if left > 0 and 4.0 * first / (step * mu * (share / rows) * left) <= accuracy / 2.0:
            return True
    return False


def _largest(allowed: Callable[[float], bool], smooth: float) -> float:
    """Return the largest step on a fine grid below 1/L that meets the conditions."""
    for step in np.geomspace(1.0 / smooth, 1e-40 / smooth, 4000):
        if allowed(float(step)):
            return float(step)
    raise NoStepError("no step meets the conditions of the theorem with these constants")
