"""FairFedAvgALM and the other multiplier methods: fixed points, multipliers, missing groups, cost in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.clients import as_reference, deal_rows, pooled, train_rows, unequal
from support.problems import Problem, ReferenceRow, parity_rows, small, two_attributes

from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.errors import ConstraintError, InputError
from evenhand.horizontal.averaging.fairalm import FairALM
from evenhand.horizontal.averaging.fairfedavgalm import FairFedAvgALM
from evenhand.horizontal.averaging.fpfl import FPFL
from evenhand.horizontal.problem import ClientRows, ModelStart
from evenhand.protocol.job import Job
from evenhand.training.horizontal import HorizontalRun
from evenhand_reproductions.in_memory import train_clients
from evenhand_reproductions.presets import preset_options

PROBLEM = small(seed=1, rows=80)
STEADY: dict[str, Any] = {"step": 0.5, "penalty": 1.0, "dual_step": 0.5, "growth": 1.0}


def fair(
    constraint: Constraint | None, parts: Any = None, problem: Problem = PROBLEM, **settings: Any
) -> HorizontalRun:
    options = {**STEADY, **settings.pop("options", {})}
    defaults = {"solver": "fairfedavgalm", "max_rounds": 1500}
    return train_rows(problem, constraint, parts, options=options, **{**defaults, **settings})


# -- fixed points: full batches, one local step


def test_with_one_client_the_fixed_point_is_the_constrained_optimum() -> None:
    weights, multipliers = pooled(PROBLEM, parity_rows(PROBLEM, [None], 0.0)).optimum()
    assert np.abs(multipliers).max() > 0.05
    run = fair(LossParity(0.0), max_rounds=800, options={"report_every": 800})
    np.testing.assert_allclose(as_reference(run), weights, atol=2e-3)
    # Of an equality scipy tells the two sides apart in its own way; their difference is the multiplier.
    np.testing.assert_allclose(run.raw_multipliers, multipliers[0] - multipliers[1], atol=2e-3)
    assert run.certificate.violation < 1e-5
    assert run.certificate.stationarity < 1e-4


@pytest.mark.parametrize(
    ("constraint", "rows"),
    [
        (EqualOpportunity(0.02), parity_rows(PROBLEM, [1], 0.02)),
        (EqualizedOdds(0.03), parity_rows(PROBLEM, [1, -1], 0.03)),
        (EqualOpportunity(5.0), parity_rows(PROBLEM, [1], 5.0)),
        (NeymanPearson(0.3), [ReferenceRow([(1.0, PROBLEM.slice(1))], -np.inf, 0.3)]),
    ],
)
def test_rows_with_room_end_at_their_constrained_optimum(constraint: Constraint, rows: list[ReferenceRow]) -> None:
    weights, multipliers = pooled(PROBLEM, rows).optimum()
    run = fair(constraint, max_rounds=800, options={"report_every": 800})
    np.testing.assert_allclose(as_reference(run), weights, atol=3e-3)
    np.testing.assert_allclose(run.multipliers, multipliers, atol=3e-3)
    assert run.certificate.violation < 1e-4
    assert run.certificate.complementarity < 1e-4
    assert run.certificate.stationarity < 1e-3


def test_clients_that_differ_stay_near_the_pooled_optimum_the_nearer_the_shorter_the_steps() -> None:
    """With equal shares of groups the average of own gaps is the pooled gap, but each is at the client's own model."""
    a, b = (np.flatnonzero(PROBLEM.groups == group) for group in "ab")
    parts = [[*a[:10], *b[:10]], [*a[10:], *b[10:]]]
    weights, multipliers = pooled(PROBLEM, parity_rows(PROBLEM, [None], 0.0)).optimum()
    begin = ModelStart(weights.astype(np.float32), np.zeros(0, dtype=np.float32), multipliers[0] - multipliers[1])
    far, near = (
        np.linalg.norm(fair(LossParity(0.0), parts, options=options, max_rounds=rounds, **begun).weights - weights)
        for options, rounds, begun in (
            ({"penalty": 0.0, "dual_step": 0.2, "step": 0.8, "report_every": 300}, 300, {"runtime": {"start": begin}}),
            (
                {"penalty": 0.0, "dual_step": 0.02, "step": 0.08, "report_every": 1500},
                1500,
                {"runtime": {"start": begin}},
            ),
        )
    )
    assert far > 0.02
    assert near < 0.2 * far


def test_copies_of_one_client_are_that_client() -> None:
    one = fair(LossParity(0.0), max_rounds=50)
    (client,) = deal_rows(PROBLEM)
    copies = [ClientRows(name, client.features, client.labels, client.groups) for name in ("x", "y", "z")]
    options = {"batch_size": None, "clip": None, "local_epochs": 1, **STEADY}
    many = train_clients(Job(solver="fairfedavgalm", max_rounds=50, options=options), copies)
    np.testing.assert_allclose(many.weights, one.weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(many.multipliers, one.multipliers, rtol=1e-4, atol=1e-6)


def test_it_converges_says_so_and_only_then() -> None:
    assert fair(LossParity(0.0), tol=1e-3).certificate.converged
    assert not fair(LossParity(0.0), tol=1e-3, max_rounds=5).certificate.converged


# -- multipliers


def test_a_multiplier_moves_by_the_average_of_the_clients_own_gaps() -> None:
    """One round by hand: each client's step, then its gap on all its rows, weighted by n_i."""
    parts = unequal(PROBLEM, 3)
    run = fair(LossParity(0.0), parts, max_rounds=1, options={"dual_step": 0.7, "penalty": 2.0, "step": 0.3})
    expected = 0.0
    for part in parts:
        own = Problem(PROBLEM.matrix[part], PROBLEM.labels[part], PROBLEM.sensitive.iloc[part])
        reference = pooled(own, parity_rows(own, [None], 0.0))
        start = np.zeros(5)
        # λ = 0 and β = 2: the penalty's gradient is β · gap · ∇gap, and the gap is zero at w = 0.
        moved = start - 0.3 * reference.gradient(start, reference.no_multipliers())
        expected += len(part) / 80 * 0.7 * reference.values(moved)[0]
    assert run.raw_multipliers == pytest.approx([expected], rel=1e-4)


def only(group: str) -> list[int]:
    return list(np.flatnonzero(PROBLEM.groups == group))


def test_multipliers_are_left_alone_when_every_client_lacks_a_group() -> None:
    """Each has one group only: nobody can see a gap, so what is trained is FedAvg, and λ stays where it was."""
    parts = [only("a"), only("b")]
    begin = fair(LossParity(0.0), max_rounds=3).as_start()
    assert begin.multipliers[0] != 0
    run = fair(LossParity(0.0), parts, max_rounds=5, runtime={"start": begin})
    np.testing.assert_array_equal(run.raw_multipliers, begin.multipliers)
    plain = fair(LossParity(0.0), parts, max_rounds=5)
    fedavg = train_rows(PROBLEM, None, parts, options={"step": 0.5}, max_rounds=5)
    np.testing.assert_allclose(plain.weights, fedavg.weights, rtol=1e-6)


def test_a_client_that_lacks_a_group_counts_zero_and_the_others_count_by_their_rows() -> None:
    whole, lacking = list(range(40)), [row for row in range(40, 80) if PROBLEM.groups[row] == "a"]
    run = fair(LossParity(0.0), [whole, lacking], max_rounds=1, runtime={"keep_messages": True})
    updates = {m.sender: m for m in run.transcript.messages or [] if m.kind == "update"}
    assert updates["c1"]["multipliers"] == 0.0
    assert updates["c0"]["multipliers"] != 0.0
    share = len(whole) / (len(whole) + len(lacking))
    assert run.raw_multipliers == pytest.approx(share * updates["c0"]["multipliers"])


def test_batches_that_lack_a_group_train_all_the_same() -> None:
    run = fair(
        LossParity(0.0), unequal(PROBLEM, 3), max_rounds=20, options={"batch_size": 2, "step": 0.05, "clip": 1.0}
    )
    assert run.history["objective"].iloc[-1] < run.history["objective"].iloc[0]


def test_multipliers_of_rows_with_room_are_never_negative_and_of_equalities_may_be() -> None:
    inequality = fair(EqualizedOdds(0.05), unequal(PROBLEM, 2), max_rounds=60)
    multipliers = inequality.history.filter(regex="multiplier").to_numpy()
    assert multipliers.min() == 0.0
    assert multipliers.max() > 0.0
    assert inequality.raw_multipliers.shape == (4,)
    swapped = Problem(PROBLEM.matrix, PROBLEM.labels, PROBLEM.sensitive.replace({"group": {"a": "b", "b": "a"}}))
    signs = [
        np.sign(fair(LossParity(0.0), problem=problem, max_rounds=30).raw_multipliers[0])
        for problem in (PROBLEM, swapped)
    ]
    assert sorted(signs) == [-1.0, 1.0]


def test_it_costs_one_number_more_each_way_than_fedavg() -> None:
    parts = unequal(PROBLEM, 3)
    fedavg, alm = (
        train_rows(PROBLEM, None, parts, solver=solver, model="mlp", max_rounds=2, options={"report_every": 0})
        for solver in ("fedavg", "fairfedavgalm")
    )
    for kind in ("model", "update"):
        (cheap,) = {entry.nbytes for entry in fedavg.transcript if entry.kind == kind}
        (dear,) = {entry.nbytes for entry in alm.transcript if entry.kind == kind}
        assert dear == cheap + 8
    assert len(fedavg.transcript) == len(alm.transcript)


def test_the_batches_trained_on_can_serve_the_dual_step() -> None:
    """With one full batch a round, they are all rows at the model that was received: the step lags by a round."""
    settings: dict[str, Any] = {"max_rounds": 2, "runtime": {"keep_messages": True}}
    late = fair(LossParity(0.0), **settings, options={"dual_rows": "batches"})
    received = [message for message in late.transcript.messages or [] if message.kind == "model"]
    reference = pooled(PROBLEM, parity_rows(PROBLEM, [None], 0.0))
    gaps = [reference.values(message["weights"].astype(float))[0] for message in received]
    assert late.raw_multipliers == pytest.approx([0.5 * sum(gaps)], rel=1e-5)


@pytest.mark.parametrize("solver", ["fairfedavgalm", "fairalm", "fpfl"])
def test_small_batches_see_about_the_same_gap_as_all_rows(solver: str) -> None:
    whole, batches = (
        train_rows(
            PROBLEM,
            None,
            [[*range(40)], [*range(40, 80)]],
            solver=solver,
            options={
                **preset_options("fairfedavgalm-celeba", solver),
                **{"dual_rows": rows, "batch_size": 20, "step": 0.01, "local_epochs": 2},
            },
            max_rounds=10,
        )
        for rows in ("all", "batches")
    )
    assert batches.raw_multipliers == pytest.approx(whole.raw_multipliers, abs=0.5)
    assert (batches.raw_multipliers != whole.raw_multipliers).all()
    assert (np.abs(batches.raw_multipliers) > 0.01).all()


# -- more groups, attributes, measures and classes


@pytest.mark.parametrize("solver", ["fairfedavgalm", "fairalm", "fpfl"])
def test_three_groups_and_two_attributes(solver: str) -> None:
    problem = two_attributes(seed=4)
    parts = [list(range(0, 20)), list(range(20, 50)), list(range(50, 90))]
    run = train_rows(problem, None, parts, solver=solver, options={"step": 0.1, "clip": 1.0}, max_rounds=15)
    rows = 5 if solver == "fpfl" else 4
    assert len(run.row_names) == len(run.raw_multipliers) == rows
    assert np.isfinite(run.history.to_numpy()).all()
    assert np.count_nonzero(run.raw_multipliers) == rows


@pytest.mark.parametrize("solver", ["fairfedavgalm", "fpfl"])
@pytest.mark.parametrize(
    "constraint", [DemographicParity(0.0), EqualizedOdds(0.0, "error"), LossParity(0.0), GroupAgainstOverall(0.0)]
)
def test_every_constraint_narrows_its_own_gap(solver: str, constraint: Constraint) -> None:
    steady = {"growth": 1.0} if solver == "fairfedavgalm" else {}
    free, bound = (
        train_rows(
            PROBLEM,
            constraint,
            solver=solver,
            max_rounds=300,
            options={"step": 0.2, "penalty": penalty, "dual_step": dual_step, "report_every": 300, **steady},
        )
        for penalty, dual_step in ((0.0, 1e-12), (3.0, 0.05))
    )
    assert free.certificate.violation > 0.02
    assert bound.certificate.violation < 0.6 * free.certificate.violation


def test_more_than_two_classes_take_rows_of_losses_without_labels_only() -> None:
    rng = np.random.default_rng(0)
    clients = [
        ClientRows(name, rng.standard_normal((30, 3)), np.arange(30) % 3, np.array(list("ab"))[rng.integers(0, 2, 30)])
        for name in ("x", "y")
    ]
    job = {"solver": "fairfedavgalm", "max_rounds": 5}
    run = train_clients(Job(**job, constraints=(LossParity(0.01),)), clients)
    assert run.model.predict(clients[0].features).shape == (30, 3)
    with pytest.raises(ConstraintError, match="refers to labels"):
        train_clients(Job(**job, constraints=(EqualOpportunity(0.01),)), clients)
    with pytest.raises(ConstraintError, match="only measure='loss' is supported"):
        train_clients(Job(**job, constraints=(DemographicParity(0.01),)), clients)


# -- schedules and options


def test_settings_follow_the_supplement() -> None:
    alm = FairFedAvgALM(**preset_options("fairfedavgalm-celeba", "fairfedavgalm"))
    first, later = alm.settings(1), alm.settings(27)
    assert (first.step, first.penalty, first.dual_step, first.slice_weight) == (0.01, 5.0, 2.0, 0.0)
    assert later.step == pytest.approx(0.001)
    assert later.penalty == pytest.approx(5.0 * 1.05**26)
    assert later.dual_step == pytest.approx(2.0 / 1.05**26)
    assert (alm.batch_size, alm.clip, alm.local_epochs, alm.participation) == (128, 1.0, 1, 1.0)
    fairalm = FairALM(**preset_options("fairfedavgalm-celeba", "fairalm")).settings(3)
    assert fairalm.penalty == 0.0
    assert fairalm.dual_step == fairalm.slice_weight == pytest.approx(1.0 / 1.01**2)
    fpfl = FPFL(**preset_options("fairfedavgalm-celeba", "fpfl")).settings(60)
    assert (fpfl.penalty, fpfl.dual_step) == (5.0, 2.0)
    assert fpfl.step == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("options", "wrong", "message"),
    [
        (FairFedAvgALM, {"penalty": -1.0}, "penalty is -1.0"),
        (FairFedAvgALM, {"growth": 0.9}, "growth is 0.9"),
        (FairFedAvgALM, {"dual_step": 0}, "dual_step is 0"),
        (FairALM, {"growth": "x"}, "growth is 'x'"),
        (FPFL, {"penalty": float("inf")}, "penalty is inf"),
    ],
)
def test_options_of_multiplier_methods_check_themselves(options: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        options(**wrong)
