"""Read fitted models from bytes. Kinds that need the party's own code are read by its learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from evenhand.errors import EvenhandError, RunError
from evenhand.models.learning.base import Fitted, Nothing, PartyLearner, SavedLearner
from evenhand.models.learning.booster import BoosterFit
from evenhand.models.learning.covering import CoveredFit
from evenhand.models.learning.linear import LinearFit
from evenhand.models.learning.perceptron import PerceptronFit
from evenhand.models.learning.tree import TreeFit
from evenhand.printing import quoted

_READERS: Final[dict[str, Callable[[SavedLearner], Fitted]]] = {
    Nothing.format: lambda _: Nothing(),
    LinearFit.format: LinearFit.of,
    TreeFit.format: TreeFit.of,
    PerceptronFit.format: PerceptronFit.of,
    BoosterFit.format: BoosterFit.of,
}


KNOWN_FORMATS: Final = frozenset(_READERS)
"""Formats that are read without the party's learner; what a covered model holds may need it."""


def read(saved: SavedLearner, learner: PartyLearner | None = None) -> Fitted:
    """Return a fitted model."""
    try:
        if saved.format == CoveredFit.format:
            return CoveredFit.of(saved, lambda inner: read(inner, learner))
        if saved.format in _READERS:
            return _READERS[saved.format](saved)
        if learner is not None:
            return learner.load(saved)
    except (EvenhandError, ImportError):
        raise
    except Exception as error:
        # Each library has errors of its own for a damaged file.
        raise RunError(f"a fitted model of kind {quoted(saved.format)} cannot be read: {error}") from error
    raise RunError(
        f"a fitted model of kind {quoted(saved.format)} needs the party's own learner; name it as in training"
    )
