"""Express linear models under constraints as programs, built by each participant from the terms and its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.kinds import NeymanPearson
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.slices import Bounds, bounds_of
from evenhand.errors import DataError, InputError
from evenhand.horizontal.problem import ClientRows, HorizontalServerData
from evenhand.horizontal.program_server import ServerPart
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.programs.regularisers import ZERO
from evenhand.programs.slices import ObjectiveWeights, SliceProgram, sample_program
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms


def client_program(terms: HorizontalTerms, name: str, rows: ClientRows, objective: ObjectiveWeights) -> SliceProgram:
    """Return a client's program.

    It has the client's share of the objective, the client's own inequalities, and its summands of the shared
    inequalities.
    """
    regulariser = np.full(weights(terms), terms.regulariser)
    # The last column is the intercept, which is not penalised.
    regulariser[-1] = 0.0
    return sample_program(
        _sample(terms, rows),
        terms.own_inequalities(name),
        terms.shared_inequalities,
        each=_row_weights(terms, name, rows.labels, objective),
        counts=terms.slice_counts,
        # The clients' regularisers add up to that of the whole problem.
        regulariser=regulariser / len(terms.names),
    )


def _row_weights(terms: HorizontalTerms, name: str, labels: Array, objective: ObjectiveWeights) -> float | Array:
    """Return the weight of each of the client's rows in the objective."""
    if objective == "rows":
        return 1.0 / terms.n_rows
    counted: Array = np.full(len(labels), True)
    if objective == "other-class":
        (bounded,) = {one.label for one in terms.job.constraints if isinstance(one, NeymanPearson)}
        counted = labels != bounded
        if not counted.any():
            raise DataError(
                f"client {name!r} has no rows of the class without a bound, and objective='other-class' averages "
                "them at each client; choose 'rows' or 'clients'"
            )
    found: Array = counted / (len(terms.names) * counted.sum())
    return found


def server_program(terms: HorizontalTerms, rows: ClientRows | None) -> SliceProgram | None:
    """Return a program with the server's own inequalities (proximal AL Eq. 32), or None if it has no data."""
    return None if rows is None else sample_program(_sample(terms, rows), terms.own_inequalities(SERVER))


def server_part(terms: HorizontalTerms, own: HorizontalServerData, program: SliceProgram | None) -> ServerPart:
    """Return the server's part of the problem of a linear model; `program` comes from `server_program`."""
    bounds = {name: bounds_of(terms.own_inequalities(name)) for name in terms.names}
    return ServerPart(bounds, program, shared_bounds(terms), ZERO, first_weights(terms, own), terms.row_names)


def shared_bounds(terms: HorizontalTerms) -> Bounds:
    """Return the bounds of the shared inequalities, of which all clients have summands."""
    return bounds_of(terms.shared_inequalities)


def weights(terms: HorizontalTerms) -> int:
    """Return d, the number of weights: one a column, and the intercept."""
    return terms.shape[0] + 1


def first_weights(terms: HorizontalTerms, own: HorizontalServerData) -> Array:
    """Return w⁰: the weights of another run if given, else zeros."""
    size = weights(terms)
    if own.start is None:
        return np.zeros(size)
    if own.start.weights.shape != (size,):
        raise InputError(f"the start has {own.start.weights.size} weights, but the model needs {size}")
    return np.array(own.start.weights, dtype=np.float64)


def program_solver(**given: Any) -> Solver[HorizontalServer, HorizontalClient]:
    """Return the registry entry of a solver of programs; `given` completes the fields that all of them share."""
    return Solver(
        **given,
        split="horizontal",
        tol=1e-3,
        models=("linear",),
        protections=("none", "masked"),
        scopes=("global", "local", "both"),
        takes_server_rows=True,
        weighs_rows=True,
    )


def tolerances(job: Job) -> dict[str, float]:
    """Return the job's tolerance as ε₁ and ε₂, or nothing if it is zero; refuse an objective that lacks its class."""
    bounded = {one.label for one in job.constraints if isinstance(one, NeymanPearson)}
    if job.options.get("objective") == "other-class" and len(bounded) != 1:
        raise InputError(
            "objective is 'other-class', which needs a Neyman-Pearson constraint on one class; choose 'rows' or "
            "'clients'"
        )
    return {"stationarity": job.tol, "feasibility": job.tol} if job.tol > 0 else {}


def _sample(terms: HorizontalTerms, rows: ClientRows) -> FeatureRows:
    rows = rows.agreed(terms.groups)
    features = np.hstack([np.asarray(rows.features, dtype=np.float64), np.ones((rows.n_rows, 1))])
    return FeatureRows(features, rows.labels, rows.groups)
