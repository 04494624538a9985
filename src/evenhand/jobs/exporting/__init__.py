"""Export finished runs to ONNX: the joint model, or one party's own part of the score (extra `onnx`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.families import LOG_LINKS
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError, RunError
from evenhand.jobs.cuts import single_cut
from evenhand.jobs.exporting.columns import features
from evenhand.jobs.exporting.forest import forest
from evenhand.jobs.exporting.graph import Graph
from evenhand.jobs.party_parts import party_encoder, party_model
from evenhand.models.binned_trees import BinnedTrees
from evenhand.models.learned import LearnedModel
from evenhand.models.mlp import MLPModel
from evenhand.models.saved import linear_parts
from evenhand.models.trees import TreesModel
from evenhand.models.weight_share import WeightShare
from evenhand.runtime.folder import RunFolder
from evenhand.training.shared_model import scorer


def export_onnx(folder: RunFolder, party: str | None = None) -> bytes:
    """Return a finished run as an ONNX model with an input for each raw column.

    Text columns are inputs of strings ("" is missing), all others of double precision (NaN is missing; dates are days
    since 1970). Outputs of the joint model are `score`, and for classes `probability` and `label`, as `evenhand
    predict` writes them. With three classes or more, scores and probabilities have a column for each, in the order of
    the job.

    Parameters
    ----------
    party
        A party's own part: its columns, and its share of the score. Only this party's files are read. The joint score
        is the sum over parties.
    """
    owners = list(folder.owners)
    if party is not None:
        if party not in owners:
            raise InputError(f"--party {party}: {folder.path} has models of {', '.join(owners)} only")
        owners = [party]
    graph = Graph()
    parts = {owner: _encoder(folder, owner) for owner in owners}
    require_distinct_columns(parts)
    scores = [_score(graph, folder, owner, encoder) for owner, encoder in parts.items()]
    score, width = graph.sum(scores), max(1, len(folder.result.get("labels", {}).get("classes", ())))
    graph.output("score", score, float, width)
    facts = {"evenhand": version("evenhand"), "owners": ", ".join(owners)}
    if party is None or len(folder.owners) == 1:
        facts |= _decide(graph, folder, score)
    return graph.model(facts)


def require_distinct_columns(encoders: dict[str, PartyEncoder]) -> None:
    """Refuse two owners with a column of the same name: a joint table could not tell them apart."""
    seen: dict[str, str] = {}
    for owner, encoder in encoders.items():
        for column in encoder.columns_in:
            if other := seen.get(column):
                raise InputError(f"{other} and {owner} both have a column {column!r}; rename one, train again")
            seen[column] = owner


def _encoder(folder: RunFolder, owner: str) -> PartyEncoder:
    if folder.split != "horizontal":
        return party_encoder(folder, owner)
    try:
        return PartyEncoder.from_state(folder.owners[owner]("encoder"))
    except DataError as error:
        raise RunError(f"{folder.path}: the encoder of {owner} cannot be used: {error}") from error


def _score(graph: Graph, folder: RunFolder, owner: str, encoder: PartyEncoder) -> str:
    """Add an owner's columns and model; return its part of the score."""
    state = folder.owners[owner]("weights")
    model: Any = party_model(folder, owner, encoder) if folder.split != "horizontal" else None
    if isinstance(model, WeightShare):
        raise InputError(
            f'{folder.path}: the weights of {owner} are in shares, so nobody knows them; train with weights = "party" '
            "in [job] to export"
        )
    if isinstance(model, LearnedModel):
        raise InputError(
            f"{folder.path}: models of a party's own choice (solver 'learners') are not exported; score new rows with "
            "evenhand predict"
        )
    if isinstance(model, TreesModel) and (model.splits or model.routes is not None):
        raise InputError(
            f"{folder.path}: trees that use columns of several parties are not exported; train without `interactions`"
        )
    if model is None and state.get("model") == "trees":
        model = BinnedTrees.from_state(state)
    if model is None and state.get("model") != "linear":
        # Reading it says what is wrong with a folder that was changed.
        scorer(state)
        raise InputError(
            f"{folder.path}: a model of kind {state.get('model')!r} across clients is not exported; linear models and "
            "trees are"
        )
    if encoder.marks_absence:
        raise InputError(
            f"{folder.path}: {owner} lacked rows in training, and an exported model takes no row as absent; score new "
            "rows with evenhand predict"
        )
    columns = features(graph, encoder, owner)
    if isinstance(model, TreesModel | BinnedTrees):
        return forest(graph, model, columns, encoder.width_out)
    if isinstance(model, MLPModel):
        return _perceptron(graph, model, columns)
    slopes, intercepts = linear_parts(state)
    return _linear(graph, columns, slopes.T, intercepts)


def _linear(graph: Graph, columns: str, weights: Array, intercept: Array | float) -> str:
    # Not a MatMul: ONNX Runtime would multiply it with a neighbouring scale in single precision.
    shift = np.asarray(intercept, dtype=np.float64).reshape(1, -1)
    return graph.apply("Gemm", columns, graph.constant(weights), graph.constant(shift))


def _perceptron(graph: Graph, model: MLPModel, columns: str) -> str:
    value = columns
    layers: Sequence[Array] = model.layers
    for place, layer in enumerate(layers):
        value = _linear(graph, value, layer[:-1], layer[-1])
        if place + 1 < len(layers):
            value = graph.apply("Relu", value)
    return value


def _decide(graph: Graph, folder: RunFolder, score: str) -> dict[str, str]:
    """Add probability and label of two classes, or the mean of a number; return facts about the decision."""
    labels = folder.labels
    if "loss" in labels:
        mean = graph.apply("Exp", score) if labels["loss"] in LOG_LINKS else graph.apply("Identity", score)
        graph.output("prediction", mean, float)
        return {"loss": str(labels["loss"])}
    if "classes" in labels:
        return _decide_classes(graph, labels["classes"], score)
    at = single_cut(folder.result, "an exported model")
    given = folder.result.get("probability", {"slope": 1.0, "intercept": 0.0})
    slope, shift, cut = (np.array([[float(one)]]) for one in (given["slope"], given["intercept"], at))
    odds = graph.apply("Add", graph.apply("Mul", score, graph.constant(slope)), graph.constant(shift))
    graph.output("probability", graph.apply("Sigmoid", odds), float)
    names = [labels["positive"], labels["negative"]]
    values, kind = _labels(names)
    positive = graph.apply("Greater", score, graph.constant(cut))
    chosen = graph.apply("Where", positive, *(graph.constant(values[place, None, None]) for place in (0, 1)))
    graph.output("label", chosen, kind)
    return {"cut": repr(at), "positive": str(names[0]), "negative": str(names[1])}


def _decide_classes(graph: Graph, classes: Sequence[Any], score: str) -> dict[str, str]:
    """Add the probability of each class, and the class with the highest score."""
    graph.output("probability", graph.apply("Softmax", score, axis=1), float, len(classes))
    values, kind = _labels(classes)
    place = graph.apply("ArgMax", score, axis=1, keepdims=1)
    graph.output("label", graph.apply("Gather", graph.constant(values), place, axis=0), kind)
    return {"classes": ", ".join(map(str, classes))}


def _labels(names: Sequence[Any]) -> tuple[Any, type]:
    """Return labels as whole numbers if all are, otherwise as text."""
    if all(type(name) is int for name in names):
        return np.array(names, dtype=np.int64), int
    return np.array([str(name) for name in names], dtype=object), str
