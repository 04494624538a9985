"""Models that parties and clients train.

An estimator takes a model by name or as an object of these classes; a grid can tune the parameters:
``VerticalClassifier(model=MLP(hidden=(64,)))`` has the parameter ``model__hidden``.
"""

from evenhand.models.kinds import MLP, BoostedTrees, Linear, ResNet18, TorchModule

__all__ = ["MLP", "BoostedTrees", "Linear", "ResNet18", "TorchModule"]
