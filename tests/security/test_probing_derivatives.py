"""A server that probes a party's rows with derivatives of few rows gets no answer."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.errors import DivergenceError, ProtocolError
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.solvers.roles import party, vertical_terms
from evenhand.vertical.messages import DERIVATIVE, WEIGHTED_DERIVATIVE
from evenhand.vertical.problem import MOST_NARROW_ROUNDS, Party, PartyData
from evenhand.vertical.trees.messages import DERIVATIVES

ROWS = 400
PARTS = {"bank": "active", "shop": "passive", "phone": "passive"}


def shop(solver: str) -> Party:
    model = "trees" if solver == "trees" else "linear"
    terms = vertical_terms(Job(solver, model=model, max_rounds=40, protection="none"), PARTS, ROWS, {})
    found = party(terms, "shop", PartyData(np.random.default_rng(0).normal(size=(ROWS, 4))))
    assert isinstance(found, Party)
    found.start()
    return found


def ask(role: Party, nu: np.ndarray, round: int = 1) -> object:
    if role.terms.job.solver == "trees":
        units = {"gradient_unit": 1.0, "curvature_unit": 1.0}
        gradient = np.broadcast_to(nu, (5, ROWS)).astype(np.float16)
        halves = {"gradient": gradient, "curvature": np.full((5, ROWS), 0.25, dtype=np.float16)}
        body = {"across": 0, "rows_a_leaf": 0, **halves, **units}
        return role.receive(DERIVATIVES.message(SERVER, "shop", round=round, **body))
    if role.terms.job.solver == "subspace":
        return role.receive(DERIVATIVE.message(SERVER, "shop", round=round, last=0, nu=nu, curvature=np.zeros(0)))
    return role.receive(WEIGHTED_DERIVATIVE.message(SERVER, "shop", round=round, last=0, step=0.1, nu=nu))


def honest() -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.0, 1.0, ROWS) / ROWS


SOLVERS = ("subspace", "fairvfl", "trees")


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("noise", [0.0, 1e-3], ids=["one-hot", "one-hot with noise"])
def test_a_probe_of_one_row_is_refused(solver: str, noise: float) -> None:
    nu = noise * honest()
    nu[17] = 1.0
    with pytest.raises(ProtocolError, match=r"shop: the derivatives of round \d concentrate on 1\.0 rows"):
        ask(shop(solver), nu)


@pytest.mark.parametrize("solver", SOLVERS)
def test_probes_of_a_few_rows_are_answered_a_few_times_only(solver: str) -> None:
    role = shop(solver)
    probes = [np.zeros(ROWS) for _ in range(MOST_NARROW_ROUNDS + 1)]
    for place, nu in enumerate(probes):
        nu[3 * place : 3 * place + 3] = 0.5
    for round, nu in enumerate(probes[:-1], 1):
        ask(role, nu, round)
    with pytest.raises(ProtocolError, match="concentrate on 3"):
        ask(role, probes[-1], len(probes))


def test_each_fold_may_not_probe_rows_of_its_own() -> None:
    nu = np.zeros((5, ROWS))
    for place, row in enumerate(nu):
        row[3 * place : 3 * place + 3] = 0.5
    with pytest.raises(ProtocolError, match="concentrate on 3"):
        ask(shop("trees"), nu)


def test_the_count_of_narrow_rounds_survives_a_resume() -> None:
    role, nu = shop("subspace"), np.zeros(ROWS)
    nu[:3] = 0.5
    for round in range(1, MOST_NARROW_ROUNDS + 1):
        ask(role, nu, round)
    again = shop("subspace")
    again.restore(role.snapshot())
    with pytest.raises(ProtocolError, match="concentrate"):
        ask(again, nu, MOST_NARROW_ROUNDS + 1)


@pytest.mark.parametrize("solver", ["subspace", "fairvfl"])
def test_huge_derivatives_are_refused(solver: str) -> None:
    with pytest.raises(DivergenceError, match="too large to come from training"):
        ask(shop(solver), 1e13 * honest())


@pytest.mark.parametrize("solver", SOLVERS)
def test_honest_derivatives_are_answered(solver: str) -> None:
    assert ask(shop(solver), honest())


def test_a_curvature_of_zero_is_refused() -> None:
    """With it the direction would be the gradient over the regulariser, whatever the data."""
    job = Job("subspace", max_rounds=9, protection="none", loss="poisson")
    terms = vertical_terms(job, PARTS, ROWS, {})
    role = party(terms, "shop", PartyData(np.random.default_rng(0).normal(size=(ROWS, 4))))
    role.start()

    def answer(curvature: np.ndarray) -> object:
        return role.receive(DERIVATIVE.message(SERVER, "shop", round=1, last=0, nu=honest(), curvature=curvature))

    for wrong in (0.0, -1.0, 1e300):
        with pytest.raises(ProtocolError, match="curvature of round 1 is negative, zero or too large"):
            answer(np.full(ROWS, wrong))
    assert answer(np.full(ROWS, 1.0 / ROWS))
