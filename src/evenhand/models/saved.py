"""A trained party model as a state, and back again for scoring new rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.errors import RunError
from evenhand.models.base import PartyModel
from evenhand.models.linear import LinearModel
from evenhand.models.mlp import MLPModel
from evenhand.printing import quoted
from evenhand.protocol.roles import State


def to_state(model: PartyModel) -> State:
    if isinstance(model, LinearModel):
        return {"model": "linear", "weights": model.weights, "columns": model.columns, "intercept": model.intercept}
    if isinstance(model, MLPModel):
        return {"model": "mlp", "weights": model.weights, "columns": model.columns, "hidden": list(model.hidden)}
    raise TypeError(f"no file format for {type(model).__name__}")


def from_state(state: State) -> PartyModel:
    """A model that can score other rows; it holds no training rows."""
    weights, columns = state.get("weights"), state.get("columns")
    if not (isinstance(weights, np.ndarray) and weights.dtype == np.float64 and weights.ndim == 1):
        raise RunError("the weights file holds no list of weights")
    # Before anything is made that has so many columns.
    if not (type(columns) is int and 0 <= columns <= weights.size):
        raise RunError(f"the weights file holds {weights.size} weights for {quoted(columns)} columns")
    no_rows, kind, intercept, hidden = np.zeros((0, columns)), *map(state.get, ("model", "intercept", "hidden"))
    model: PartyModel
    if isinstance(kind, str) and kind == "linear" and isinstance(intercept, bool):
        model = LinearModel(no_rows, 0.0, intercept=intercept)
    elif isinstance(kind, str) and kind == "mlp" and _are_widths(hidden, weights.size):
        model = MLPModel(no_rows, 0.0, hidden=tuple(state["hidden"]))
    else:
        raise RunError(f"the weights file holds a model of an unknown kind ({quoted(kind)})")
    if model.weights.shape != weights.shape:
        raise RunError(f"the weights file holds {weights.size} weights, its model needs {model.weights.size}")
    model.weights = weights
    return model


def _are_widths(hidden: Any, most: int) -> bool:
    return isinstance(hidden, list) and all(type(width) is int and 0 < width <= most for width in hidden)
