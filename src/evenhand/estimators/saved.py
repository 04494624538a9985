"""Models of finished runs in Python: to score tables with, or merged into one scikit-learn pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import Pipeline

from evenhand.arrays import Array, Matrix
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError, RunError
from evenhand.estimators.shared import LabelsFromScores
from evenhand.estimators.tables import Tables, align_rows, encode, named_tables
from evenhand.jobs.cuts import single_cut, told_cut
from evenhand.jobs.exporting import require_distinct_columns
from evenhand.jobs.horizontal.rows import encoded
from evenhand.jobs.new_rows import read_model
from evenhand.jobs.party_parts import party_encoder, party_model
from evenhand.jobs.tables import NumericTargets
from evenhand.models.base import Scorer
from evenhand.models.binned_trees import BinnedTrees
from evenhand.models.saved import joint_scores, linear_parts
from evenhand.printing import listed
from evenhand.runtime.folder import RunFolder


class SavedModel(LabelsFromScores):
    """Model of a finished run; it scores rows as `evenhand predict` does.

    Attributes
    ----------
    classes_ : the labels: the positive one last if there are two, otherwise in the order of the job. A regression has
        none.
    result : content of `result.json`: certificate, quality, groups.
    encoders_ : each party's encoder, or the shared encoder of a horizontal run; none for pictures.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.result: dict[str, Any] = folder.result
        names, self.cut_ = folder.labels, told_cut(folder.result)
        self.classes_: npt.NDArray[Any]
        self._numbers = NumericTargets(**names) if "loss" in names else None
        if self._numbers is None:
            self.classes_ = np.array(names.get("classes") or [names["negative"], names["positive"]])
        self.encoders_: Mapping[str, PartyEncoder]
        self._models: dict[str, Scorer] | None = None
        self._score: Callable[[Array], Array] | None = None
        if folder.split == "horizontal":
            encoder, self._score = read_model(folder)
            self.encoders_ = {} if encoder is None else {"all clients": encoder}
        else:
            self.encoders_ = {name: party_encoder(folder, name) for name in folder.owners}
            self._models = {name: party_model(folder, name, one) for name, one in self.encoders_.items()}

    def predict(self, X: Any, *, sensitive_features: Any = None) -> npt.NDArray[Any]:
        """Return labels, or the predicted means of a regression.

        `sensitive_features` is needed where the run has a cut for each group.
        """
        if self._numbers is not None:
            return np.array(self._numbers.named(self.decision_function(X)))
        return super().predict(X, sensitive_features=sensitive_features)

    def _log_odds(self, scores: Array) -> Array:
        given = self.result.get("probability", {"slope": 1.0, "intercept": 0.0})
        return np.asarray(given["slope"] * scores + given["intercept"])

    def decision_function(self, X: Tables | Any) -> Array:
        """Return scores: larger ones favour the positive label, or one column for each of more than two classes.

        X is a table for each party by name, or one of clients' rows, or images as bytes.
        """
        if self._models is None:
            assert self._score is not None
            rows: Any = X
            return self._score(encoded(self.encoders_["all clients"], rows) if self.encoders_ else rows)
        tables = named_tables(X)
        if not isinstance(X, Mapping) or tables.keys() != self._models.keys():
            raise DataError(f"give a table for each party, by its name: {', '.join(self._models)}")
        tables, _, _ = align_rows({name: tables[name] for name in self._models}, None, None)
        return joint_scores(
            self._models, {name: encode(name, self.encoders_[name], table) for name, table in tables.items()}
        ).T


def load_run(folder: str | Path) -> SavedModel:
    """Load the model of a finished run from its folder.

    Examples
    --------
    >>> model = evenhand.load_run("runs/monday")  # doctest: +SKIP
    >>> model.predict({"bank": bank, "shop": shop})  # doctest: +SKIP
    """
    return SavedModel(RunFolder.open(Path(folder)))


class OwnersEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode each owner's columns with its fitted encoder, side by side; `fit` learns nothing.

    Parameters
    ----------
    states
        States of the owners' encoders from the run folder, by owner.
    """

    def __init__(self, states: dict[str, dict[str, Any]]) -> None:
        self.states = states

    def fit(self, X: Any, y: Any = None) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Encode a table that has all owners' columns."""
        parts = [PartyEncoder.from_state(state).transform(X) for state in self.states.values()]
        return sparse.hstack(parts, format="csr") if any(map(sparse.issparse, parts)) else np.hstack(parts)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        encoders = {owner: PartyEncoder.from_state(state) for owner, state in self.states.items()}
        names = [f"{owner}: {name}" for owner, encoder in encoders.items() for name in encoder.feature_names_out]
        return np.asarray(names, dtype=object)


class JointTrees(LabelsFromScores, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The trees of all owners of a finished run, over their encoded columns side by side; `fit` learns nothing.

    Parameters
    ----------
    models
        Each owner's trees and the number of its encoded columns, by owner.
    classes
        The negative label and the positive one.
    slope, shift
        The log-odds of a score are slope × score + shift.
    cut
        The score above which the positive label is predicted.
    """

    def __init__(
        self, models: dict[str, tuple[Any, int]], classes: Sequence[Any], slope: float, shift: float, cut: float
    ) -> None:
        self.models, self.classes, self.slope, self.shift, self.cut = models, classes, slope, shift, cut

    @property
    def classes_(self) -> npt.NDArray[Any]:  # type: ignore[override]
        return np.array(self.classes)

    def fit(self, X: Any, y: Any = None) -> Self:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def _own_cut(self) -> float:
        return self.cut

    def _log_odds(self, scores: Array) -> Array:
        return np.asarray(self.slope * scores + self.shift)

    def decision_function(self, X: Matrix) -> Array:
        """Return scores: larger ones favour the positive label."""
        ends = np.cumsum([width for _, width in self.models.values()])
        parts = dict(zip(self.models, np.split(np.asarray(X), ends[:-1], axis=1), strict=True))
        return joint_scores({owner: model for owner, (model, _) in self.models.items()}, parts)


def merged_pipeline(run: Path | str) -> Pipeline:
    """Return a finished run as a scikit-learn pipeline of an encoder, and a logistic regression or the joint trees.

    The pipeline takes joined tables with all parties' columns. It gives the labels and probabilities of `evenhand
    predict`. It contains all parties' weights and encoders, so the parties must agree to merge them; nothing here asks
    them.

    Parameters
    ----------
    run
        The run folder, with all parties' parts.
    """
    folder = RunFolder.open(Path(run))
    if "loss" in folder.labels:
        raise InputError(f"{folder.path} predicts numbers, and a merged pipeline is a classifier; use load_run")
    labels, kinds, states, encoders = folder.labels, set(), {}, {}
    for owner, read in folder.owners.items():
        kinds.add(read("weights").get("model"))
        states[owner] = read("encoder")
        try:
            encoders[owner] = PartyEncoder.from_state(states[owner])
        except DataError as error:
            raise RunError(f"{run}: the encoder of {owner} cannot be used: {error}") from error
    require_distinct_columns(encoders)
    at = single_cut(folder.result, "a merged pipeline")
    given = folder.result.get("probability", {"slope": 1.0, "intercept": 0.0})
    slope, shift = float(given["slope"]), float(given["intercept"])
    decide: BaseEstimator
    if kinds == {"linear"} and "classes" in labels:
        decide = _joint_multinomial(folder)
    elif kinds == {"linear"}:
        decide = _joint_regression(folder, encoders, slope, shift, at)
    elif kinds == {"trees"}:
        names = [labels["negative"], labels["positive"]]
        decide = JointTrees(_trees(folder, encoders), names, slope, shift, at)
    else:
        raise InputError(
            f"{run} holds models of kind {listed(sorted(map(str, kinds)))}; linear ones and trees are merged"
        )
    return Pipeline([("encode", OwnersEncoder(states)), ("decide", decide)])


def _trees(folder: RunFolder, encoders: Mapping[str, PartyEncoder]) -> dict[str, tuple[Any, int]]:
    if folder.split == "horizontal":
        return {
            owner: (BinnedTrees.from_state(folder.read_model("weights")), one.width_out)
            for owner, one in encoders.items()
        }
    return {owner: (party_model(folder, owner, one), one.width_out) for owner, one in encoders.items()}


def _joint_multinomial(folder: RunFolder) -> LogisticRegression:
    """Return the linear models of all owners as one multinomial regression, with the classes sorted."""
    parts = [linear_parts(read("weights")) for read in folder.owners.values()]
    classes = np.array(folder.labels["classes"])
    order = np.argsort(classes)
    model = LogisticRegression()
    model.classes_ = classes[order]
    model.coef_ = np.concatenate([slopes for slopes, _ in parts], axis=1)[order]
    model.intercept_ = np.sum([intercepts for _, intercepts in parts], axis=0)[order]
    model.n_features_in_ = model.coef_.shape[1]
    return model


def _joint_regression(
    folder: RunFolder, encoders: Mapping[str, PartyEncoder], slope: float, shift: float, at: float
) -> LogisticRegression | FixedThresholdClassifier:
    """Return the linear models of all owners as one logistic regression, with recalibrated probabilities."""
    labels = folder.labels
    parts = [linear_parts(folder.owners[owner]("weights")) for owner in encoders]
    weights, intercept = [slopes[0] for slopes, _ in parts], float(sum(own.sum() for _, own in parts))
    model = LogisticRegression()
    # Sort labels as scikit-learn does; if the positive one comes first, scores change sign.
    classes = np.array([labels["negative"], labels["positive"]])
    turn = 1.0 if classes[0] < classes[1] else -1.0
    model.classes_, model.coef_ = np.sort(classes), turn * slope * np.concatenate(weights)[None, :]
    model.intercept_ = np.array([turn * (slope * intercept + shift)])
    model.n_features_in_ = model.coef_.shape[1]
    cut = slope * at + shift
    if not cut:
        return model
    decide = FixedThresholdClassifier(
        FrozenEstimator(model), threshold=cut, pos_label=labels["positive"], response_method="decision_function"
    )
    decide.estimator_ = decide.estimator
    return decide
