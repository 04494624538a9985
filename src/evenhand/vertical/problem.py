"""What a vertical solver is given: each party's columns, and the models over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.errors import InputError
from evenhand.models.base import PartyModel
from evenhand.models.linear import LinearModel
from evenhand.models.mlp import MLPModel
from evenhand.protocol.job import Job
from evenhand.protocol.names import check_name


@dataclass(frozen=True, eq=False)
class PartyColumns:
    """One party's encoded columns for the aligned training rows. An active party holds labels and groups as well."""

    name: str
    matrix: Matrix
    active: bool = False

    def __post_init__(self) -> None:
        check_name("party", self.name)


@dataclass(frozen=True, eq=False)
class Start:
    """Where to begin instead of at zero: each party's weights, and the server's multipliers."""

    weights: Mapping[str, Array]
    multipliers: Array


def build_models(parties: Sequence[PartyColumns], job: Job, start: Start | None = None) -> list[PartyModel]:
    """One model per party; the intercept of linear ones sits at the first active party."""
    regulariser = job.regulariser(parties[0].matrix.shape[0])
    first_active = next(party.name for party in parties if party.active)
    # A seed of its own for each party, so that adding a party changes nobody else's start.
    seeds = [int(np.random.SeedSequence([job.seed, place]).generate_state(1)[0]) for place in range(len(parties))]
    models: list[PartyModel] = []
    for party, seed in zip(parties, seeds, strict=True):
        if job.model == "mlp":
            models.append(MLPModel(party.matrix, regulariser, job.hidden, seed))
        else:
            models.append(LinearModel(party.matrix, regulariser, job.fit_intercept and party.name == first_active))
        if start is not None:
            weights = start.weights[party.name]
            if weights.shape != models[-1].weights.shape:
                raise InputError(
                    f"{party.name}: {weights.size} weights to start from, {models[-1].weights.size} needed"
                )
            models[-1].weights = weights.copy()
    return models
