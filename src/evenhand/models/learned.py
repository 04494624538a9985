"""A party's part of a model of learners: all that it fitted, each with a coefficient."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.errors import DataError, RunError
from evenhand.models.learning.base import Fitted, PartyLearner, SavedLearner
from evenhand.models.learning.linear import LinearLearner
from evenhand.models.learning.random_features import RandomFeatures
from evenhand.models.learning.reading import read
from evenhand.models.relation import Relation, relation_from_state, relation_state
from evenhand.protocol.state import State


class LearnedModel:
    """scores = Σ over fitted models of coefficient · (output − centre) / spread, plus an optional intercept.

    Parameters
    ----------
    learner
        The kind of model that the party has chosen.
    columns, features
        Number of the party's columns, and of outputs of each fitted model.

    Attributes
    ----------
    fitted
        What was fitted, in the order of rounds, and in a round of folds.
    centres, spreads
        (fitted models, features), of the outputs on the training rows.
    weights
        The coefficients, and then the intercept.
    matrix
        The party's training rows, while it trains.
    folds
        Number of models of a round.
    embeds
        Whether the label holder's networks need the party's embeddings.
    random_features
        A part of the embedding, if there are embeddings.
    relation
        At the label holder: its networks over all parties' embeddings.
    """

    state_fields: ClassVar = {
        "saved": list[SavedLearner],
        "centres": Array,
        "spreads": Array,
        "weights": Array,
        "embeds": bool,
        "drawn": tuple[Array, Array] | None,
        "related": tuple[tuple[tuple[str, ...], ...], dict[str, npt.NDArray[Any]]] | None,
    }

    def __init__(self, learner: PartyLearner, columns: int, features: int = 1, intercept: bool = False) -> None:
        self.learner, self.columns, self.features, self.intercept = learner, columns, features, intercept
        self.matrix: Any = None
        self.folds, self.embeds = 1, False
        self.random_features: RandomFeatures | None = None
        self.relation: Relation | None = None
        self.fitted: list[Fitted] = []
        self.centres: Array = np.zeros((0, features))
        self.spreads: Array = np.zeros((0, features))
        self.weights: Array = np.zeros(int(intercept))

    def add(self, fitted: Fitted, outputs: Array, length: Array | float = 1.0) -> Array:
        """Take a fitted model with its outputs on the training rows; return them, (features, rows), scaled.

        An output that is the same for all rows becomes zero.

        Parameters
        ----------
        length
            The spread of each output after scaling.
        """
        centre, spread = outputs.mean(axis=0), outputs.std(axis=0)
        # Rounding alone gives a constant a spread.
        spread = np.where(spread > 1e-10 * np.abs(outputs).max(axis=0, initial=0.0), spread / length, 0.0)
        self.fitted.append(fitted)
        self.centres = np.concatenate([self.centres, centre[None]])
        self.spreads = np.concatenate([self.spreads, spread[None]])
        return self._scaled(outputs, len(self.fitted) - 1).T

    def _scaled(self, outputs: Array, place: int) -> Array:
        spread = self.spreads[place]
        inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0)
        return (outputs - self.centres[place]) * inverse

    def keep(self, coefficients: Array, intercept: float) -> None:
        """Set the coefficients of the oldest fitted models, and discard all others."""
        count = len(coefficients) // self.features
        self.fitted = self.fitted[:count]
        self.centres, self.spreads = self.centres[:count], self.spreads[:count]
        self.weights = np.concatenate([coefficients, np.full(int(self.intercept), intercept)])

    def predict(self, matrix: Any) -> Array:
        scores: Array = np.full(matrix.shape[0], self.weights[-1] if self.intercept else 0.0)
        for place, one in enumerate(self.fitted):
            own = self.weights[place * self.features : (place + 1) * self.features]
            if matrix.shape[0] and own.any() and self.spreads[place].any():
                scores += self._scaled(shaped(one.outputs(matrix), matrix.shape[0], self.features), place) @ own
        return scores

    def embedding(self, matrix: Any) -> Array:
        """Return (rows, width): what the models of each round give on average, of unit spread, and random features."""
        rows, width = matrix.shape[0], self.features
        found = np.zeros((rows, len(self.fitted) // self.folds, width))
        for place, one in enumerate(self.fitted):
            if rows and self.spreads[place].any():
                given = self._scaled(shaped(one.outputs(matrix), rows, width), place)
                found[:, place // self.folds] += given / self.folds
        drawn = [] if self.random_features is None else [self.random_features.outputs(matrix)]
        return np.hstack([found.reshape(rows, -1), *drawn])

    def without_rows(self) -> LearnedModel:
        """Return a copy that holds no training rows of its own, other than those that a fitted model keeps."""
        found = copy(self)
        found.matrix = None
        return found

    def training_outputs(self) -> Array:
        """Return what each fitted model gives the training rows, (rows, coefficients), of unit spread."""
        rows, found = self.matrix.shape[0], enumerate(self.fitted)
        parts = [self._scaled(shaped(one.outputs(self.matrix), rows, self.features), place) for place, one in found]
        return np.hstack([np.zeros((rows, 0)), *parts])

    @property
    def saved(self) -> list[SavedLearner]:
        return [one.saved() for one in self.fitted]

    @saved.setter
    def saved(self, saved: list[SavedLearner]) -> None:
        self.fitted = [read(one, self.learner) for one in saved]

    @property
    def drawn(self) -> tuple[Array, Array] | None:
        """The random features as arrays, for checkpoints."""
        return None if (found := self.random_features) is None else (found.weights, found.offsets)

    @drawn.setter
    def drawn(self, kept: tuple[Array, Array] | None) -> None:
        self.random_features = None if kept is None else RandomFeatures(*kept)

    @property
    def related(self) -> tuple[tuple[tuple[str, ...], ...], dict[str, npt.NDArray[Any]]] | None:
        """The relation as arrays, for checkpoints."""
        return None if self.relation is None else (self.relation.groups, self.relation.arrays())

    @related.setter
    def related(self, kept: tuple[tuple[tuple[str, ...], ...], dict[str, npt.NDArray[Any]]] | None) -> None:
        self.relation = None if kept is None else Relation.of(*kept)


def learned_state(model: LearnedModel) -> State:
    """Return the model as a state: bytes of each fitted model, and their coefficients."""
    saved = model.saved
    content = {f"content {place}": np.frombuffer(one.content, np.uint8) for place, one in enumerate(saved)}
    head: State = {"model": "learned", "weights": model.weights, "columns": model.columns}
    head |= {"features": model.features, "intercept": model.intercept, "formats": [one.format for one in saved]}
    head |= {"folds": model.folds, "embeds": model.embeds}
    related = {} if model.relation is None else relation_state(model.relation)
    if model.embeds and model.random_features is not None:
        related |= {"embedding weights": model.random_features.weights}
        related |= {"embedding offsets": model.random_features.offsets}
    return {**head, "centres": model.centres, "spreads": model.spreads, **content, **related}


def learned_from_state(state: State, learner: PartyLearner | None = None) -> LearnedModel:
    """Read a model; `learner` reads those of the party's own code."""
    given: Any = state
    columns, features, intercept, formats = map(given.get, ("columns", "features", "intercept", "formats"))
    if not (type(columns) is type(features) is int and isinstance(intercept, bool) and isinstance(formats, list)):
        raise RunError("the weights file holds no model of learners")
    folds, embeds = given.get("folds"), given.get("embeds")
    if not (type(folds) is int and folds > 0 and len(formats) % folds == 0 and isinstance(embeds, bool)):
        raise RunError("the weights file does not tell the number of models of a round")
    shape, contents = (len(formats), features), [given.get(f"content {place}") for place in range(len(formats))]
    numbers = {name: given.get(name) for name in ("weights", "centres", "spreads")}
    sizes = {"weights": (len(formats) * features + intercept,), "centres": shape, "spreads": shape}
    if not all(isinstance(one, np.ndarray) and one.shape == sizes[name] for name, one in numbers.items()):
        raise RunError("the weights file holds coefficients that are not those of its fitted models")
    if not all(isinstance(one, np.ndarray) and one.dtype == np.uint8 for one in contents):
        raise RunError("the weights file lacks the content of a fitted model")
    model = LearnedModel(learner or LinearLearner(), columns, features, intercept)
    model.folds, model.embeds, model.relation = folds, embeds, relation_from_state(state)
    model.weights, model.centres, model.spreads = numbers["weights"], numbers["centres"], numbers["spreads"]
    weights, offsets = given.get("embedding weights"), given.get("embedding offsets")
    if isinstance(weights, np.ndarray) and isinstance(offsets, np.ndarray):
        if weights.shape != (columns, len(offsets)):
            raise RunError("the weights file holds random features of other columns")
        model.random_features = RandomFeatures(weights, offsets)
    kept = zip(formats, contents, strict=True)
    model.fitted = [read(SavedLearner(str(kind), content.tobytes()), learner) for kind, content in kept]
    return model


def shaped(outputs: Any, rows: int, features: int) -> Array:
    """Return outputs as (rows, features), with zeros for features that a model does not have; refuse other shapes."""
    found = np.asarray(outputs, dtype=np.float64)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) != rows or found.shape[1] > features:
        most = "one number" if features == 1 else f"at most {features} numbers"
        raise DataError(f"its model gave an array of shape {np.shape(outputs)} for {rows} rows; {most} a row is needed")
    return np.pad(found, ((0, 0), (0, features - found.shape[1])))
