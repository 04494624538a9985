"""The solvers of both splits by name, and what each takes: a job with settings that its solver would ignore is refused.

The contract test suites cover every solver listed here. `choose_solver` picks the solver of a job that names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.constraints.suitability import check_suits
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.horizontal import prox_al, sqp
from evenhand.horizontal import trees as histogram_trees
from evenhand.horizontal.averaging import build, fairalm, fairfed, fairfedavgalm, fpfl
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.programs.optimality import SHARED
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Solver, Split
from evenhand.protocol.terms import HorizontalTerms
from evenhand.vertical import fairvfl, fedbcd, learners, subspace, trees, vfb2
from evenhand.vertical.problem import Party
from evenhand.vertical.server import Server

VERTICAL: Final[dict[str, Solver[Server, Party]]] = {
    one.name: one
    for one in (subspace.SOLVER, trees.SOLVER, learners.SOLVER, fairvfl.SOLVER, fedbcd.SOLVER, *vfb2.SOLVERS)
}
HORIZONTAL: Final[dict[str, Solver[HorizontalServer, HorizontalClient]]] = {
    one.name: one
    for one in (
        build.SOLVER,
        fairfedavgalm.SOLVER,
        fairalm.SOLVER,
        fairfed.SOLVER,
        fpfl.SOLVER,
        prox_al.SOLVER,
        sqp.SOLVER,
        histogram_trees.SOLVER,
    )
}
OF_ANY_LOSS: Final = ("none", "masked")
"""Levels of protection that need no bound on the derivatives of the loss."""
_LISTS: Final[dict[Split, dict[str, Any]]] = {"vertical": VERTICAL, "horizontal": HORIZONTAL}


def register(solver: Solver[Any, Any]) -> None:
    """Add a solver of your own, so that jobs and estimators can name it.

    Every participant's process must register it: the terms carry its name, not its code.
    """
    listed = _LISTS[solver.split]
    if solver.name == "auto" or listed.get(solver.name, solver) is not solver:
        raise InputError(f"there is a {solver.split} solver {solver.name!r} already; choose another name")
    listed[solver.name] = solver


def find(split: Split, name: str) -> Solver[Any, Any]:
    """Return a solver by name, or refuse the name."""
    listed = _LISTS[split]
    if name not in listed:
        raise InputError(f"solver is {name!r}; choose 'auto' or one of {', '.join(map(repr, listed))}")
    found: Solver[Any, Any] = listed[name]
    return found


def able(split: Split, field: str, value: Any = True) -> str:
    """Name the solvers of a split for error messages: those with a field equal to `value`, or containing it."""

    def allows(solver: Solver[Any, Any]) -> bool:
        found = getattr(solver, field)
        return value in found if isinstance(found, tuple) else found == value

    return " or ".join(repr(name) for name, solver in _LISTS[split].items() if allows(solver))


_OF_MODEL: Final = {"linear": "subspace", "mlp": "fairvfl", "trees": "trees", "own": "learners"}


def solver_name(job: Job) -> str:
    """Return the name of a vertical job's solver; ``"auto"`` chooses the solver for the job's model."""
    return _OF_MODEL.get(job.model, "subspace") if job.solver == "auto" else job.solver


def resolve(job: Job, tol: float | None) -> Job:
    """Return a vertical job with an explicit solver name and this tolerance; None takes the solver's default."""
    name = solver_name(job)
    known = VERTICAL.get(name)
    if tol is not None:
        return replace(job, solver=name, tol=tol)
    return job.resolved(solver=name, tol=job.tol if known is None else known.tol)


def default_numbers(job: Job, split: Split) -> Literal["curves", "standard"]:
    """Return how a job's numbers become features where nobody says so."""
    known = _LISTS[split].get(solver_name(job) if split == "vertical" else job.solver)
    return "curves" if known is not None and known.curves and job.model == "linear" else "standard"


def choose_solver(
    solver: str, *, model: str, constrained: bool, two_classes: bool = True, protected: bool = False
) -> str:
    """Return the name of a horizontal job's solver; ``"auto"`` chooses it by model, classes and protection.

    ``"sqp"`` trains a linear model, with or without constraints. It reaches the optimum in about a dozen
    rounds and needs no step size, but clients cannot add noise. ``"trees"`` trains trees. Otherwise ``"auto"`` is
    ``"fairfedavgalm"`` with a constraint and ``"fedavg"`` without.
    """
    if solver != "auto":
        return find("horizontal", solver).name
    if model == "trees":
        return "trees"
    best = HORIZONTAL["sqp"]
    if model in best.models and (two_classes or best.many_classes) and (not protected or best.takes_noise):
        return best.name
    return "fairfedavgalm" if constrained else "fedavg"


def stopping(
    solver: str, options: Mapping[str, Any], tol: float | None, max_rounds: int | None
) -> dict[Literal["tol", "max_rounds"], Any]:
    """Return tolerance and rounds of a horizontal job; None takes the solver's default.

    A tolerance or a number of rounds that is given twice, in the job and in the solver's options, must be the same.
    """
    for option, name, given in (
        ("stationarity", "tol", tol),
        ("feasibility", "tol", tol),
        ("max_rounds", "max_rounds", max_rounds),
    ):
        if given is not None and options.get(option) not in (None, given):
            raise InputError(
                f"{name} is {given!r} and the solver's {option} is {options[option]!r}; give one of them only"
            )
    found = HORIZONTAL[solver]
    rounds = found.default_rounds if max_rounds is None else max_rounds
    return {"tol": found.tol if tol is None else tol, "max_rounds": rounds}


def has_multipliers(solver: str, constrained: bool) -> bool:
    """Return whether clients' updates contain changes of multipliers in addition to changes of weights."""
    found = HORIZONTAL[solver]
    return found.takes_noise and bool(constrained or found.default_constraints)


def check_job(
    job: Job,
    split: Split,
    *,
    scope: ConstraintScope = EVERYWHERE,
    has_server: bool = False,
    protected: bool = False,
) -> Solver[Any, Any]:
    """Return the job's solver, or refuse settings that it would ignore.

    Parameters
    ----------
    scope, has_server, protected
        Horizontal only: where constraints hold, whether the server has rows of its own,
        and whether clients add noise to their updates.
    """
    solver = find(split, solver_name(job) if split == "vertical" else job.solver)
    if job.constraints and not solver.takes_constraints:
        raise InputError(
            f"solver {job.solver!r} does not support constraints; choose another solver, or remove the constraint"
        )
    if not solver.takes_confidence and any(one.level is not None for one in job.constraints):
        choices = able(split, "takes_confidence")
        raise InputError(
            f"solver {job.solver!r} does not support confidence; choose {choices}, or remove "
            "confidence from the constraint"
        )
    check_suits(job.constraints, job.loss)
    if by_pattern := [one.kind for one in job.asked if one.splits_patterns]:
        _check_patterns(job, split, by_pattern[0])
    if job.loss != "logistic" and job.constraints and not solver.bounds_means:
        raise InputError(
            f"solver {solver.name!r} does not support constraints with the {job.loss} loss; choose "
            f"{able(split, 'bounds_means')}, or remove the constraint"
        )
    if job.class_weight is not None:
        _check_class_weight(job, split, solver)
    if job.classes:
        _check_classes(job, split, solver)
    if split == "vertical":
        _check_vertical(job, solver)
    else:
        _check_horizontal(job, solver, scope, has_server, protected)
    return solver


def _check_patterns(job: Job, split: Split, kind: str) -> None:
    """Refuse bounds by pattern of presence where they would tell, or need, more than participants have."""
    if split == "horizontal":
        raise InputError(f"constraint {kind}: by_presence is for vertical jobs, where parties lack rows; remove it")
    if job.label_privacy is not None:
        raise InputError(
            f"constraint {kind}: by_presence and label_privacy do not go together, since which patterns are rare "
            "depends on the true labels; remove one of them"
        )
    if job.closed is not None and job.closed.splits_patterns:
        raise InputError(f"constraint {kind}: threshold_by has no cut for each pattern of presence; remove by_presence")


def _check_class_weight(job: Job, split: Split, solver: Solver[Any, Any]) -> None:
    """Refuse class weights if the solver ignores them, or if labels are randomised or numbers."""
    if split == "horizontal" or not solver.takes_weights:
        raise InputError(
            f"solver {job.solver!r} does not support class_weight; choose {able('vertical', 'takes_weights')} in a "
            "vertical job, or move the threshold instead"
        )
    if job.label_privacy is not None or job.loss != "logistic":
        raise InputError("class_weight needs the true labels of classes, without label_privacy; remove one of them")


def check_several(solver: Solver[Any, Any], split: Split, n_classes: int) -> None:
    """Refuse more than two classes if the solver trains two."""
    if n_classes > 2 and not solver.many_classes:
        # The first two sentences are the ones that scikit-learn's checks of estimators expect.
        raise DataError(
            "Only binary classification is supported. The type of the target is multiclass: there are "
            f"{n_classes} classes, and solver {solver.name!r} trains two. Choose {able(split, 'many_classes')}, or "
            "train one class against the rest"
        )


def _check_classes(job: Job, split: Split, solver: Solver[Any, Any]) -> None:
    """Refuse more than two classes if the solver trains two, and settings that are for two."""
    check_several(solver, split, len(job.classes))
    if job.loss != "logistic":
        raise InputError(f"the {job.loss} loss takes numbers, but there are {len(job.classes)} classes")
    if any(one.level is not None for one in job.constraints):
        raise InputError(
            f"confidence supports only two labels, and there are {len(job.classes)}; remove it from the constraint"
        )
    if job.rule is not None:
        raise InputError(
            f"threshold {job.rule.rule!r} is for two labels, and there are {len(job.classes)}; remove the threshold"
        )
    if split == "horizontal":
        return
    if job.protection not in ("auto", "none", "masked"):
        raise InputError(
            f"protection {job.protection!r} supports two classes, and there are {len(job.classes)}; choose 'masked' or "
            "'none'"
        )
    if job.label_privacy is not None:
        raise InputError(f"label_privacy supports only two labels, and there are {len(job.classes)}")
    if job.options.get("monotone"):
        raise InputError(f"monotone supports only two labels, and there are {len(job.classes)}; remove it")
    if job.cut:
        raise InputError(f"there are {len(job.classes)} classes: the highest score decides, so remove the threshold")


def _check_vertical(job: Job, solver: Solver[Any, Any]) -> None:
    check_monotone(job, solver)
    if job.loss not in solver.losses:
        named = able("vertical", "losses", job.loss)
        raise InputError(f"solver {job.solver!r} does not support the {job.loss} loss; choose {named}")
    if job.model not in solver.models:
        raise InputError(
            f"solver {job.solver!r} needs model {' or '.join(map(repr, solver.models))}, not {job.model!r}"
        )
    solver.settings(job)
    if job.model == "own" and job.protection in ("dealer", "encrypted"):
        raise InputError(
            f"solver {job.solver!r} does not support protection {job.protection!r}: a party fits its model to "
            "derivatives in the clear, and networks or trees cannot be fitted to shares of them; choose 'masked', or "
            f"solver {able('vertical', 'protections', job.protection)}"
        )
    if job.protection not in ("auto", *solver.protections):
        others = able("vertical", "protections", job.protection)
        choices = f"solver {others}" if others else f"protection {' or '.join(map(repr, solver.protections))}"
        raise InputError(f"solver {job.solver!r} does not support protection {job.protection!r}; choose {choices}")
    if job.protection not in ("auto", "none") and (
        job.model not in ("linear", "own") or job.options.get("pace", "exact") != "exact"
    ):
        raise InputError(f"protection {job.protection!r} needs linear models with pace='exact'; choose 'none'")
    if job.loss != "logistic" and job.protection not in ("auto", *OF_ANY_LOSS):
        raise InputError(
            f"protection {job.protection!r} does not support the {job.loss} loss: shares of derivatives need a bound "
            "on them, which only the logistic loss has; choose 'masked' or 'none'"
        )
    if job.label_privacy is not None:
        _check_label_privacy(job, solver)


def check_monotone(job: Job, solver: Solver[Any, Any]) -> None:
    """Refuse monotone columns where the solver, or the protection, cannot have them."""
    if not job.options.get("monotone"):
        return
    if not solver.takes_monotone:
        raise InputError(
            f"solver {job.solver!r} does not support monotone; choose {able('vertical', 'takes_monotone')}, or remove "
            "monotone"
        )
    if job.protection in ("dealer", "encrypted"):
        raise InputError(
            f"protection {job.protection!r} does not support monotone: nobody knows the weights, so nobody can bound "
            "them; choose 'none', or remove monotone"
        )
    if job.protection == "masked" and "masked" in solver.protections:
        raise InputError(
            "protection 'masked' does not support monotone: a party with weights at their bounds may add nothing to a "
            "sum, or a single column, and the server then reads one party alone. Choose 'none', with which the server "
            "reads each party's directions and the columns whose weights go to their bound; or remove monotone"
        )


def check_takes_weights(job: Job) -> None:
    """Refuse sample weights if the vertical job's solver ignores them, or if they may reveal labels."""
    if job.label_privacy is not None:
        raise InputError("label_privacy does not support sample_weight: weights may reveal labels")
    if not check_job(job, "vertical").takes_weights:
        choices = [name for name, one in VERTICAL.items() if one.takes_weights and job.loss in one.losses]
        raise InputError(
            f"solver {solver_name(job)!r} does not support sample_weight; choose {' or '.join(map(repr, choices))}, or "
            "remove the weights"
        )


def _check_label_privacy(job: Job, solver: Solver[Any, Any]) -> None:
    """Refuse settings that would reveal more about labels than their randomised responses do."""
    if not solver.takes_label_privacy:
        choices = able("vertical", "takes_label_privacy")
        raise InputError(f"solver {solver.name!r} does not support label_privacy; choose {choices}")
    if (
        job.label_privacy is not None
        and job.label_privacy.finish
        and (job.model == "mlp" or job.options.get("monotone"))
    ):
        raise InputError(
            "label_privacy: finish supports linear models and trees, without monotone columns; remove finish"
        )
    if job.loss != "logistic":
        raise InputError(f"label_privacy needs two classes, but the {job.loss} loss takes any numbers")
    if any(one.level is not None for one in job.constraints):
        raise InputError(
            "label_privacy does not support confidence: randomised responses prove nothing; remove one of them"
        )
    if any(one.crosses for one in job.constraints):
        raise InputError(
            "label_privacy does not support cross=True: the compared crossings depend on the true labels, and all "
            "participants learn them; add a column with the crossed attributes instead"
        )


def _check_horizontal(
    job: Job, solver: Solver[Any, Any], scope: ConstraintScope, has_server: bool, protected: bool
) -> None:
    name = solver.name
    if job.loss not in solver.losses:
        named = able("horizontal", "losses", job.loss)
        raise InputError(f"solver {name!r} does not support the {job.loss} loss; choose {named} with a linear model")
    if job.label_privacy is not None:
        raise InputError("label_privacy is for vertical jobs; in horizontal jobs use update_noise")
    if job.model not in solver.models:
        kind = "trees; choose model 'trees'" if solver.models == ("trees",) else "linear models; choose model 'linear'"
        raise InputError(f"solver {name!r} trains {kind}, or another solver")
    if protected and not solver.takes_noise:
        raise InputError(
            f"solver {name!r} does not support noise on updates; choose {able('horizontal', 'takes_noise')}"
        )
    if job.rule is not None and protected:
        raise InputError(
            f"threshold {job.rule.rule!r} with noise on updates: clients would count their scores without noise; give "
            "a number as threshold, or remove the noise"
        )
    _check_masks(job, solver, scope)
    local_scope = scope.scope not in solver.scopes
    if local_scope or (scope.limits and len(solver.scopes) == 1) or (has_server and not solver.takes_server_rows):
        asked = f"scope {scope.scope!r}" if local_scope else "limits or rows of the server's own"
        raise InputError(
            f"solver {name!r} does not support {asked}: its constraints are over all clients' rows; choose "
            f"{able('horizontal', 'takes_server_rows')}"
        )
    if has_server and scope.scope == "local":
        raise InputError("the server has rows, but scope='local' does not use them; choose 'global' or 'both'")
    solver.settings(job)


def _check_masks(job: Job, solver: Solver[Any, Any], scope: ConstraintScope) -> None:
    """Refuse masking if the server needs more than sums."""
    if job.protection in ("auto", "none"):
        return
    if job.protection not in solver.protections:
        if job.protection == "masked":
            choices = able("horizontal", "protections", "masked")
            raise InputError(f"solver {solver.name!r} does not run with protection 'masked'; choose {choices}")
        raise InputError(
            f"protection {job.protection!r} is for vertical jobs; horizontal jobs support 'masked' and 'none'"
        )
    if scope.scope != "global":
        raise InputError(
            f"scope is {scope.scope!r}, but a constraint over one client's rows needs unmasked values of that client; "
            "with protection 'masked' choose scope 'global'"
        )
    if solver.name == "prox-al" and solver.settings(job).participation < 1.0:
        raise InputError("with protection 'masked', prox-al needs all clients in every round")


def check_terms(terms: HorizontalTerms) -> None:
    """Refuse terms that the solver cannot train on, and constraints that are undefined on these data."""
    job, names = terms.job, terms.names
    solver = check_job(
        job,
        "horizontal",
        scope=terms.scope,
        has_server=terms.server_rows,
        protected=terms.protected,
    )
    if terms.only_sums:
        drawn = round(getattr(solver.settings(job), "participation", 1.0) * len(names))
        if drawn < 2:
            raise InputError(
                f"only {max(drawn, 1)} client takes part in a round, so its sum is not hidden; use two or more"
            )
        if len(names) > drawn and job.least_summed > 1 and not terms.noise_covers:
            raise InputError(
                "masked sums over changing clients can be subtracted from each other; set participation to 1, add "
                "noise, or set least_summed to 1 and accept that"
            )
    terms.scope.check(job.constraints, names)
    if not solver.many_classes and terms.classes is not None:
        raise InputError(f"solver {job.solver!r} trains models of two classes")
    if "mlp" not in solver.models and len(terms.shape) != 1:
        raise InputError(f"solver {job.solver!r} trains models on rows of numbers")
    if len(solver.scopes) > 1 and SHARED in names:
        raise InputError(
            f"a client is named {SHARED!r}, which {job.solver!r} uses for shared inequalities; rename the client"
        )
    if solver.needs_groups and not terms.groups:
        raise DataError(f"{job.solver} compares groups: every client needs sensitive attributes")
    # Without the names of classes, constraints are those of two labels.
    named = solver.takes_class_rates and bool(job.classes)
    for row in terms.inequalities if terms.classes is not None and not named else ():
        choices = able("horizontal", "takes_class_rates")
        if row.measure.name != "loss":
            raise ConstraintError(
                f"{row}: with more than two classes only measure='loss' is supported by {solver.name!r}; choose "
                f"{choices} for rates"
            )
        if any(part.label is not None for _, part in row.terms):
            raise ConstraintError(
                f"{row} refers to labels, which {solver.name!r} does not support with more than two classes; use "
                f"loss-parity, or choose {choices}"
            )
