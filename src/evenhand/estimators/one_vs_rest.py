"""More than two classes in vertical training: one classifier for each class against the rest."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from evenhand.arrays import Array
from evenhand.errors import InputError
from evenhand.estimators.shared import LabelsFromScores, read_classes
from evenhand.estimators.tables import Tables
from evenhand.estimators.vertical import VerticalClassifier


class OneVsRestClassifier(LabelsFromScores, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A :class:`VerticalClassifier` for each class, with that class as the positive label; the highest score decides.

    A constraint holds for each classifier separately, for instance equal opportunity among the people of each class.

    Parameters
    ----------
    classifier
        The classifier to train for each class; None is ``VerticalClassifier()``.

    Attributes
    ----------
    classes_ : the labels, sorted.
    classifiers_ : one for each of them.
    """

    def __init__(self, classifier: VerticalClassifier | None = None) -> None:
        self.classifier = classifier

    def fit(
        self, X: Tables, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None, **settings: Any
    ) -> Self:
        """Train; parameters are those of :meth:`VerticalClassifier.fit`, and labels may have more than two values."""
        if self.classifier is not None and self.classifier.label_privacy is not None:
            raise InputError(
                "label_privacy supports only two labels: the disclosures of several classifiers about one person add up"
            )
        labels = np.asarray(y)
        classes = read_classes(labels)
        trained = []
        for one in classes:
            own = VerticalClassifier() if self.classifier is None else clone(self.classifier)
            signs = np.where(labels == one, 1, -1)
            target = pd.Series(signs, y.index) if isinstance(y, (pd.Series, pd.DataFrame)) else signs
            own.set_params(pos_label=1).fit(X, target, sample_weight, sensitive_features=sensitive_features, **settings)
            trained.append(own)
        self.classes_, self.classifiers_ = classes, trained
        return self

    def decision_function(self, X: Tables) -> Array:
        """Return scores, with a column for each class."""
        check_is_fitted(self, "classifiers_")
        return np.stack([one.decision_function(X) for one in self.classifiers_], axis=1)

    def predict_proba(self, X: Tables) -> Array:
        """Return each class's probability, normalised over classes."""
        alone = expit(self.decision_function(X))
        return alone / alone.sum(axis=1, keepdims=True)
