"""Estimators with the interface of scikit-learn."""

from evenhand.estimators.horizontal import HorizontalClassifier
from evenhand.estimators.one_vs_rest import OneVsRestClassifier
from evenhand.estimators.shared import ShortfallWarning
from evenhand.estimators.split_table import SplitTableClassifier
from evenhand.estimators.vertical import VerticalClassifier, VerticalRegressor

__all__ = [
    "HorizontalClassifier",
    "OneVsRestClassifier",
    "ShortfallWarning",
    "SplitTableClassifier",
    "VerticalClassifier",
    "VerticalRegressor",
]
