"""A trained party model as a state, and back again for scoring new rows."""

from __future__ import annotations

import numpy as np

from evenhand.errors import RunError
from evenhand.models.base import PartyModel
from evenhand.models.linear import LinearModel
from evenhand.models.mlp import MLPModel
from evenhand.protocol.roles import State


def to_state(model: PartyModel) -> State:
    if isinstance(model, LinearModel):
        return {"model": "linear", "weights": model.weights, "columns": model.columns, "intercept": model.intercept}
    if isinstance(model, MLPModel):
        return {"model": "mlp", "weights": model.weights, "columns": model.columns, "hidden": list(model.hidden)}
    raise TypeError(f"no file format for {type(model).__name__}")


def from_state(state: State) -> PartyModel:
    """A model that can score other rows; it holds no training rows."""
    no_rows = np.zeros((0, state["columns"]))
    model: PartyModel
    if state["model"] == "linear":
        model = LinearModel(no_rows, 0.0, intercept=state["intercept"])
    else:
        model = MLPModel(no_rows, 0.0, hidden=tuple(state["hidden"]))
    if model.weights.shape != state["weights"].shape:
        raise RunError(f"the weights file holds {state['weights'].size} weights, its model needs {model.weights.size}")
    model.weights = state["weights"]
    return model
