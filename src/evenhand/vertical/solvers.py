"""The vertical solvers by name: the terms of a run, and the roles that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from evenhand.constraints.groups import Groups
from evenhand.errors import InputError
from evenhand.protocol.job import Job, Protection
from evenhand.protocol.roles import Role
from evenhand.protocol.terms import Part, VerticalTerms
from evenhand.vertical import fairvfl, fedbcd, subspace, trees, vfb2
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyData, ServerData
from evenhand.vertical.protected.build import dealer, protected_party, protected_server
from evenhand.vertical.protected.layer import innermost
from evenhand.vertical.server import CompiledRun, Server
from evenhand.vertical.solver import Solver

SOLVERS = {
    "subspace": subspace.SOLVER,
    "trees": trees.SOLVER,
    "fairvfl": fairvfl.SOLVER,
    "fedbcd": fedbcd.SOLVER,
    **vfb2.SOLVERS,
}
OF_MODEL = {"linear": "subspace", "mlp": "fairvfl", "trees": "trees"}
"""What ``"auto"`` is."""
_DEALER: Final = "dealer"
"""The name of the third party that has no data, in one process, where it is nobody in particular."""


def solver_name(job: Job) -> str:
    """The job's solver; ``"auto"`` is the one for the parties' kind of model."""
    return OF_MODEL.get(job.model, "subspace") if job.solver == "auto" else job.solver


def check_job(job: Job) -> Solver:
    """The job's solver; an unknown one is refused, and so is an option or a constraint that it would ignore."""
    solver = SOLVERS.get(solver_name(job))
    if solver is None:
        raise InputError(f"solver is {job.solver!r}; choose 'auto' or one of {', '.join(map(repr, SOLVERS))}")
    if job.constraints and not solver.takes_constraints:
        raise InputError(f"solver {job.solver!r} trains without constraints; choose another, or drop the constraint")
    if not solver.takes_confidence and any(one.level is not None for one in job.constraints):
        raise InputError(f"solver {job.solver!r} does not train towards a confidence; choose 'subspace', or drop it")
    if job.loss not in solver.losses:
        named = [name for name, one in SOLVERS.items() if job.loss in one.losses]
        raise InputError(f"solver {job.solver!r} does not take the {job.loss} loss; choose {' or '.join(named)}")
    if job.model not in solver.models:
        raise InputError(f"solver {job.solver!r} takes {' or '.join(solver.models)} parties, not {job.model!r} ones")
    job.settings(solver.options)
    if job.protection not in ("auto", *solver.protections):
        able = [name for name, one in SOLVERS.items() if job.protection in one.protections]
        raise InputError(
            f"solver {job.solver!r} does not run with protection {job.protection!r}; choose {' or '.join(able)}"
        )
    if job.protection not in ("auto", "none") and (
        job.model != "linear" or job.options.get("pace", "exact") != "exact"
    ):
        raise InputError(f"protection {job.protection!r} is for linear parties that go in step; choose 'none'")
    if job.label_privacy is not None:
        _check_label_privacy(job, solver)
    return solver


def check_takes_weights(job: Job) -> None:
    """Refuse weights of rows where the job's solver would ignore them, or where they might tell of labels."""
    if job.label_privacy is not None:
        raise InputError("label_privacy and sample_weight: weights may follow from labels, and would show them")
    if not check_job(job).takes_weights:
        able = [name for name, one in SOLVERS.items() if one.takes_weights and job.loss in one.losses]
        raise InputError(
            f"solver {solver_name(job)!r} counts all rows alike; choose {' or '.join(map(repr, able))}, or leave "
            "weights out"
        )


def _check_label_privacy(job: Job, solver: Solver) -> None:
    """Refuse whatever would tell of labels more than their randomised responses do."""
    if not solver.hides_labels:
        able = [name for name, one in SOLVERS.items() if one.hides_labels]
        raise InputError(f"solver {solver_name(job)!r} does not run with label_privacy; choose {' or '.join(able)}")
    if job.label_privacy is not None and job.label_privacy.finish and (job.model == "mlp" or "monotone" in job.options):
        raise InputError(
            "label_privacy: finish is for linear parties, and trees without monotone columns; leave it out"
        )
    if job.loss != "logistic":
        raise InputError(f"label_privacy is for labels of two values; the {job.loss} loss has numbers")
    if any(one.level is not None for one in job.constraints):
        raise InputError("label_privacy and a constraint's confidence: what answers say proves nothing; drop either")
    if any(one.crosses for one in job.constraints):
        raise InputError(
            "label_privacy and cross=True: which crossings are compared follows from the true labels, and everybody is "
            "told; cross the attributes in a column of your own"
        )


def _protection(job: Job, solver: Solver, participants: Mapping[str, Part]) -> Protection:
    """The job's protection; ``"auto"`` is what costs next to nothing."""
    parts = list(participants.values())
    passive, active = parts.count("passive"), parts.count("active")
    if job.protection == "auto":
        return "masked" if solver.masked_by_default and passive > 1 and active == 1 else "none"
    if job.protection == "none":
        return "none"
    if active != 1:
        raise InputError(f"protection {job.protection!r} takes one active party, which holds the labels; {active} are")
    if passive < (2 if job.protection == "masked" else 1):
        raise InputError(
            f"protection {job.protection!r} with {passive} passive part{'y' if passive == 1 else 'ies'}: a sum over "
            "one is its own message and hides nothing; choose 'dealer' or 'encrypted', or 'none'"
        )
    return job.protection


def _with_dealer(participants: Mapping[str, Part], protection: Protection) -> Mapping[str, Part]:
    """With the third party that has no data, where there is to be one and nobody says who it is."""
    if "dealer" in participants.values():
        if protection != "dealer":
            raise InputError(f"a participant is the dealer, who has no part in protection {protection!r}; leave it out")
        return participants
    if protection != "dealer":
        return participants
    if _DEALER in participants:
        raise InputError(
            f"a party's name is {_DEALER!r}, which is that of the third party without data; choose another"
        )
    return {**participants, _DEALER: "dealer"}


def resolve(job: Job, tol: float | None) -> Job:
    """Return the job with its solver named and this tolerance; None is the solver's own."""
    name = solver_name(job)
    known = SOLVERS.get(name)
    if tol is None:
        tol = job.tol if known is None else known.tol
    return replace(job, solver=name, tol=tol)


def solver_of(terms: VerticalTerms) -> Solver:
    """Return the solver of terms, whose job was checked when they were drawn up."""
    return SOLVERS[terms.job.solver]


def vertical_terms(
    job: Job, participants: Mapping[str, Part], n_rows: int, groups: Groups, *, warm: bool = False
) -> VerticalTerms:
    """Return the terms of a job that can be run, with the solver by name."""
    protection = _protection(job, check_job(job), participants)
    if job.label_privacy is not None and (active := list(participants.values()).count("active")) != 1:
        raise InputError(f"label_privacy takes one active party, which holds the labels; {active} would be sent them")
    everybody = _in_order(_with_dealer(participants, protection))
    draft = VerticalTerms(replace(job, solver=solver_name(job), protection=protection), everybody, 0)
    return with_rows(draft, n_rows, groups, warm=warm)


def with_rows(draft: VerticalTerms, n_rows: int, groups: Groups, *, warm: bool = False) -> VerticalTerms:
    """Return draft terms with what is known once rows are aligned: how many there are, and their groups."""
    if draft.job.label_privacy is not None and warm:
        raise InputError("label_privacy begins anew: an earlier run may have known the true labels; drop warm_start")
    agreed = {name: tuple(values) for name, values in groups.items()}
    return replace(draft, n_rows=n_rows, groups=agreed, warm=warm)


def _in_order(participants: Mapping[str, Part]) -> dict[str, Part]:
    """The first active party, whose model has the intercept, then all others by name.

    Parties are numbered so: scores are summed, steps launched and delays drawn in this order, whatever order they were
    given in. Shorter names come first, so that numbered ones stay in the order of their numbers.
    """
    first = next((name for name, part in participants.items() if part == "active"), "")
    return {
        name: participants[name] for name in sorted(participants, key=lambda name: (name != first, len(name), name))
    }


def server(terms: VerticalTerms, own: ServerData) -> Role:
    """The server's role, from the terms and what the server holds, with the protection of the terms around it."""
    solver = solver_of(terms)
    return protected_server(terms, own, solver) if terms.only_sums else solver.server(terms, own)


def party(terms: VerticalTerms, name: str, own: PartyData) -> Role:
    """A party's role, from the terms and what the party holds, with the protection of the terms around it."""
    solver = solver_of(terms)
    if name not in terms.names:
        raise InputError(f"the terms name no party {name!r}; there are {', '.join(terms.names)}")
    return protected_party(terms, name, own, solver) if terms.only_sums else solver.party(terms, name, own)


def helpers(terms: VerticalTerms) -> list[Role]:
    """Roles of those that have no data: the dealer, where the terms have one."""
    return [] if terms.dealer is None else [dealer(terms)]


def solvers_server(role: Role) -> Server:
    """The solver's own server, without what protects it."""
    found = innermost(role)
    assert isinstance(found, Server)
    return found


def solvers_party(role: Role) -> Party:
    """The solver's own party, without what protects it."""
    found = innermost(role)
    assert isinstance(found, Party)
    return found


def compiled(terms: VerticalTerms, own: ServerData, parties: Mapping[str, PartyData]) -> CompiledRun | None:
    """The one role that does everybody's work, where everybody's data are here and the solver has such a role."""
    make = solver_of(terms).compiled
    return None if make is None else make(terms, own, parties)
