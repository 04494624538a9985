"""The horizontal solvers by name, which of them is meant, and what fits with it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.errors import ConstraintError, DataError, InputError, MissingExtraError
from evenhand.horizontal import prox_al, sqp, trees
from evenhand.horizontal.averaging import fairalm, fairfed, fairfedavgalm, fedavg, fpfl
from evenhand.horizontal.solver import HorizontalClient, HorizontalServer, HorizontalSolver
from evenhand.programs.optimality import SHARED
from evenhand.protocol.job import Job
from evenhand.protocol.terms import HorizontalTerms

SOLVERS: Final[dict[str, HorizontalSolver]] = {
    "fedavg": fedavg.SOLVER,
    "fairfedavgalm": fairfedavgalm.SOLVER,
    "fairalm": fairalm.SOLVER,
    "fairfed": fairfed.SOLVER,
    "fpfl": fpfl.SOLVER,
    "prox-al": prox_al.SOLVER,
    "sqp": sqp.SOLVER,
    "trees": trees.SOLVER,
}


def choose_solver(
    solver: str, *, model: str, constrained: bool, two_classes: bool = True, protected: bool = False
) -> str:
    """The solver that ``"auto"`` means here; any other name is taken as it is, if there is such a solver.

    ``"sqp"`` for a linear model of two classes, with or without constraints: it ends at the optimum, in about a dozen
    rounds, and needs no step to be chosen. It cannot protect what clients send. ``"trees"`` for trees. Otherwise
    ``"fairfedavgalm"`` under a constraint and ``"fedavg"`` without.
    """
    if solver == "auto" and model == "trees":
        return "trees"
    if solver == "auto":
        best = SOLVERS["sqp"]
        if model in best.models and (two_classes or best.many_classes) and (not protected or best.takes_protection):
            return "sqp"
        return "fairfedavgalm" if constrained else "fedavg"
    if solver not in SOLVERS:
        raise InputError(f"solver is {solver!r}; choose 'auto' or one of {', '.join(map(repr, SOLVERS))}")
    return solver


def has_multipliers(solver: str, constrained: bool) -> bool:
    """Whether updates that clients may protect hold changes of multipliers beside those of weights."""
    found = SOLVERS[solver]
    return found.takes_protection and bool(constrained or found.default_constraints)


def check_job(
    job: Job,
    *,
    scope: ConstraintScope = EVERYWHERE,
    has_server: bool = False,
    protected: bool = False,
) -> None:
    """Refuse settings that the job's solver (named, not ``"auto"``) would not heed, before data are looked at."""
    solver, name = SOLVERS[job.solver], job.solver
    if job.loss != "logistic":
        raise InputError(f"loss is {job.loss!r}; horizontal solvers train with 'logistic' (softmax for class indices)")
    if job.label_privacy is not None:
        raise InputError("label_privacy is for parties that hold columns; clients protect what they send by noise")
    if job.model not in solver.models:
        kind = "trees; choose model 'trees'" if name == "trees" else "linear models; choose model 'linear'"
        raise InputError(f"solver {name!r} trains {kind}, or another solver")
    if protected and not solver.takes_protection:
        raise InputError(f"solver {name!r} cannot protect what clients send; choose {_those('takes_protection')}")
    _check_protection(job, scope)
    if job.constraints and not solver.takes_constraints:
        raise InputError(f"solver {name!r} trains without constraints; choose another, or drop the constraint")
    if not solver.takes_confidence and any(one.level is not None for one in job.constraints):
        raise InputError(f"solver {name!r} does not train towards a confidence; choose 'sqp', or drop it")
    local_scope = scope.scope not in solver.scopes
    if local_scope or (scope.limits and len(solver.scopes) == 1) or (has_server and not solver.takes_server_rows):
        asked = f"scope {scope.scope!r}" if local_scope else "limits or rows of the server's own"
        raise InputError(
            f"{asked} cannot be had with solver {name!r}, which trains under constraints over everybody's rows; choose "
            f"{_those('takes_server_rows')}"
        )
    if has_server and scope.scope == "local":
        raise InputError("the server has rows, which scope='local' has no use for; choose 'global' or 'both'")
    solver.settings(job)


def _check_protection(job: Job, scope: ConstraintScope) -> None:
    """Refuse masks where the server needs more than sums."""
    solver, name = SOLVERS[job.solver], job.solver
    if job.protection in ("auto", "none"):
        return
    if job.protection != "masked":
        raise InputError(
            f"protection {job.protection!r} hides labels from parties that hold other columns; clients hold their own "
            "labels: choose 'masked' or 'none'"
        )
    if scope.scope != "global":
        raise InputError(
            f"scope is {scope.scope!r}: a constraint over one client's rows needs that client's own answer; with "
            "protection 'masked' choose scope 'global'"
        )
    if name == "prox-al" and solver.settings(job).participation < 1.0:
        raise InputError("prox-al keeps the last answer of clients that are not asked; with masks ask everybody")


def protected_server(terms: HorizontalTerms, role: HorizontalServer) -> HorizontalServer:
    """The server as the terms protect what it is answered."""
    return _masked().SummingServer(terms, role) if terms.only_sums else role


def protected_client(terms: HorizontalTerms, role: HorizontalClient) -> HorizontalClient:
    """A client as the terms protect what it answers."""
    return _masked().MaskedClient(terms, role) if terms.only_sums else role


def _masked() -> Any:
    """Loaded only where it is wanted: the masks need an extra."""
    try:
        return import_module("evenhand.horizontal.masked.roles")
    except ImportError as error:
        raise MissingExtraError("protection 'masked' across clients", "privacy") from error


def check_terms(terms: HorizontalTerms) -> None:
    """Refuse terms that the solver cannot train on, or constraints that the data give no meaning."""
    job, names = terms.job, terms.names
    check_job(job, scope=terms.scope, has_server=terms.server_rows, protected=terms.protected)
    solver = SOLVERS[job.solver]
    if terms.only_sums:
        drawn = round(getattr(solver.settings(job), "participation", 1.0) * len(names))
        if drawn < 2:
            raise InputError(f"{max(drawn, 1)} client is asked at a time, and has no sum to hide in; ask two or more")
    terms.scope.check(job.constraints, names)
    if not solver.many_classes and (terms.classes is not None or len(terms.shape) != 1):
        raise InputError(f"solver {job.solver!r} trains models of two classes on rows of numbers")
    if len(solver.scopes) > 1 and SHARED in names:
        raise InputError(f"a client is called {SHARED!r}, which is what {job.solver!r} calls rows of all; rename it")
    if solver.needs_groups and not terms.groups:
        raise DataError(f"{job.solver} compares groups: every client needs its sensitive attributes")
    for row in terms.constraint_rows if terms.classes is not None else ():
        if row.measure.name != "loss":
            raise ConstraintError(f"{row}: with more than two classes a row can only be of measure 'loss'")
        if any(part.label is not None for _, part in row.terms):
            raise ConstraintError(f"{row} names a label ±1, but the labels are class indices; use loss-parity")


def _those(can: str) -> str:
    return " or ".join(repr(name) for name, solver in SOLVERS.items() if getattr(solver, can))
