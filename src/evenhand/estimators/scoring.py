"""Scores for scikit-learn's grids that count a constraint: accuracy alone always picks the loosest one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from evenhand.constraints import Constraints, as_list
from evenhand.errors import DataError, InputError
from evenhand.estimators.selection import judged
from evenhand.metrics import constraint_gaps


class FairnessScorer(BaseEstimator):  # type: ignore[misc]
    """Score a classifier by accuracy and by the gap that a constraint bounds, on the rows it is given.

    The score is that of :func:`evenhand.select`: the harmonic mean of accuracy and 1 − gap.

    Parameters
    ----------
    constraint
        What bounds the gap; its ε does not matter here. Of several constraints the worst gap counts.
    sensitive_features
        A Series or DataFrame with the groups of all rows, by the index of y. None takes the argument of `score`, which
        scikit-learn passes on where metadata routing is on: ``scorer.set_score_request(sensitive_features=True)``.
    """

    def __init__(self, constraint: Constraints, sensitive_features: Any = None) -> None:
        self.constraint = constraint
        self.sensitive_features = sensitive_features

    def score(self, estimator: Any, X: Any, y: Any, *, sensitive_features: Any = None) -> float:
        """Return the score of a fitted classifier on these rows."""
        if not as_list(self.constraint):
            raise InputError("the scorer has no constraint; give one, such as EqualizedOdds(0.05)")
        scores = (
            np.asarray(estimator.decision_function(X)) if hasattr(estimator, "decision_function") else np.zeros((0, 0))
        )
        if scores.ndim != 1:
            raise DataError("fairness_scorer is for classifiers of two classes")
        positive = np.asarray(estimator.predict(X) == estimator.classes_[1])
        # The cut of the classifier's own decisions.
        cut = float(scores[~positive].max()) if not positive.all() else float(scores.min()) - 1.0
        accuracy = float(np.mean(positive == (np.asarray(y) == estimator.classes_[1])))
        groups = self._groups(y, sensitive_features)
        pos_label = estimator.classes_[1]
        found = constraint_gaps(self.constraint, y, scores, sensitive_features=groups, pos_label=pos_label, cut=cut)
        return judged(accuracy, found)["score"]

    __call__ = score

    def _groups(self, y: Any, given: Any) -> Any:
        if given is not None or self.sensitive_features is None:
            return given
        known = self.sensitive_features
        if not isinstance(known, (pd.Series, pd.DataFrame)) or not isinstance(y, pd.Series):
            raise DataError("sensitive_features of the scorer and y need a pandas index each, which matches their rows")
        if known.index.has_duplicates or not y.index.isin(known.index).all():
            raise DataError("sensitive_features of the scorer needs each id of y exactly once in its index")
        return known.loc[y.index]


def fairness_scorer(constraint: Constraints, sensitive_features: Any = None) -> FairnessScorer:
    """Return a scorer for ``GridSearchCV(..., scoring=...)`` that counts the gap which a constraint bounds.

    Examples
    --------
    >>> scorer = fairness_scorer(EqualizedOdds(0.05, measure="error"), sensitive_features=people["sex"])
    ... # doctest: +SKIP
    """
    return FairnessScorer(constraint, sensitive_features)
