"""Write a trained party model as a state, read it, and join the models of all parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.errors import RunError
from evenhand.models.across import Routes, routes_from_state, routes_state
from evenhand.models.base import Scorer
from evenhand.models.learned import LearnedModel, learned_from_state, learned_state
from evenhand.models.learning.base import PartyLearner
from evenhand.models.learning.reading import KNOWN_FORMATS
from evenhand.models.linear import LinearModel
from evenhand.models.mlp import MLPModel
from evenhand.models.trees import TreesModel
from evenhand.models.weight_share import WeightShare
from evenhand.printing import quoted
from evenhand.privacy.fixed_products import MOST_COLUMN_BITS
from evenhand.protocol.state import State


def to_state(model: Scorer) -> State:
    if isinstance(model, LinearModel):
        several = {"outputs": model.outputs} if model.outputs > 1 else {}
        own: State = {"columns": model.columns, "intercept": model.intercept, **several}
        return {"model": "linear", "weights": model.weights, **own}
    if isinstance(model, MLPModel):
        return {"model": "mlp", "weights": model.weights, "columns": model.columns, "hidden": list(model.hidden)}
    if isinstance(model, TreesModel):
        head = {"model": "trees", "weights": model.weights, "columns": model.columns, "intercept": model.intercept}
        routes = routes_state(model.routes) if isinstance(model.routes, Routes) else {}
        return {**head, "leaves": model.leaf_counts, "splits": len(model.splits), **routes}
    if isinstance(model, WeightShare):
        words = model.words.view(np.int64)
        return {"model": "share", "words": words, "columns": model.columns, "column_bits": model.column_bits}
    if isinstance(model, LearnedModel):
        return learned_state(model)
    raise TypeError(f"no file format for {type(model).__name__}")


def from_state(state: State, text: str = "", splits: str = "", learner: PartyLearner | None = None) -> Scorer:
    """Read a model that can score other rows; it holds no training rows.

    Parameters
    ----------
    text, splits
        LightGBM's text models, for trees.
    learner
        The party's own learner, which reads models of its own code.
    """
    if isinstance(kind := state.get("model"), str) and kind == "share":
        return _share(state)
    if isinstance(kind, str) and kind == "learned":
        return learned_from_state(state, learner)
    weights, columns = state.get("weights"), state.get("columns")
    if not (isinstance(weights, np.ndarray) and weights.dtype == np.float64 and weights.ndim == 1):
        raise RunError("the weights file holds no list of weights")
    # Check before allocating arrays with this many columns.
    if state_is_of_trees(state) and type(columns) is int and 0 <= columns < 2**31:
        return _trees(state, weights, columns, text, splits)
    if not (type(columns) is int and 0 <= columns <= weights.size):
        raise RunError(f"the weights file holds {weights.size} weights for {quoted(columns)} columns")
    no_rows, kind, intercept, hidden = np.zeros((0, columns)), *map(state.get, ("model", "intercept", "hidden"))
    model: LinearModel | MLPModel
    if isinstance(kind, str) and kind == "linear" and isinstance(intercept, bool):
        outputs = state.get("outputs", 1)
        if not (type(outputs) is int and 0 < outputs <= max(weights.size, 1)):
            raise RunError(f"the weights file holds weights of {quoted(outputs)} classes")
        model = LinearModel(no_rows, 0.0, intercept=intercept, outputs=outputs)
    elif isinstance(kind, str) and kind == "mlp" and _are_widths(hidden, weights.size):
        model = MLPModel(no_rows, 0.0, hidden=tuple(state["hidden"]))
    else:
        raise RunError(f"the weights file holds a model of an unknown kind ({quoted(kind)})")
    if model.weights.shape != weights.shape:
        raise RunError(f"the weights file holds {weights.size} weights, its model needs {model.weights.size}")
    model.weights = weights
    return model


def linear_parts(state: State) -> tuple[Array, Array]:
    """Return a saved linear model's slopes (1, columns), or with a line for each class, and its intercepts."""
    if "intercept" in state:
        model = from_state(state)
        assert isinstance(model, LinearModel)
        return model.slopes, model.table[:, model.columns :].sum(axis=1)
    # The model of all clients has the intercepts last.
    outputs, weights = int(state.get("classes") or 1), np.asarray(state["weights"], dtype=np.float64)
    return weights[:-outputs].reshape(outputs, -1), weights[-outputs:]


def without_rows(model: Scorer) -> Scorer:
    """Return a copy that scores rows and holds none of those it was trained on."""
    if isinstance(model, LearnedModel):
        return model.without_rows()
    texts = (model.text, model.splits_text) if isinstance(model, TreesModel) else ("", "")
    return from_state(to_state(model), *texts)


def _share(state: State) -> WeightShare:
    words, bits = state.get("words"), state.get("column_bits")
    fits = isinstance(words, np.ndarray) and words.dtype == np.int64 and words.shape == (state.get("columns"),)
    if not fits or not (type(bits) is int and 0 < bits <= MOST_COLUMN_BITS):
        raise RunError("the weights file holds no share of weights")
    return WeightShare(state["words"].view(np.uint64), bits)


def state_is_of_trees(state: State) -> bool:
    """Return whether the state belongs to trees, which also have a text file."""
    kind = state.get("model")
    return isinstance(kind, str) and kind == "trees"


def needs_learner(state: State) -> bool:
    """Return whether a fitted model in the state is read by the party's own learner."""
    formats: Any = state.get("formats")
    return isinstance(formats, list) and not set(map(str, formats)) <= KNOWN_FORMATS


def _trees(state: State, weights: Array, columns: int, text: str, splits: str) -> TreesModel:
    counts, intercept = state.get("leaves"), state.get("intercept")
    if (
        not isinstance(intercept, bool)
        or not _are_widths(counts, weights.size)
        or sum(state["leaves"]) + intercept != weights.size
    ):
        raise RunError(f"the weights file holds {weights.size} weights, which are not those of its leaves")
    model = TreesModel(np.zeros((0, columns)), intercept=intercept)
    try:
        model.read(text, splits)
        found = model.leaf_counts
        model.routes = routes_from_state(state)
    except (ValueError, StopIteration) as error:
        raise RunError(f"the trees cannot be read: {error}") from error
    if found != counts:
        raise RunError(f"the trees have {sum(found)} leaves, the weights file has values for {sum(state['leaves'])}")
    if state.get("splits", 0) != len(model.splits):
        raise RunError(f"the model has {len(model.splits)} splits, but the weights file has another number")
    model.weights = weights
    return model


def _are_widths(hidden: Any, most: int) -> bool:
    return isinstance(hidden, list) and all(type(width) is int and 0 < width <= most for width in hidden)


def joint_scores(models: Mapping[str, Scorer], matrices: Mapping[str, Matrix]) -> Array:
    """Return the sum of all parties' scores, of trees that cross parties, and of what relates their embeddings."""
    scores: Array = np.sum([model.predict(matrices[name]) for name, model in models.items()], axis=0)
    for model in models.values():
        if isinstance(model, TreesModel) and isinstance(model.routes, Routes):
            trees = {name: one for name, one in models.items() if isinstance(one, TreesModel)}
            scores = scores + model.routes.scores({name: one.sides(matrices[name]) for name, one in trees.items()})
        if isinstance(model, LearnedModel) and model.relation is not None:
            learned = {name: one for name, one in models.items() if isinstance(one, LearnedModel) and one.embeds}
            embeddings = {name: one.embedding(matrices[name]) for name, one in learned.items()}
            scores = scores + model.relation.scores(embeddings)
    return scores


def joined_model(own: Scorer, other: WeightShare | None) -> Scorer:
    """Return a party's model in a process that has the server's share of its weights too, if they are in shares."""
    return own.joined(other) if isinstance(own, WeightShare) and other is not None else own
