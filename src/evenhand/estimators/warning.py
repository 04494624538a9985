"""The warning with which estimators end a fit that falls short of what was asked for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from sklearn.exceptions import ConvergenceWarning

from evenhand.errors import EvenhandWarning


class ShortfallWarning(EvenhandWarning, ConvergenceWarning):  # type: ignore[misc]
    """The solver did not converge, or the model gives every row the same label."""


def warn_of(shortfalls: Sequence[str]) -> None:
    """Warn the caller of `fit` last, so that the fitted model is kept if warnings are errors."""
    for one in shortfalls:
        warnings.warn(one, ShortfallWarning, stacklevel=3)
