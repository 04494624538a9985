"""Convert a finished run to one scikit-learn pipeline, for parties that have agreed to share their models.

The pipeline contains the weights and encoders of all parties. It needs every party's part of the run folder; whether
the parties agreed is not checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from evenhand.arrays import Array, Matrix
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError, RunError
from evenhand.runtime.folder import RunFolder


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
        names = [f"{owner}: {name}" for owner in self.states for name in self._names(owner)]
        return np.asarray(names, dtype=object)

    def _names(self, owner: str) -> list[str]:
        return list(PartyEncoder.from_state(self.states[owner]).feature_names_out)


def merged_pipeline(run: Path | str) -> Pipeline:
    """Return a finished run of linear models as a pipeline of an encoder and a logistic regression.

    It takes a table with all parties' columns, already joined, and returns the same labels and probabilities as
    `evenhand predict`.

    Parameters
    ----------
    run
        The run folder, with all parties' parts.
    """
    folder = RunFolder.open(Path(run))
    labels, states, weights, intercept = folder.labels, {}, [], 0.0
    for owner, read in folder.owners.items():
        state = read("weights")
        if state.get("model") != "linear":
            raise InputError(f"{run} holds models of kind {state.get('model')!r}; only linear ones are merged")
        states[owner] = read("encoder")
        try:
            width = PartyEncoder.from_state(states[owner]).width_out
        except DataError as error:
            raise RunError(f"{run}: the encoder of {owner} cannot be used: {error}") from error
        own = np.asarray(state["weights"], dtype=np.float64)
        weights.append(own[:width])
        intercept += float(own[width:].sum())
    _require_own_names(states)
    model = LogisticRegression()
    # Sort labels as scikit-learn does; if the positive one comes first, scores change sign.
    classes = np.array([labels["negative"], labels["positive"]])
    turn = 1.0 if classes[0] < classes[1] else -1.0
    model.classes_, model.coef_ = np.sort(classes), turn * np.concatenate(weights)[None, :]
    model.intercept_, model.n_features_in_ = np.array([turn * intercept]), model.coef_.shape[1]
    return Pipeline([("encode", OwnersEncoder(states)), ("decide", model)])


def _require_own_names(states: dict[str, dict[str, Any]]) -> None:
    """Refuse a column name that two owners have: a joint table could not have both."""
    seen: dict[str, str] = {}
    for owner, state in states.items():
        for column in PartyEncoder.from_state(state).columns_in:
            if column in seen:
                raise InputError(f"{seen[column]} and {owner} both have a column {column!r}; rename one, train again")
            seen[column] = owner
