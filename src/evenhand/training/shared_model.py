"""The model that clients share, as plain values: for the run folder, and to send it to clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import MissingExtraError
from evenhand.models.binned_trees import BinnedTrees
from evenhand.models.linear import SharedLinear
from evenhand.protocol.state import State
from evenhand.protocol.terms import HorizontalTerms


def model_state(terms: HorizontalTerms, model: Any, weights: Any, statistics: Any) -> State:
    """Return the shared model as it is saved; the terms have the shape of a row: encoded columns, or a picture."""
    shape, classes = terms.shape, terms.classes
    state: State = {
        "model": terms.job.model,
        **({"columns": shape[0]} if len(shape) == 1 else {"shape": list(shape)}),
        **({} if classes is None else {"classes": classes}),
        "hidden": list(terms.job.hidden),
        "weights": weights,
        "statistics": statistics,
    }
    return state | model.to_state() if isinstance(model, BinnedTrees) else state


def scorer(state: State) -> Callable[[Any], Array]:
    """Return a function that scores encoded rows with saved weights; linear models do not need torch."""
    classes = None if state.get("classes") is None else int(state["classes"])
    if state["model"] == "linear" and "shape" not in state:
        return SharedLinear(np.asarray(state["weights"], dtype=np.float64), classes).predict
    if state["model"] == "trees":
        return BinnedTrees.from_state(state).predict
    try:
        from evenhand.models.networks import make_network
    except ImportError as error:
        raise MissingExtraError("A network across clients", "torch") from error
    shape = tuple(map(int, state["shape"])) if "shape" in state else (int(state["columns"]),)
    network = make_network(state["model"], shape, classes, tuple(state["hidden"]))
    network.load(state["weights"], state["statistics"])
    return network.predict
