"""Wrap vertical classifiers: for one table with its columns split over parties, and for more than two classes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from evenhand.arrays import Array
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.estimators.shared import LabelsFromScores, read_classes
from evenhand.estimators.tables import Tables
from evenhand.estimators.vertical import VerticalClassifier
from evenhand.protocol.terms import plain


class SplitTableClassifier(LabelsFromScores, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A :class:`VerticalClassifier` for one table with its columns split over parties.

    For pipelines, cross-validation and comparisons with pooled learners.

    Parameters
    ----------
    classifier
        The vertical classifier; None is ``VerticalClassifier()``.
    parties
        A number of parties, each given whole neighbouring columns, or one list of columns (names or positions) each.

    Attributes
    ----------
    classes_ : the two labels, sorted.
    classifier_ : the vertical classifier, fitted.
    coef_, intercept_ : of linear parties, in scikit-learn's shapes: (1, n) over all encoded features, in the order of
        `get_feature_names_out`, and (1,). Positive is in favour of ``classes_[1]``.
    """

    def __init__(
        self, classifier: VerticalClassifier | None = None, *, parties: int | Sequence[Sequence[Any]] = 2
    ) -> None:
        self.classifier = classifier
        self.parties = parties

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        checkpoints: str | Path | None = None,
    ) -> Self:
        """Train; parameters are those of :meth:`VerticalClassifier.fit`."""
        X, y = self._checked(X, y, reset=True)
        if isinstance(X, pd.DataFrame) and X.index.has_duplicates:
            # All parts have the same rows, so ids are not needed; duplicates would prevent aligning.
            X, y = X.reset_index(drop=True), np.asarray(y)
            if isinstance(sensitive_features, (pd.DataFrame, pd.Series)):
                sensitive_features = sensitive_features.reset_index(drop=True)
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)
        self.columns_ = self._columns()
        self.classifier_ = VerticalClassifier() if self.classifier is None else clone(self.classifier)
        given = {"sensitive_features": sensitive_features, "checkpoints": checkpoints}
        self.classifier_.fit(self._dealt(X), y, sample_weight, **given)
        self.classes_ = self.classifier_.classes_
        self.n_iter_ = self.classifier_.n_iter_
        return self

    @property
    def coef_(self) -> Array:
        return self._fitted().coef_

    @property
    def intercept_(self) -> Array:
        return self._fitted().intercept_

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return encoded features, each as ``party__feature``."""
        return self.classifier_.get_feature_names_out()

    @property
    def _own_cut(self) -> float:
        return self._fitted()._own_cut

    def _fitted(self) -> VerticalClassifier:
        # An AttributeError, as in scikit-learn.
        if not hasattr(self, "classifier_"):
            raise AttributeError("only a fitted classifier has coef_ and intercept_")
        return self.classifier_

    def decision_function(self, X: Any) -> Array:
        check_is_fitted(self, "classifier_")
        X = self._checked(X, None, reset=False)[0]
        if isinstance(X, pd.DataFrame) and X.index.has_duplicates:
            X = X.reset_index(drop=True)
        return self.classifier_.decision_function(self._dealt(X))

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        if isinstance(X, pd.DataFrame):
            # Keep categories: each party encodes its own.
            validate_data(self, X, skip_check_array=True, reset=reset)
            return X, y
        if y is None and not reset:
            return validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64), None
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64)

    def _columns(self) -> list[list[int]]:
        if isinstance(self.parties, (int, np.integer)):
            if self.parties < 1:
                raise InputError(f"parties is {self.parties}; there must be at least one")
            count = max(1, min(int(self.parties), self.n_features_in_))
            return [part.tolist() for part in np.array_split(np.arange(self.n_features_in_), count)]
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        columns = []
        for party, wanted in enumerate(self.parties):
            unknown = [name for name in wanted if name not in names]
            if unknown:
                raise DataError(f"party {party}: no column {unknown[0]!r} in the table")
            columns.append([names.index(name) for name in wanted])
        return columns

    def _dealt(self, X: Any) -> list[Any]:
        take = X.iloc if isinstance(X, pd.DataFrame) else X
        return [take[:, part] for part in self.columns_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        classifier = VerticalClassifier() if self.classifier is None else self.classifier
        tags.classifier_tags.multi_class = get_tags(classifier).classifier_tags.multi_class
        return tags


class OneVsRestClassifier(LabelsFromScores, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A :class:`VerticalClassifier` for each class, with that class as the positive label; the highest score decides.

    A constraint holds for each classifier separately, for instance equal opportunity among the people of each class.
    Warnings and errors of a classifier name its class.

    Parameters
    ----------
    classifier
        The classifier to train for each class; None is ``VerticalClassifier()``.
    empty_slices
        What to do for a class of which a group has no row, or only such rows. ``"refuse"``: raise an error if the
        constraint needs the empty slice. ``"merge"``: count that group, for this class only, as part of the smallest
        group that has both.

    Attributes
    ----------
    classes_ : the labels, sorted.
    classifiers_ : one for each of them.
    """

    def __init__(
        self, classifier: VerticalClassifier | None = None, *, empty_slices: Literal["refuse", "merge"] = "refuse"
    ) -> None:
        self.classifier = classifier
        self.empty_slices = empty_slices

    def fit(
        self, X: Tables, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None, **settings: Any
    ) -> Self:
        """Train; parameters are those of :meth:`VerticalClassifier.fit`, and labels may have more than two values."""
        if self.classifier is not None and self.classifier.label_privacy is not None:
            raise InputError(
                "label_privacy supports only two labels: the disclosures of several classifiers about one person add up"
            )
        if self.empty_slices not in ("refuse", "merge"):
            raise InputError(f"empty_slices is {self.empty_slices!r}; choose 'refuse' or 'merge'")
        labels = np.asarray(y)
        classes = read_classes(labels)
        trained, said = [], []
        for one in classes:
            own = VerticalClassifier() if self.classifier is None else clone(self.classifier)
            signs = np.where(labels == one, 1, -1)
            target = pd.Series(signs, y.index) if isinstance(y, (pd.Series, pd.DataFrame)) else signs
            groups = sensitive_features
            if groups is not None and self.empty_slices == "merge":
                groups = _merged(groups, target)
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    own.set_params(pos_label=1).fit(X, target, sample_weight, sensitive_features=groups, **settings)
            except ConstraintError as error:
                raise ConstraintError(
                    f"class {plain(one)!r} against the rest: {error}; or set empty_slices='merge'"
                ) from error
            said += [(f"class {plain(one)!r} against the rest: {each.message}", each.category) for each in caught]
            trained.append(own)
        self.classes_, self.classifiers_ = classes, trained
        # Last, so that the fitted model is kept if warnings are errors.
        for message, category in said:
            warnings.warn(message, category, stacklevel=2)
        return self

    def decision_function(self, X: Tables) -> Array:
        """Return scores, with a column for each class."""
        check_is_fitted(self, "classifiers_")
        return np.stack([one.decision_function(X) for one in self.classifiers_], axis=1)

    def predict_proba(self, X: Tables) -> Array:
        """Return each class's probability, normalised over classes."""
        alone = expit(self.decision_function(X))
        return alone / alone.sum(axis=1, keepdims=True)


def _merged(sensitive: Any, target: Any) -> pd.DataFrame:
    """Return groups in which each has rows of both labels: others count as part of the smallest that does."""
    frame = pd.DataFrame(sensitive).copy()
    # By id, if both have one.
    known = isinstance(target, pd.Series) and isinstance(sensitive, (pd.Series, pd.DataFrame))
    positive = (target.reindex(frame.index) if known else np.asarray(target)) == 1
    for name in frame:
        counts = pd.crosstab(frame[name].to_numpy(), np.asarray(positive)).reindex(columns=[False, True], fill_value=0)
        whole = counts[(counts > 0).all(axis=1)].sum(axis=1)
        if len(whole):
            frame[name] = frame[name].where(frame[name].isin(whole.index), whole.idxmin())
    return frame
