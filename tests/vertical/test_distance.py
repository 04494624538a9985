"""How far a model is from the optimum: the bound holds, and runs stop by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from support.generated import generate
from support.problems import Problem, Reference, parity_rows, pooled_weights, small, train

from evenhand.constraints.kinds import Constraint, DemographicParity, EqualizedOdds, EqualOpportunity, LossParity
from evenhand.protocol.job import Job
from evenhand.solvers.registry import resolve
from evenhand.training.vertical import VerticalRun
from evenhand_reproductions.in_memory import train_vertical

BLOCKS = [[0, 1], [2, 3]]
LABELS: dict[str, list[int | None]] = {"equal-opportunity": [1], "equalized-odds": [1, -1], "loss-parity": [None]}


def subspace(problem: Any, constraint: Constraint | None, blocks: Any = BLOCKS, **job: Any) -> VerticalRun:
    return train(problem, constraint, blocks, **{"solver": "subspace", "max_rounds": 200, **job})


def optimum(problem: Any, constraint: Any, regulariser: float) -> tuple[Reference, float]:
    """By SLSQP on the pooled rows."""
    rows = [] if constraint is None else parity_rows(problem, LABELS[constraint.kind], constraint.epsilon)
    reference = Reference(problem, rows, regulariser)
    return reference, reference.objective(reference.optimum()[0])


CONSTRAINTS = [None, EqualOpportunity(0.05), EqualizedOdds(0.05), LossParity(0.05)]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("seed", [1, 4])
def test_the_bound_holds_in_every_round(seed: int, constraint: Any) -> None:
    problem = small(seed, rows=120)
    reference, best = optimum(problem, constraint, 2.0 / 120)
    run = subspace(problem, constraint, tol=1e-6)
    told = run.history[run.history.get("bound", run.history["objective"]).notna()]
    if "bound" in run.history:
        distance = (told["objective"] - best) / told["objective"]
        # Up to the precision of the reference.
        assert (distance <= told["bound"] + 1e-8).all()
    # From outside: the sum over all weights, and every multiplier's slack.
    weights, certificate = pooled_weights(run, BLOCKS), run.certificate
    gradient, excess = reference.gradient(weights, run.multipliers), reference.excess(weights)
    expected = (60.0 * 0.5 * gradient @ gradient + np.abs(run.multipliers * excess).sum()) / certificate.objective
    assert certificate.bound in (None, pytest.approx(expected, rel=1e-4, abs=1e-12))
    assert certificate.estimate <= min(expected, 1e-6) * (1.0 + 1e-4)
    tilted = np.ones(120)
    for place, row in enumerate(reference.rows):
        net = run.multipliers[0, place] - run.multipliers[1, place]
        tilted += 120 * net * sum(coefficient * mask / mask.sum() for coefficient, mask in row.terms)
    assert (certificate.bound is not None) == bool((tilted >= 0.0).all())


@pytest.mark.parametrize("constraint", [None, EqualOpportunity(0.05)])
def test_tol_is_the_distance_from_the_optimum(constraint: Any) -> None:
    """Columns that go together and are dealt to all parties; the first version stopped at 13 and 16 times tol here."""
    plain = small(5, rows=500, columns=60)
    problem = Problem(plain.matrix @ np.tril(np.ones((60, 60))) / 6.0, plain.labels, plain.sensitive)
    _, best = optimum(problem, constraint, 2.0 / 500)
    for tol in (1e-3, 1e-4):
        run = subspace(problem, constraint, [list(range(first, 60, 3)) for first in range(3)], tol=tol)
        assert run.certificate.converged
        assert run.certificate.objective - best <= tol * best
        assert run.certificate.estimate <= tol


@pytest.mark.parametrize("constraint", [(), (EqualOpportunity(0.05),)])
def test_the_estimate_is_seldom_below_the_distance_and_nearer_than_the_bound(constraint: Any) -> None:
    """Random walks over columns, so that neighbours go together; parties hold any of them."""
    distances, estimates, bounds = [], [], []
    for seed in range(12):
        plain = small(100 + seed, rows=300, columns=30)
        matrix = plain.matrix @ np.tril(np.ones((30, 30))) / 4.0
        order = np.random.default_rng(seed).permutation(30)
        problem = Problem(matrix, plain.labels, plain.sensitive)
        blocks = [list(part) for part in np.array_split(order, 2 + seed % 3)]
        best, told = (
            subspace(problem, *constraint or (None,), blocks, tol=tol, protection="none").certificate
            for tol in (1e-9, 1e-3)
        )
        assert told.converged
        assert told.estimate is not None
        assert told.estimate <= 1e-3
        distances.append((told.objective - best.objective) / best.objective)
        estimates.append(told.estimate)
        bounds.append(np.inf if told.bound is None else told.bound)
    far = np.array(distances) > 1e-6
    assert max(distances) <= 1e-3
    assert np.mean(np.array(estimates)[far] >= np.array(distances)[far]) >= 0.9
    assert np.median((np.array(estimates) / distances)[far]) <= 3.0
    assert (np.array(estimates) <= bounds).all()


@pytest.mark.parametrize("solver", ["fairvfl", "vfb2-svrg", "subspace"])
def test_no_bound_is_stated_while_the_intercept_is_far_from_its_best(solver: str) -> None:
    """The intercept is not regularised: with rare positives FairVFL's bound was a fiftieth of the distance."""
    random = np.random.default_rng(1)
    matrix = random.normal(size=(1000, 4))
    labels = np.where(matrix[:, 0] + random.logistic(size=1000) > 4.0, 1.0, -1.0)
    problem = Problem(matrix, labels, pd.DataFrame({"group": ["a", "b"] * 500}))
    for alpha in (1.0, 10.0):
        _, best = optimum(problem, None, alpha)
        for rounds in (1, 3, 20):
            told = train(problem, None, BLOCKS, solver=solver, alpha=alpha, max_rounds=rounds, tol=1e-9).certificate
            distance = (told.objective - best) / told.objective
            assert told.bound is None or distance <= told.bound + 1e-8
            if told.bound is None:
                assert distance <= 3.0 * told.estimate


def test_a_round_of_small_gains_is_not_the_end() -> None:
    """Sums of directions stall for a few rounds and then find more; promises and last gains alone stop at 4 tol."""
    given = generate(53)

    def objective(tol: float) -> float:
        job = Job(solver="subspace", constraints=(LossParity(0.02),), tol=tol, max_rounds=60, protection="masked")
        certificate = train_vertical(job, given.parties, given.labels, given.sensitive).certificate
        assert certificate.converged
        return certificate.objective

    best = objective(1e-6)
    assert objective(1e-3) - best <= 1e-3 * best


def test_groups_that_nothing_compares_change_no_bit() -> None:
    """Curvature comes from a sample of every stratum, and only compared groups make strata."""
    given = generate(3, least=20000, most=25000)
    job = Job(solver="subspace", tol=1e-3, protection="none")
    runs = [train_vertical(job, given.parties, given.labels, groups) for groups in (None, given.sensitive)]
    for name, model in runs[0].models.items():
        assert_array_equal(model.weights, runs[1].models[name].weights)


def test_rates_and_negative_weights_have_an_estimate_and_no_regulariser_nothing() -> None:
    problem = small(2, rows=400)
    rates = subspace(problem, DemographicParity(0.02), tol=1e-3).certificate
    assert rates.bound is None
    assert rates.estimate is not None
    # A slice is made worse on purpose: its people weigh less than nothing.
    tight = subspace(small(4, rows=120), EqualOpportunity(0.02), tol=1e-3)
    assert tight.certificate.converged
    assert (tight.certificate.bound, tight.certificate.estimate is None) == (None, False)
    free = subspace(problem, EqualOpportunity(0.05), alpha=0.0, tol=1e-4)
    assert free.certificate.converged
    assert (free.certificate.bound, free.certificate.estimate) == (None, None)
    assert not {"bound", "estimate"} & set(free.history)


def test_the_tolerance_that_nobody_gives_is_the_solver_s() -> None:
    assert resolve(Job(), None).tol == 1e-3
    assert resolve(Job(model="mlp"), None).tol == 1e-4
    assert resolve(Job(solver="vfb2-svrg"), None).tol == 1e-4
    assert resolve(Job(), 1e-6).tol == 1e-6


def test_a_search_that_leaves_the_bounds_starts_again_with_dearer_ones() -> None:
    """Forty positives in two groups: at the first penalty every round ended outside, and the run at 1.31 times F*."""
    given = generate(50024, least=2000, most=7000)
    groups = given.sensitive.replace({"0": "a", "1": "b"})
    whole = Problem(np.hstack([one.matrix for one in given.parties]), given.labels, groups)
    _, best = optimum(whole, EqualizedOdds(0.01), 2.0 / len(given.labels))
    job = Job(solver="subspace", constraints=(EqualizedOdds(0.01),), max_rounds=60, tol=1e-3, protection="none")
    certificate = train_vertical(job, given.parties, given.labels, given.sensitive).certificate
    assert certificate.converged
    assert certificate.violation <= 1e-6
    assert certificate.objective - best <= 1e-3 * best


@pytest.mark.parametrize(("constraint", "told"), [(None, "of itself above the least one"), (LossParity(0.02), "")])
def test_a_run_cut_off_says_what_it_lacks(constraint: Any, told: str) -> None:
    cut = subspace(small(5, rows=300, columns=20), constraint, [[*range(10)], [*range(10, 20)]], max_rounds=1, tol=1e-6)
    assert not cut.certificate.converged
    assert cut.certificate.unmet
    assert told in cut.certificate.unmet
    whole = subspace(small(5, rows=300, columns=20), constraint, [[*range(10)], [*range(10, 20)]], tol=1e-6)
    assert whole.certificate.converged
    assert whole.certificate.unmet is None
