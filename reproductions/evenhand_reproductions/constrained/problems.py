"""The problems of the proximal-AL paper for one random draw: folds of the clients and the starting point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.constraints.kinds import LossParity
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.data import fetch, load
from evenhand_reproductions.constrained.numbers import FAIRNESS_SET, QUADRATIC_SET
from evenhand_reproductions.data.np_sets import adult_a, adult_b, load_standardised
from evenhand_reproductions.programs.problems import Federated, constrained, neyman_pearson, random_quadratic_programs

LOSS_LIMIT: Final = 0.2
"""r_i of Eq. (30)."""
DISPARITY_LIMIT: Final = 0.1
"""r_i of Eq. (32)."""
NEARLY_EXACT: Final[Mapping[str, Any]] = {"shrink": 0.0, "floor": 1e-6}
"""Of Eq. (84) the paper solves the local problems exactly: here to a millionth of what its subproblem is solved to."""
CLIENT_ROWS, SERVER_ROWS = 22_654, 5_659
"""Of adult-b."""


@dataclass(frozen=True, eq=False)
class SetRows:
    """A set as it was read: features with a constant column, labels ±1 (+1 is class 1), groups if there are any."""

    name: str
    features: Array
    labels: Array
    groups: pd.DataFrame | None = None

    def sample(self, rows: Integers) -> FeatureRows:
        groups = None if self.groups is None else self.groups.iloc[rows]
        return FeatureRows(self.features[rows], self.labels[rows], groups)


@dataclass(frozen=True, eq=False)
class ConstrainedProblem:
    """One cell of a table for one seed.

    Attributes
    ----------
    options
        Those of both proximal AL methods: β and s̄.
    rho
        ρ_i of Algorithm 2, to begin with.
    local
        How exactly the federated method solves its local problems, where that is not its default.
    """

    name: str
    count: int
    seed: int
    federated: Federated
    start: Array
    options: dict[str, Any]
    rho: float
    local: Mapping[str, Any] = field(default_factory=dict)

    def local_objectives(self, weights: Array) -> Array:
        """Each client's own objective, as if it were the only one."""
        return np.array([self.count * client.at(weights).value for client in self.federated.clients])

    def local_rows(self, weights: Array) -> Array:
        """What the limit is on, at each client: a loss, or a disparity whatever its sign."""
        rows = [client.at(weights).constraints for client in self.federated.clients]
        return np.array([np.abs(values).max() for values in rows])

    def server_row(self, weights: Array) -> float | None:
        server = self.federated.server
        return None if server is None else float(np.abs(server.at(weights).constraints).max())


def read(name: str, source: Path | None = None) -> SetRows:
    """A set by name."""
    if name == FAIRNESS_SET:
        data = adult_b(load("adult", source=source))
        # The first class of adult-b is the income above 50K.
        labels = np.where(data.label == data.positive, -1.0, 1.0)
        chosen = np.random.default_rng(0).permutation(len(labels))[: CLIENT_ROWS + SERVER_ROWS]
        groups = data.sensitive.iloc[chosen].reset_index(drop=True)
        return SetRows(name, _with_constant(data.frame)[chosen], labels[chosen], groups)
    data = adult_a(fetch("adult", source=source)) if name == "adult-a" else load_standardised(name, source=source)
    # The authors' code takes the first row of each file for a header; only so do Table 3's counts come out.
    labels = np.where(data.label == data.positive, 1.0, -1.0)[1:]
    return SetRows(name, _with_constant(data.frame)[1:], labels)


def _with_constant(frame: pd.DataFrame) -> Array:
    values = frame.to_numpy(dtype=np.float64)
    return np.hstack([values, np.ones((len(values), 1))])


def neyman_pearson_problem(rows: SetRows, count: int, seed: int) -> ConstrainedProblem:
    """Eq. (30): each client has the same number of rows of each class; what is left over goes."""
    rng = np.random.default_rng(seed)
    shares = []
    for label in (-1.0, 1.0):
        places = rng.permutation(np.flatnonzero(rows.labels == label))
        shares.append(np.split(places[: count * (len(places) // count)], count))
    folds = [np.concatenate(parts) for parts in zip(*shares, strict=True)]
    federated = neyman_pearson([rows.sample(fold) for fold in folds], LOSS_LIMIT)
    options = {"penalty": 300.0, "subproblem": 1e-3}
    return ConstrainedProblem(rows.name, count, seed, federated, sphere(rows.features.shape[1], rng), options, 0.01)


def fairness_problem(rows: SetRows, count: int, seed: int) -> ConstrainedProblem:
    """Eq. (32): mean loss of men and women differ by at most 0.1 at each client and on the server's rows."""
    rng = np.random.default_rng(seed)
    folds: Sequence[Integers] = np.array_split(rng.permutation(CLIENT_ROWS), count)
    server = rows.sample(np.arange(CLIENT_ROWS, CLIENT_ROWS + SERVER_ROWS))
    samples = [rows.sample(fold) for fold in folds]
    constraint = LossParity(DISPARITY_LIMIT)
    federated = constrained(samples, constraint, scope="both", server=server, weighting="clients")
    options = {"penalty": 50.0, "subproblem": 0.01}
    return ConstrainedProblem(rows.name, count, seed, federated, sphere(rows.features.shape[1], rng), options, 0.1)


def quadratic_problem(
    count: int, weights: int, rows: int, instance: int, seed: int, *, server_rows: bool = True
) -> ConstrainedProblem:
    """Eq. (84): one instance for all runs, which differ in where they start; with the server's own C₀ or without."""
    clients, server = random_quadratic_programs(count, weights, rows, seed=instance)
    federated = Federated(clients, server if server_rows else None)
    start = sphere(weights, np.random.default_rng(seed))
    options = {"penalty": 10.0, "subproblem": 0.1}
    return ConstrainedProblem(QUADRATIC_SET, count, seed, federated, start, options, 1.0, NEARLY_EXACT)


def sphere(size: int, rng: np.random.Generator) -> Array:
    """w⁰, uniform on the unit sphere."""
    drawn = rng.standard_normal(size)
    return np.asarray(drawn / np.linalg.norm(drawn))
