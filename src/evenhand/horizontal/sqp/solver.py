"""Sequential quadratic programming as a solver: about a dozen rounds, one quadratic program each."""

from __future__ import annotations

from typing import Any

from evenhand.horizontal.linear_programs import (
    client_program,
    first_weights,
    own_bounds,
    server_program,
    shared_bounds,
    tolerances,
)
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.solver import HorizontalSolver
from evenhand.horizontal.sqp.client import SQPClient
from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.server import SQPServer
from evenhand.programs.regularisers import ZERO
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms


def from_job(job: Job) -> dict[str, Any]:
    return {"max_rounds": job.max_rounds, **tolerances(job)}


def options_of(job: Job) -> SQPOptions:
    found: SQPOptions = SOLVER.settings(job)
    return found


def server(terms: HorizontalTerms, own: HorizontalServerData) -> SQPServer:
    return SQPServer(
        own_bounds(terms),
        server_program(terms, own.rows),
        shared_bounds(terms),
        ZERO,
        first_weights(terms, own),
        options_of(terms.job),
        terms.row_names,
    )


def client(terms: HorizontalTerms, name: str, own: ClientData) -> SQPClient:
    program = client_program(terms, name, own.rows)
    return SQPClient(name, program, exact=options_of(terms.job).is_exact(program.weights))


SOLVER = HorizontalSolver(
    SQPOptions,
    server,
    client,
    from_job=from_job,
    models=("logistic",),
    many_classes=False,
    takes_protection=False,
    scopes=("global", "local", "both"),
    takes_server_rows=True,
    weighs_rows=True,
    fixed_rounds=False,
    default_rounds=200,
)
