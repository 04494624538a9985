"""Which solver is meant, and what is refused before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest
from support.clients import deal_rows, unequal
from support.problems import small

from evenhand.constraints.kinds import LossParity
from evenhand.constraints.scope import ConstraintScope
from evenhand.errors import InputError
from evenhand.estimators.shared import named_solver
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.sqp.options import SQP
from evenhand.protocol.job import Job
from evenhand.solvers.registry import HORIZONTAL, check_job, choose_solver
from evenhand_reproductions.in_memory import horizontal_terms

PROBLEM = small(seed=2, rows=70)
CLIENTS = deal_rows(PROBLEM, unequal(PROBLEM, 3))


@pytest.mark.parametrize(
    ("model", "constrained", "two_classes", "protected", "expected"),
    [
        ("linear", False, True, False, "sqp"),
        ("linear", True, True, False, "sqp"),
        ("linear", True, False, False, "sqp"),
        ("linear", True, False, True, "fairfedavgalm"),
        ("linear", True, True, True, "fairfedavgalm"),
        ("linear", False, True, True, "fedavg"),
        ("mlp", True, True, False, "fairfedavgalm"),
        ("module", False, True, False, "fedavg"),
    ],
)
def test_auto(model: str, constrained: bool, two_classes: bool, protected: bool, expected: str) -> None:
    known = {"model": model, "constrained": constrained, "two_classes": two_classes, "protected": protected}
    assert choose_solver("auto", **known) == expected
    assert choose_solver("fpfl", **known) == "fpfl"


def test_terms_name_the_solver_and_what_it_trains_under() -> None:
    assert horizontal_terms(Job(), CLIENTS).job.solver == "sqp"
    assert horizontal_terms(Job(model="mlp"), CLIENTS).job.solver == "fedavg"
    terms = horizontal_terms(Job("fairalm"), CLIENTS)
    assert terms.job.constraints == (LossParity(0.0),)
    # Only where a client must weigh its rows against everybody's is it told how many there are.
    assert (terms.n_rows, terms.slice_counts) == (0, None)
    counted = horizontal_terms(Job(constraints=(LossParity(0.1),)), CLIENTS)
    assert counted.n_rows == 70
    assert sum((counted.slice_counts or {}).values()) == 70


@pytest.mark.parametrize(
    ("job", "settings", "message"),
    [
        ({"solver": "fedavg", "constraints": (LossParity(0.0),)}, {}, "does not support constraints"),
        ({"solver": "fairfed", "constraints": (LossParity(0.0),)}, {}, "does not support constraints"),
        ({"solver": "fedavg", "loss": "squared"}, {}, "'fedavg' does not support the squared loss; choose 'sqp'"),
        ({"solver": "prox-al", "loss": "poisson"}, {}, "'prox-al' does not support the poisson loss; choose 'sqp'"),
        ({"solver": "sqp", "model": "mlp"}, {}, "'sqp' trains linear models"),
        ({"solver": "prox-al"}, {"protected": True}, "does not support noise on updates; choose 'fedavg' or"),
        ({"solver": "fpfl"}, {"scope": ConstraintScope("local")}, "solver 'fpfl' does not support scope 'local'"),
        ({"solver": "fpfl"}, {"scope": ConstraintScope(limits={"server": 0.1})}, "limits or rows of the server's own"),
        ({"solver": "fairalm"}, {"has_server": True}, "choose 'prox-al' or 'sqp'"),
        ({"solver": "sqp"}, {"has_server": True, "scope": ConstraintScope("local")}, "does not use them"),
        ({"solver": "sqp", "options": {"step": 1.0}}, {}, "solver 'sqp' has no option 'step'"),
        ({"solver": "prox-al", "options": {"rho": -1}}, {}, "rho is -1"),
    ],
)
def test_what_a_solver_would_not_heed_is_refused(job: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_job(Job(**job), "horizontal", **settings)


def test_an_unknown_solver_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(InputError, match="choose 'auto' or one of 'fedavg'") as refused:
        horizontal_terms(Job("magic"), CLIENTS)
    assert all(repr(name) in str(refused.value) for name in HORIZONTAL)


def test_a_client_that_is_called_like_what_all_share_is_refused() -> None:
    clients = deal_rows(PROBLEM, [range(30), range(30, 70)])
    for client in clients[:1]:
        object.__setattr__(client, "name", "shared")
    with pytest.raises(InputError, match="rename the client"):
        horizontal_terms(Job("sqp"), clients)
    assert horizontal_terms(Job("fedavg"), clients).names == ("c1", "shared")


def test_options_of_programs_come_from_the_job_where_they_say_nothing() -> None:
    job = Job("prox-al", tol=1e-4, max_rounds=77, seed=5, options={"feasibility": 1e-2})
    found = HORIZONTAL["prox-al"].settings(job)
    assert (found.stationarity, found.feasibility, found.max_rounds, found.seed) == (1e-4, 1e-2, 77, 5)
    assert found.rho_rule == "balanced"
    assert HORIZONTAL["sqp"].settings(Job("sqp", tol=0.0)).tolerances == (1e-3, 1e-3)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (SQP(stationarity=1e-3, feasibility=1e-3, max_rounds=200), "sqp"),
        (ProxAL(stationarity=1e-3, max_rounds=100_000, rho_rule="fixed", seed=0), "prox-al"),
    ],
)
def test_an_option_that_is_given_wins_over_the_job(given: Any, name: str) -> None:
    found, options = named_solver("horizontal", given)
    assert found == name
    settings = HORIZONTAL[name].settings(Job(name, tol=1e-6, max_rounds=5, seed=3, options=options))
    assert settings.tolerances[0] == 1e-3
    assert settings.round_limit == given.max_rounds
    if name == "prox-al":
        assert (settings.tolerances[1], settings.rho_rule, settings.seed) == (1e-6, "fixed", 0)
    assert named_solver("horizontal", type(given)()) == (name, {})
