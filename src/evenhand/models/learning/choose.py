"""Turn what a user gives as a party's model into a learner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from evenhand.errors import InputError
from evenhand.models.kinds import MLP, BoostedTrees, Linear
from evenhand.models.learning.base import PartyLearner
from evenhand.models.learning.linear import LinearLearner
from evenhand.models.learning.network import NetworkLearner
from evenhand.models.learning.tree import TreeLearner

NAMED: Final[dict[str, Callable[[], PartyLearner]]] = {
    "linear": LinearLearner,
    "curves": lambda: LinearLearner(curves=True),
    "mlp": NetworkLearner,
    "trees": TreeLearner,
}
"""Learners that are known by name."""


def as_learner(given: Any) -> PartyLearner:
    """Return a learner, which a user gives by name, as a torch module or a function that makes one, as a regressor with
    scikit-learn's interface, or as an object of its own class.
    """
    if isinstance(given, PartyLearner):
        return given
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]()
    if isinstance(given, Linear):
        return LinearLearner()
    if isinstance(given, BoostedTrees):
        return TreeLearner()
    if isinstance(given, MLP):
        return NetworkLearner(hidden=tuple(given.hidden))
    if not isinstance(given, (str, type)):
        if hasattr(given, "get_params") and hasattr(given, "fit"):
            return _regressor(given)
        # A module can only be given where torch is loaded.
        torch = sys.modules.get("torch")
        if callable(given) or (torch is not None and isinstance(given, torch.nn.Module)):
            return NetworkLearner(module=given)
    raise InputError(
        f"model is {given!r}; choose {', '.join(map(repr, NAMED))}, or give a regressor with scikit-learn's interface "
        "that takes sample_weight, a torch.nn.Module, or a function that makes one for a number of columns"
    )


def _regressor(given: Any) -> PartyLearner:
    # Sites that train no regressor need not load scikit-learn.
    from evenhand.models.learning.regressor import RegressorLearner

    as_is = type(given).__module__.startswith("lightgbm")
    return RegressorLearner(given, columns="as_is" if as_is else "standard")
