"""All losses by name, as jobs and estimators name them, and which targets each of them takes."""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.log_link import Gamma, Poisson, Tweedie, check_amounts
from evenhand.constraints.losses import Logistic, Loss, Squared
from evenhand.errors import DataError, InputError
from evenhand.printing import is_number

LossName = Literal["logistic", "squared", "poisson", "gamma", "tweedie"]
LOSSES: Final[tuple[LossName, ...]] = get_args(LossName)
"""Names of all losses of one score per row."""
OF_NUMBERS: Final = ("squared", "poisson", "gamma", "tweedie")
"""Losses of numbers, for regression."""
LOG_LINKS: Final = ("poisson", "gamma", "tweedie")
"""Losses whose predictions are exp(score)."""
POWER: Final = 1.5
"""Default power of the Tweedie variance."""
_PLAIN: Final[dict[str, Loss]] = {"logistic": Logistic(), "squared": Squared(), "poisson": Poisson(), "gamma": Gamma()}


def find_loss(name: str, power: float = POWER) -> Loss:
    """Return a loss by name.

    Parameters
    ----------
    power
        p of ``"tweedie"``: the variance of a target with mean μ is proportional to μᵖ.
    """
    if name not in LOSSES:
        raise InputError(f"loss is {name!r}; choose one of {', '.join(map(repr, LOSSES))}")
    if name != "tweedie":
        return _PLAIN[name]
    if not (is_number(power) and 1.0 < power < 2.0):
        raise InputError(
            f"power is {power!r}; the tweedie loss needs a number between 1 and 2, such as 1.5 (1 is 'poisson', 2 is "
            "'gamma')"
        )
    return Tweedie(float(power))


def check_targets(name: str, targets: Array, *, all_rows: bool = True) -> None:
    """Refuse targets that the loss cannot have: missing ones, or amounts below its range.

    Parameters
    ----------
    all_rows
        Whether these are the targets of all rows, rather than of one client. Then some must be above zero.
    """
    if unknown := int((~np.isfinite(targets)).sum()):
        raise DataError(f"{unknown:,} of {len(targets):,} targets are missing or infinite; drop those rows")
    if name in LOG_LINKS:
        check_amounts(name, targets)
        if all_rows and not targets.any():
            raise DataError(f"all targets are zero; the {name} loss needs some above zero")
