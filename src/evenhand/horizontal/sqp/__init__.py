"""Sequential quadratic programming as a solver: about a dozen rounds, with one quadratic program each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.constraints.families import LOG_LINKS, LOSSES
from evenhand.constraints.inequality_parts import InequalityParts
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData
from evenhand.horizontal.program_server import client_program, program_solver, server_part, server_program, tolerances
from evenhand.horizontal.sqp.client import SQPClient
from evenhand.horizontal.sqp.counting import CountedParts, CountedRows
from evenhand.horizontal.sqp.messages import VOCABULARY
from evenhand.horizontal.sqp.options import SQP
from evenhand.programs.slices import SliceProgram
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms

if TYPE_CHECKING:
    from evenhand.horizontal.sqp.server import SQPServer


__all__ = ["SOLVER", "SQP"]


def from_job(job: Job) -> dict[str, Any]:
    return {"max_rounds": job.max_rounds, **tolerances(job)}


def options_of(job: Job) -> SQP:
    found: SQP = SOLVER.settings(job)
    return found


def server(terms: HorizontalTerms, own: HorizontalServerData) -> SQPServer:
    # Clarabel loads slowly, so only this server imports it.
    from evenhand.horizontal.sqp.server import SQPServer

    options, program = options_of(terms.job), server_program(terms, own.rows)
    counted = _counted_parts(terms, options)
    counting = _counting(terms, SERVER, program, own.rows, counted)
    # Exponential means are far from a start at zero, and Newton steps towards them are short.
    centres = terms.job.loss in LOG_LINKS and own.start is None
    # What a row loses if it is left out is known for a single score.
    judged = options.leave_one_out and not terms.job.classes and terms.job.loss_function.classifies
    return SQPServer(server_part(terms, own, program), options, counted, counting, centres=centres, judged=judged)


def client(terms: HorizontalTerms, name: str, own: ClientData) -> SQPClient:
    options = options_of(terms.job)
    program = client_program(terms, name, own.rows, options.objective)
    counting = _counting(terms, name, program, own.rows, _counted_parts(terms, options))
    return SQPClient(name, program, exact=options.is_exact(program.weights), counted=counting)


def _counted_parts(terms: HorizontalTerms, options: SQP) -> CountedParts | None:
    """Return the slices to count, or None if there are none."""
    holders = (*terms.names, *([SERVER] if terms.server_rows else []))
    own = {name: InequalityParts(terms.own_inequalities(name)) for name in holders}
    shared = InequalityParts(terms.shared_inequalities)
    rows = [row for parts in (*own.values(), shared) for row in parts.inequalities]
    rates = options.exact_rates is not False and any(row.measure.is_rate for row in rows)
    if not rates and not any(row.reach for row in rows):
        return None
    counts = terms.slice_counts or {}
    return CountedParts(own, shared, np.array([counts[part] for _, part in shared.parts], dtype=np.float64))


def _counting(
    terms: HorizontalTerms,
    name: str,
    program: SliceProgram | None,
    rows: ClientRows | None,
    counted: CountedParts | None,
) -> CountedRows | None:
    """Return a holder's rows of data if people are counted, else None."""
    if program is None or rows is None or counted is None:
        return None
    parts, counts = (InequalityParts(()), np.zeros(0)) if name == SERVER else (counted.shared, counted.shared_counts)
    return CountedRows(program, rows.agreed(terms.groups), counted.own[name], parts, counts)


SOLVER = program_solver(
    name="sqp",
    vocabulary=VOCABULARY,
    options=SQP,
    server=server,
    participant=client,
    from_job=from_job,
    takes_confidence=True,
    losses=LOSSES,
    bounds_means=True,
    many_classes=True,
    takes_class_rates=True,
    default_rounds=200,
)
