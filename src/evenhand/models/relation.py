"""A small network of the label holder over all parties' embeddings, for interactions across parties.

A party's embedding of a row is what its fitted models give it, the average of all folds. Where only sums arrive, the
passive parties have one embedding together: the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import RunError
from evenhand.models.learning.base import SavedLearner
from evenhand.models.learning.perceptron import PerceptronFit
from evenhand.protocol.state import State


@dataclass(frozen=True, eq=False)
class Stage:
    """Networks over the same embeddings, one for each fold. Their average, of unit spread, is one column.

    Attributes
    ----------
    centre, spread
        Of the average on the training rows.
    """

    networks: tuple[PerceptronFit, ...]
    centre: float
    spread: float

    def column(self, embeddings: Array) -> Array:
        """Return the column for rows (rows, width)."""
        mean = np.mean([one.outputs(embeddings) for one in self.networks], axis=0)
        return np.asarray((mean - self.centre) / self.spread)


@dataclass(frozen=True, eq=False)
class Relation:
    """scores = Σ over stages of coefficient · column.

    Attributes
    ----------
    groups
        Parties whose embeddings are summed, in the order of the networks' inputs.
    """

    groups: tuple[tuple[str, ...], ...]
    stages: tuple[Stage, ...]
    coefficients: Array

    def scores(self, embeddings: Mapping[str, Array]) -> Array:
        """Return what the relation adds to each row's score, from the embeddings (rows, width) by party."""
        if lacking := [name for group in self.groups for name in group if name not in embeddings]:
            raise RunError(f"the model relates embeddings of all parties, and {', '.join(lacking)} has none")
        inputs = np.hstack([np.sum([embeddings[name] for name in group], axis=0) for group in self.groups])
        if any(one.layers[0][0].shape[0] != inputs.shape[1] for stage in self.stages for one in stage.networks):
            raise RunError("embeddings of the parties do not fit the label holder's networks; use one run's models")
        parts = zip(self.coefficients, self.stages, strict=True)
        return np.asarray(np.sum([one * stage.column(inputs) for one, stage in parts], axis=0))

    def arrays(self) -> dict[str, Array]:
        """Return the stages and coefficients as arrays."""
        contents = [[one.saved().content for one in stage.networks] for stage in self.stages]
        return {
            "networks": np.frombuffer(b"".join(one for stage in contents for one in stage), np.uint8),
            "sizes": np.array([[len(one) for one in stage] for stage in contents], dtype=np.int64),
            "units": np.array([[one.centre, one.spread] for one in self.stages]),
            "coefficients": self.coefficients,
        }

    @classmethod
    def of(cls, groups: Sequence[Sequence[str]], arrays: Mapping[str, Any]) -> Relation:
        """Read a relation; raise a ValueError if its arrays do not belong together."""
        content, sizes, units, coefficients = (arrays[one] for one in ("networks", "sizes", "units", "coefficients"))
        stages = len(coefficients)
        fits = sizes.ndim == 2 and len(sizes) == stages and units.shape == (stages, 2) and (sizes > 0).all()
        if not fits or sizes.sum() != content.size or not (np.isfinite(units).all() and (units[:, 1] > 0.0).all()):
            raise ValueError("the networks of a relation do not fit each other")
        parts = np.split(content, np.cumsum(sizes.ravel())[:-1])
        networks = [PerceptronFit.of(SavedLearner(PerceptronFit.format, one.tobytes())) for one in parts]
        found = []
        for place, (centre, spread) in enumerate(units.tolist()):
            first = place * sizes.shape[1]
            found.append(Stage(tuple(networks[first : first + sizes.shape[1]]), centre, spread))
        return cls(tuple(map(tuple, groups)), tuple(found), coefficients)


def relation_state(relation: Relation) -> State:
    """Return a relation as a part of the label holder's model."""
    arrays = {f"relation {name}": one for name, one in relation.arrays().items()}
    return {"relation groups": [list(group) for group in relation.groups], **arrays}


def relation_from_state(state: State) -> Relation | None:
    """Read the relation, if the state has one."""
    given: Any = state.get("relation groups")
    if given is None:
        return None
    arrays: dict[str, Any] = {
        one: state.get(f"relation {one}") for one in ("networks", "sizes", "units", "coefficients")
    }
    if not isinstance(given, list) or not all(isinstance(one, np.ndarray) for one in arrays.values()):
        raise RunError("the weights file holds no relation of embeddings")
    try:
        return Relation.of(given, arrays)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"the relation of embeddings cannot be read: {error}") from error
