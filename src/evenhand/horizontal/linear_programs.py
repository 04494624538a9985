"""Linear models under constraints as programs, each built by its holder from the terms and from rows of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.bounds import Bounds
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.slices import bounds_of
from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientRows, HorizontalServerData
from evenhand.horizontal.program_server import ServerPart
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.programs.classification import sample_program
from evenhand.programs.regularisers import ZERO
from evenhand.programs.slices import SliceProgram
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms


def client_program(terms: HorizontalTerms, name: str, rows: ClientRows) -> SliceProgram:
    """A client's share of the mean loss over all rows of data, its own constraint rows, its summands of shared ones."""
    regulariser = np.full(weights(terms), terms.regulariser)
    # The intercept, which has the last column.
    regulariser[-1] = 0.0
    return sample_program(
        _sample(terms, rows),
        terms.own_rows(name),
        terms.shared_rows,
        each=1.0 / terms.n_rows,
        counts=terms.slice_counts,
        # Summands add up to the regulariser of the whole.
        regulariser=regulariser / len(terms.names),
    )


def server_program(terms: HorizontalTerms, rows: ClientRows | None) -> SliceProgram | None:
    """The server's own constraint rows (proximal AL Eq. 32), if it has rows of data."""
    return None if rows is None else sample_program(_sample(terms, rows), terms.own_rows(SERVER))


def server_part(terms: HorizontalTerms, own: HorizontalServerData, program: SliceProgram | None) -> ServerPart:
    """What the server of a linear model is built from; `program` is its `server_program`."""
    bounds = {name: bounds_of(terms.own_rows(name)) for name in terms.names}
    return ServerPart(bounds, program, shared_bounds(terms), ZERO, first_weights(terms, own), terms.row_names)


def shared_bounds(terms: HorizontalTerms) -> Bounds:
    """Bounds of the constraint rows that all clients have summands of."""
    return bounds_of(terms.shared_rows)


def weights(terms: HorizontalTerms) -> int:
    """d: one weight a column, and the intercept."""
    return terms.shape[0] + 1


def first_weights(terms: HorizontalTerms, own: HorizontalServerData) -> Array:
    """w⁰: the origin, or where another run ended."""
    size = weights(terms)
    if own.start is None:
        return np.zeros(size)
    if own.start.weights.shape != (size,):
        raise InputError(f"{own.start.weights.size} weights to start from, {size} needed")
    return np.array(own.start.weights, dtype=np.float64)


def program_solver(**given: Any) -> Solver[HorizontalServer, HorizontalClient]:
    """Return the entry of a solver of programs: what all of them take, and what is given."""
    return Solver(
        **given,
        split="horizontal",
        models=("linear",),
        protections=("none", "masked"),
        scopes=("global", "local", "both"),
        takes_server_rows=True,
        weighs_rows=True,
    )


def tolerances(job: Job) -> dict[str, float]:
    """The job's tolerance as ε₁ and ε₂, unless it is zero."""
    return {"stationarity": job.tol, "feasibility": job.tol} if job.tol > 0 else {}


def _sample(terms: HorizontalTerms, rows: ClientRows) -> FeatureRows:
    rows = rows.agreed(terms.groups)
    features = np.hstack([np.asarray(rows.features, dtype=np.float64), np.ones((rows.n_rows, 1))])
    return FeatureRows(features, rows.labels, rows.groups)
