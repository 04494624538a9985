"""Models that parties and clients train.

An estimator takes a model by name or as an object of these classes; a grid can tune the parameters:
``VerticalClassifier(model=MLP(hidden=(64,)))`` has the parameter ``model__hidden``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenhand.models.kinds import MLP, BoostedTrees, Linear, OwnModels, ResNet18, TorchModule

if TYPE_CHECKING:
    from evenhand.models.learning.linear import LinearLearner
    from evenhand.models.learning.network import NetworkLearner
    from evenhand.models.learning.regressor import RegressorLearner, Resampled
    from evenhand.models.learning.tree import TreeLearner

__all__ = [
    "MLP",
    "BoostedTrees",
    "Linear",
    "LinearLearner",
    "NetworkLearner",
    "OwnModels",
    "RegressorLearner",
    "ResNet18",
    "Resampled",
    "TorchModule",
    "TreeLearner",
]

_LEARNERS = {
    "LinearLearner": "linear",
    "NetworkLearner": "network",
    "RegressorLearner": "regressor",
    "Resampled": "regressor",
    "TreeLearner": "tree",
}


def __getattr__(name: str) -> Any:
    """Import a learner when it is asked for: scikit-learn takes a second to load."""
    if name not in _LEARNERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.learning.{_LEARNERS[name]}"), name)
