"""Problems as programs: Neyman-Pearson (proximal AL Eq. 30), slice means (proximal AL Eq. 32), quadratic programs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.binding import inequalities
from evenhand.constraints.kinds import Constraints
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.losses import Measure, MeasureName
from evenhand.constraints.scope import Scope
from evenhand.constraints.slices import NO_BOUNDS, Bounds, Inequality, bounds_of
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.programs.program import Program
from evenhand.programs.slices import SliceProgram, sample_program
from evenhand_reproductions.programs.quadratic import QuadraticProgram

Weighting = Literal["clients", "rows"]


@dataclass(frozen=True, eq=False)
class Federated:
    """A program dealt to clients.

    Attributes
    ----------
    clients
        f_i and c_i, i = 1, ..., n.
    server
        c_0, with data of the server's own; None if it has none.
    shared
        Bounds of the rows that all clients have summands of.
    """

    clients: Sequence[Program]
    server: Program | None = None
    shared: Bounds = NO_BOUNDS


def neyman_pearson(
    samples: Sequence[FeatureRows],
    limit: float | Sequence[float] = 0.2,
    *,
    label: int = 1,
    measure: MeasureName = "loss",
) -> Federated:
    """Minimise one class's mean loss under a bound r_i on the other's at each client (proximal AL Eq. 30).

    Parameters
    ----------
    limit
        r_i, one for all clients or one each.
    label
        The class with the bounded loss.
    """
    limits = np.broadcast_to(np.asarray(limit, dtype=np.float64), (len(samples),))
    clients = []
    for place, sample in enumerate(samples):
        bounded = sample.labels == label
        if bounded.all() or not bounded.any():
            raise DataError(f"client {place} has rows of one class only; Neyman-Pearson needs both at each client")
        objective = np.where(bounded, 0.0, 1.0 / (len(samples) * (~bounded).sum()))
        combination = (bounded / bounded.sum())[None, :]
        own = Bounds([-np.inf], [limits[place]])
        clients.append(SliceProgram(sample.features, sample.labels, objective, combination, [Measure(measure)], own))
    return Federated(clients)


def constrained(
    samples: Sequence[FeatureRows],
    constraints: Constraints,
    *,
    scope: Scope = "global",
    server: FeatureRows | None = None,
    weighting: Weighting = "rows",
    regulariser: float | Array = 0.0,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    missing_slices: Literal["refuse", "leave out"] = "refuse",
) -> Federated:
    """Minimise the mean loss over all clients under constraints on slice means.

    Parameters
    ----------
    scope
        Which rows the constraints are about: each client's (``"local"``), all clients' together (``"global"``), or
        ``"both"``. If the server has rows of its own, the global constraint is about them (proximal AL Eq. 32);
        otherwise it is about all clients' rows (proximal AL Eq. 3).
    weighting
        Whether each row of data counts the same (``"rows"``) or each client does (``"clients"``, proximal AL Eq. 32).
    regulariser
        μ of (μ/2)‖w‖²: one number, or one for each weight.
    groups
        The values each sensitive attribute may take; None takes those that occur.
    missing_slices
        What to do if a client has no data in a slice of its own inequality: refuse it, or leave the row out.
    """
    if scope not in ("local", "global", "both"):
        raise InputError(f"scope is {scope!r}; choose 'local', 'global' or 'both'")
    if not samples:
        raise DataError("a program needs at least one client")
    everybody = list(samples) if server is None else [*samples, server]
    rows = _rows(constraints, everybody, groups)
    shared = rows if scope != "local" and server is None else []
    counts = {part: sum(int(s.inside(part).sum()) for s in samples) for row in shared for _, part in row.terms}
    total = sum(len(sample.labels) for sample in samples)
    clients: list[Program] = []
    for place, sample in enumerate(samples):
        each = 1.0 / total if weighting == "rows" else 1.0 / (len(samples) * len(sample.labels))
        own = [] if scope == "global" else _filled(rows, sample, f"client {place}", missing_slices)
        # The clients' parts add up to the whole regulariser.
        share = np.asarray(regulariser, dtype=np.float64) / len(samples)
        clients.append(sample_program(sample, own, shared, each=each, counts=counts, regulariser=share))
    head = None
    if server is not None and scope != "local":
        head = sample_program(server, _filled(rows, server, "the server", "refuse"))
    return Federated(clients, head, bounds_of(shared))


def _rows(
    constraints: Constraints, samples: Sequence[FeatureRows], groups: Mapping[str, Sequence[Hashable]] | None
) -> list[Inequality]:
    frames = [sample.groups for sample in samples if sample.groups is not None]
    if groups is None:
        groups = {name: sorted(set().union(*(set(frame[name]) for frame in frames))) for name in frames[0].columns}
    return list(inequalities(constraints, groups))


def _filled(rows: Sequence[Inequality], sample: FeatureRows, who: str, missing_slices: str) -> list[Inequality]:
    kept = []
    for row in rows:
        empty = [part for _, part in row.terms if not sample.inside(part).any()]
        if empty and missing_slices == "refuse":
            raise ConstraintError(
                f"slice [{empty[0]}] is empty at {who}, so {row} has no meaning there; merge or drop that group, use "
                "scope='global', or leave such rows out with missing_slices='leave out'"
            )
        if not empty:
            kept.append(row)
    return kept


def random_quadratic_programs(
    clients: int, weights: int, rows: int, seed: int = 0
) -> tuple[list[QuadraticProgram], QuadraticProgram]:
    """Draw the clients and the server of Appendix E.2.

    A_i = U D Uᵀ with D uniform over [0.5, 1] and U orthogonal, C_i normal with deviation 1/√d, b_i and d_i uniform on
    the unit sphere.
    """
    rng = np.random.default_rng(seed)

    def sphere(size: int) -> Array:
        drawn = rng.standard_normal(size)
        return np.asarray(drawn / np.linalg.norm(drawn))

    def equalities() -> tuple[Array, Array]:
        return rng.standard_normal((rows, weights)) / np.sqrt(weights), -sphere(rows)

    server_rows, server_bound = equalities()
    server = QuadraticProgram(None, None, server_rows, server_bound, server_bound)
    found = []
    for _ in range(clients):
        basis = np.linalg.qr(rng.standard_normal((weights, weights)))[0]
        matrix = (basis * rng.uniform(0.5, 1.0, weights)) @ basis.T
        own_rows, bound = equalities()
        found.append(QuadraticProgram(0.5 * (matrix + matrix.T), sphere(weights), own_rows, bound, bound))
    return found, server
