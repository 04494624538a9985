"""Estimators with the interface of scikit-learn."""

from evenhand.estimators.horizontal import HorizontalClassifier
from evenhand.estimators.horizontal_regression import HorizontalRegressor
from evenhand.estimators.shared import ShortfallWarning
from evenhand.estimators.vertical import VerticalClassifier, VerticalRegressor
from evenhand.estimators.wrappers import OneVsRestClassifier, SplitTableClassifier

__all__ = [
    "HorizontalClassifier",
    "HorizontalRegressor",
    "OneVsRestClassifier",
    "ShortfallWarning",
    "SplitTableClassifier",
    "VerticalClassifier",
    "VerticalRegressor",
]
