"""Proximal augmented Lagrangian method with inexact ADMM as a solver."""

from __future__ import annotations

from typing import Any

from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.program_server import (
    client_program,
    program_solver,
    server_part,
    server_program,
    shared_bounds,
    tolerances,
)
from evenhand.horizontal.prox_al.client import ProxALClient
from evenhand.horizontal.prox_al.messages import VOCABULARY
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.prox_al.server import ProxALServer
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms

__all__ = ["SOLVER", "ProxAL"]


def from_job(job: Job) -> dict[str, Any]:
    # With the published ρ, shared inequalities can take many times the rounds.
    return {"max_rounds": job.max_rounds, "seed": job.seed, "rho_rule": "balanced", **tolerances(job)}


def server(terms: HorizontalTerms, own: HorizontalServerData) -> ProxALServer:
    return ProxALServer(server_part(terms, own, server_program(terms, own.rows)), SOLVER.settings(terms.job))


def client(terms: HorizontalTerms, name: str, own: ClientData) -> ProxALClient:
    options = SOLVER.settings(terms.job)
    program = client_program(terms, name, own.rows, options.objective)
    return ProxALClient(name, program, terms.names, shared_bounds(terms), options)


SOLVER = program_solver(
    name="prox-al",
    vocabulary=VOCABULARY,
    options=ProxAL,
    server=server,
    participant=client,
    from_job=from_job,
    default_rounds=100_000,
)
