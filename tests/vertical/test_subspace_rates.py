"""Bounds on rates are met by the rates one counts, and not by much more than they ask; where none can, it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.contracts import Reborn, assert_goes_on_from_any_checkpoint
from support.problems import Problem, deal, small, train

from evenhand.constraints.binding import bind
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    NeymanPearson,
)
from evenhand.errors import ExactRatesWarning, InputError
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report
from evenhand.runtime.inprocess import VirtualClock
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.subspace.rate_search import LADDER, RateSchedule
from evenhand_reproductions.in_memory import Holdings

BLOCKS = [[0, 1], [2, 3, 4]]


def subspace(problem: Problem, constraint: Constraint | None, **job: Any) -> VerticalRun:
    return train(problem, constraint, BLOCKS, **{"solver": "subspace", "max_rounds": 60, **job})


def counted(problem: Problem, run: VerticalRun, constraint: Constraint) -> float:
    """The worst gap in rates, counted row by row from the parties' models."""
    scores = sum(
        model.predict(problem.matrix[:, block]) for model, block in zip(run.models.values(), BLOCKS, strict=True)
    )
    decided, rows = np.asarray(scores) > 0, []
    labels = {"equal-opportunity": [1], "equalized-odds": [1, -1], "demographic-parity": [None]}[constraint.kind]
    for label in labels:
        event = decided if label is None else decided != (problem.labels > 0)
        rates = [float(event[problem.slice(label, group)].mean()) for group in np.unique(problem.groups)]
        rows.append(max(rates) - min(rates))
    return max(rows)


CASES = [
    (small(3, 400, 5), EqualOpportunity(0.01, measure="error")),
    (small(0, 1000, 5), EqualizedOdds(0.01, measure="error")),
    (small(0, 1000, 5), DemographicParity(0.01)),
    # The exact rate answers the smooth one three times over: without more damping δ swings for ever.
    (small(2, 1000, 5), EqualizedOdds(0.01, measure="error")),
    (small(3, 2000, 5, "abcde"), DemographicParity(0.01)),
]


@pytest.mark.parametrize(("problem", "constraint"), CASES)
def test_the_rates_one_counts_meet_their_bounds_where_smooth_ones_alone_do(problem: Problem, constraint: Any) -> None:
    smooth = subspace(problem, constraint, options={"exact_rates": False})
    assert smooth.certificate.converged
    assert smooth.certificate.violation <= 1e-6
    assert counted(problem, smooth, constraint) > 1.5 * constraint.epsilon
    run = subspace(problem, constraint)
    assert run.certificate.converged
    assert run.certificate.violation <= 1e-12
    assert counted(problem, run, constraint) <= constraint.epsilon + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_used_and_not_overtightened(seed: int) -> None:
    """A row that holds the model back ends near its bound."""
    problem, constraint = small(seed, 4000, 5), EqualizedOdds(0.02, measure="error")
    run = subspace(problem, constraint, options={"leave_one_out": False})
    exact = run.history.filter(like="exact[").iloc[-1].abs().to_numpy()
    held = run.multipliers.sum(axis=0) > 1e-3
    assert run.certificate.converged
    assert held.any()
    # Two margins of one person of the smallest slice, or of a twentieth of the bound.
    sizes = [problem.slice(label, group).sum() for label in (1, -1) for group in "ab"]
    assert (exact[held] >= 0.02 - 2.0 * max(0.001, 1.0 / min(sizes)) - 1e-12).all()
    tight = subspace(problem, EqualizedOdds(0.01, measure="error"), options={"leave_one_out": False})
    assert run.certificate.objective < tight.certificate.objective


def test_rates_and_losses_can_be_bounded_at_once() -> None:
    problem = small(2, 1000, 5)
    both = (DemographicParity(0.02), EqualOpportunity(0.05), NeymanPearson(0.4, measure="error"))
    run = subspace(problem, None, constraints=both)
    assert run.certificate.converged
    last = run.history.iloc[-1]
    parity, opportunity, limit = run.row_names
    assert abs(last[f"exact[{parity}]"]) <= 0.02
    assert abs(last[f"value[{opportunity}]"]) <= 0.05 + 1e-6
    assert last[f"exact[{limit}]"] <= 0.4


def test_equalities_are_kept_by_smooth_rates() -> None:
    problem = small(0, 200, 5)
    run = subspace(problem, EqualizedOdds(0.0, measure="error"))
    assert run.history.filter(like="value[").iloc[-1].abs().max() <= 1e-6
    with pytest.raises(InputError, match="exact_rates needs an epsilon above zero"):
        subspace(problem, EqualizedOdds(0.0, measure="error"), options={"exact_rates": True})


def hopeless() -> Problem:
    """Three of five people in a slice of group b are of the other kind: no rate of theirs is within 0.01 of another."""
    problem = small(1, 240, 5)
    groups = np.where(np.arange(240) < 14, "b", "a")
    return Problem(problem.matrix, problem.labels, problem.sensitive.assign(group=groups))


def test_where_no_model_meets_the_bounds_the_nearest_one_is_returned_and_it_is_said() -> None:
    problem, constraint = hopeless(), GroupAgainstOverall(0.002, measure="error")
    with pytest.warns(ExactRatesWarning, match=r"no model was found .* exceeds its bound by 0\.\d+ at best") as told:
        run = subspace(problem, constraint)
    assert not run.certificate.converged
    assert run.certificate.unmet == str(told[0].message)
    assert run.certificate.violation > 0.0
    # Each of the rows of history that had the asked-for temperature misses at least as much.
    rounds = run.history.iloc[len(LADDER) + 1 :]
    worst = rounds.filter(like="exact[").abs().max(axis=1) - 0.002
    assert run.certificate.violation == pytest.approx(worst.min(), abs=1e-12)


# Slices of a dozen people, bounds of a fiftieth of one: no model meets them, and the last is not the nearest.
SWINGING, TIGHT, COLUMNS = small(2, 60, 3), EqualizedOdds(0.002, measure="error"), [[0, 1], [2]]


def swinging(rounds: int) -> dict[str, Any]:
    job = Job("subspace", (TIGHT,), max_rounds=rounds, tol=1e-5)
    server, parties = Holdings.of(job, deal(SWINGING, COLUMNS), SWINGING.labels, SWINGING.sensitive).roles()
    return {role.name: role for role in [server, *parties]}


def test_everybody_goes_back_to_the_nearest_model() -> None:
    """Where the cap on rounds is met, and where the run is given up."""
    for rounds in (6, 60):
        with pytest.warns(ExactRatesWarning):
            run = train(SWINGING, TIGHT, COLUMNS, solver="subspace", max_rounds=rounds, tol=1e-5)
        # Whether the last model is the nearest itself hangs on last digits, which are the libraries' own.
        told = [entry.receiver for entry in run.transcript.entries if entry.kind == "go-back"]
        assert told in ([], ["p0", "p1"])
        worst = run.history.filter(like="exact[").abs().max(axis=1)
        assert run.certificate.violation == pytest.approx(worst.iloc[len(LADDER) + 1 :].min() - 0.002, abs=1e-12)


@pytest.mark.parametrize("rounds", [2, 60])
def test_a_run_that_goes_back_can_be_gone_on_with_at_any_moment(rounds: int, tmp_path: Path) -> None:
    """The kept model comes back in every party and the certificate is of it."""
    clock, reports = VirtualClock(latency=3e-7, speeds={"p1": 3e7}), list[Report]()
    if rounds == 60:
        assert_goes_on_from_any_checkpoint(lambda: swinging(rounds), clock)
    reborn = Reborn(lambda: swinging(rounds), clock, tmp_path, reports.append, to_disk_every=5)
    reborn.run()
    roles = {name: mailbox.role for name, mailbox in reborn.mailboxes.items()}
    told, models = roles["server"].certificate, [roles[name].model for name in ("p0", "p1")]  # type: ignore[attr-defined]
    scores = np.asarray(sum(model.scores() for model in models))
    point = Lagrangian(SWINGING.labels, bind(TIGHT, SWINGING.labels, SWINGING.sensitive)).at(scores)
    assert told.violation == pytest.approx(np.abs(point.exact).max() - 0.002, abs=1e-12)
    norms = sum(model.squared_norm() for model in models)
    assert told.objective == pytest.approx(point.loss + 0.5 * 2.0 / 60 * norms, rel=1e-9)
    # Stationarity is that of the problem whose solution the model is; its rates may be sharper.
    solved = roles["server"].problem.at_round(0).at(scores)  # type: ignore[attr-defined]
    nu = solved.derivative(roles["server"].multipliers)  # type: ignore[attr-defined]
    gradient = np.concatenate([model.gradient(nu) for model in models])
    assert told.stationarity == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    assert [row["round"] for row in reports] == sorted({row["round"] for row in reports})


def test_temperatures_fall_and_bounds_follow_the_difference_both_ways() -> None:
    problem = small(rows=100)
    wanted = Lagrangian(problem.labels, bind(EqualizedOdds(0.05, measure="error"), problem.labels, problem.sensitive))
    working = RateSchedule(wanted)
    for number, factor in enumerate(LADDER, 1):
        assert next(iter(working.at_round(number).constraints.measures)).temperature == pytest.approx(0.5 * factor)
    first = len(LADDER) + 1
    assert next(iter(working.at_round(first).constraints.measures)).temperature == pytest.approx(0.5)
    # One person of the smallest slice is more than a twentieth of the bound; half the bound is the most.
    grains = [1.0 / min(problem.slice(label, group).sum() for group in "ab") for label in (1, -1)]
    margin = np.minimum(np.maximum(0.0025, grains), 0.025)
    working.shifted.shift = np.array([0.02, -0.03])
    bounds = working.at_round(first).constraints.bounds
    np.testing.assert_allclose(bounds.upper, 0.05 - margin - [0.02, -0.03])
    np.testing.assert_allclose(bounds.lower, -0.05 + margin - [0.02, -0.03])
    assert RateSchedule(wanted, exact_rates=False).at_round(first) is wanted
