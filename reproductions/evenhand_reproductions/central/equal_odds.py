"""Equalized odds and equal opportunity by group-wise thresholds on pooled scores (Hardt, Price and Srebro, 2016)."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from evenhand.arrays import Array, Integers
from evenhand_reproductions.central.pooled_rows import (
    Groups,
    Seed,
    decisions,
    finite_scores,
    group_means,
    require_choice,
    require_rows,
    truths,
)

RateConstraint = Literal["equalized_odds", "true_positive_rate_parity"]
Objective = Literal["balanced_accuracy_score", "accuracy_score"]


class EqualOddsPostprocessor(BaseEstimator):  # type: ignore[misc]
    """Equalise error rates of groups by thresholds on the scores of any trained model.

    Each group gets its own mix of two thresholds (fairlearn's ``ThresholdOptimizer``), so decisions are randomised:
    the rates agree in expectation over the draws, exactly on the fitting rows and up to sampling error on others.

    This needs **pooled** scores, labels and groups to fit, and pooled scores and groups to decide. Parties that may
    not show these to anyone should train under a constraint instead.

    Parameters
    ----------
    constraint
        ``"equalized_odds"`` (true- and false-positive rates agree) or ``"true_positive_rate_parity"`` (equal
        opportunity).
    objective
        What is maximised under the constraint: ``"balanced_accuracy_score"`` or ``"accuracy_score"``.
    random_state
        Seed of the draws. With an integer the same rows get the same decisions every time.

    Attributes
    ----------
    groups_ : the groups, sorted.
    rates_ : DataFrame, expected TPR and FPR of each group on the fitting rows.
    optimizer_ : the fitted ``ThresholdOptimizer``; its thresholds are ranks among the fitted scores.
    """

    def __init__(
        self,
        *,
        constraint: RateConstraint = "equalized_odds",
        objective: Objective = "balanced_accuracy_score",
        random_state: Seed = 0,
    ) -> None:
        self.constraint = constraint
        self.objective = objective
        self.random_state = random_state

    def fit(self, scores: Any, labels: Any, sensitive_features: Any, *, pos_label: Any = None) -> Self:
        """Choose each group's thresholds.

        Parameters
        ----------
        scores
            One finite number per row, larger for "more likely positive": logits or probabilities.
        labels
            Any two values; ``pos_label`` names the positive one, by default the larger.
        sensitive_features
            One column of groups, two or more; every group needs rows of both labels.
        """
        require_choice("constraint", self.constraint, get_args(RateConstraint))
        require_choice("objective", self.objective, get_args(Objective))
        numbers = finite_scores(scores)
        truth = truths(labels, len(numbers), pos_label)
        groups = Groups.of(sensitive_features, len(numbers))
        codes = groups.codes(sensitive_features, len(numbers))
        require_rows(truth, codes, groups, "positives")
        require_rows(~truth, codes, groups, "negatives")

        self._groups, self._knots = groups, np.unique(numbers)
        self.groups_ = groups.names.tolist()
        self.optimizer_ = ThresholdOptimizer(
            estimator=_Identity(),
            constraints=self.constraint,
            objective=self.objective,
            prefit=True,
            predict_method="predict",
        ).fit(self._ranks(numbers), truth.astype(int), sensitive_features=codes)
        chances = self.selection_probability(numbers, sensitive_features)
        rates = {name: group_means(chances[rows], codes[rows]) for name, rows in (("TPR", truth), ("FPR", ~truth))}
        self.rates_ = pd.DataFrame(rates, index=groups.names.rename("group"))
        return self

    def selection_probability(self, scores: Any, sensitive_features: Any) -> Array:
        """Return the probability that each row's decision is +1, without drawing."""
        ranks, codes = self._inputs(scores, sensitive_features)
        # fairlearn has no public name for this.
        return self.optimizer_._pmf_predict(ranks, sensitive_features=codes)[:, 1]

    def predict(self, scores: Any, sensitive_features: Any, *, random_state: Seed = None) -> Integers:
        """Return decisions, ±1, drawn with ``random_state`` (None: the one given to the constructor)."""
        ranks, codes = self._inputs(scores, sensitive_features)
        seed = self.random_state if random_state is None else random_state
        return decisions(self.optimizer_.predict(ranks, sensitive_features=codes, random_state=seed) == 1)

    def _inputs(self, scores: Any, sensitive_features: Any) -> tuple[Array, Integers]:
        check_is_fitted(self)
        numbers = finite_scores(scores)
        return self._ranks(numbers), self._groups.codes(sensitive_features, len(numbers))

    def _ranks(self, scores: Array) -> Array:
        """Return scores as (fractional) ranks among the fitted ones, as a column.

        fairlearn puts thresholds halfway between neighbouring scores. Where these are neighbouring floats, as among
        probabilities that saturate at 1, "halfway" rounds to one of them and its rows fall on the wrong side. Ranks
        are 1 apart. A threshold then lies halfway in rank instead of score, which the fitting rows cannot tell; other
        scores get their rank by interpolation.
        """
        return np.interp(scores, self._knots, np.arange(len(self._knots), dtype=np.float64))[:, None]


class _Identity(BaseEstimator):  # type: ignore[misc]
    """A model with scores as features, as ``ThresholdOptimizer`` needs one."""

    def fit(self, X: Array, y: Any = None) -> Self:
        return self

    def predict(self, X: Array) -> Array:
        return X[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True
