"""Noise at every step of local training: the step itself, what one record can change, and the ε that is stated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.clients import deal_rows
from support.problems import small

from evenhand.constraints.kinds import EqualizedOdds, LossParity
from evenhand.errors import InputError
from evenhand.horizontal.averaging.record_level import RecordLearner, most_parts
from evenhand.horizontal.averaging.rounds import TrainRequest
from evenhand.horizontal.problem import ClientRows
from evenhand.privacy.accounting import privacy_statement
from evenhand.privacy.record_level import RecordGaussian, record_noise_for
from evenhand.protocol.job import Job
from evenhand.training.protection import client_privacy
from evenhand_reproductions.in_memory import train_clients

PROBLEM = small(seed=2, rows=90, columns=4)
# Everybody in every step, hardly shortened and with hardly any noise: plain gradient descent.
PLAIN = RecordGaussian(1e6, 1e-12, 1.0, 1, 1e6, 1e-12)
NOISY = RecordGaussian(1.0, 1.2, 0.2, 6, 3.0, 30.0)
FAIR = {"step": 0.3, "penalty": 1.5, "dual_step": 0.4, "growth": 1.0, "batch_size": None, "clip": None}


def rows_of() -> list[ClientRows]:
    return deal_rows(PROBLEM, [np.arange(90)])


def run(update_noise: Any, constraint: Any = None, rounds: int = 3, **options: Any) -> Any:
    constraints = () if constraint is None else (constraint,)
    solver = "fairfedavgalm" if constraints else "fedavg"
    given = {"step": 0.3, "batch_size": None, "clip": None, "local_epochs": 1} if not constraints else FAIR
    job = Job(solver, constraints, max_rounds=rounds, options={"local_epochs": 1, **given, **options})
    return train_clients(job, rows_of(), update_noise=update_noise, groups={"group": ("a", "b")})


def learner(mechanism: RecordGaussian, constraint: Any = None) -> RecordLearner:
    """What a run trains its client with."""
    made: list[RecordLearner] = []
    with pytest.MonkeyPatch.context() as patch:
        inner = RecordLearner.train

        def train(self: RecordLearner) -> Any:
            made.append(self)
            return inner(self)

        patch.setattr(RecordLearner, "train", train)
        run(mechanism, constraint or LossParity(0.0), rounds=1)
    return made[0]


@pytest.mark.parametrize("constraint", [None, LossParity(0.0), EqualizedOdds(0.0, "error")])
def test_without_noise_and_clipping_it_is_the_method_itself(constraint: Any) -> None:
    mechanism = PLAIN if constraint is not None else replace(PLAIN, measure_clip=None, dual_noise_multiplier=None)
    private, plain = run(mechanism, constraint), run(None, constraint)
    np.testing.assert_allclose(private.weights, plain.weights, atol=2e-5)
    np.testing.assert_allclose(private.raw_multipliers, plain.raw_multipliers, atol=2e-5)
    assert np.abs(plain.weights).max() > 0.05


def test_one_record_changes_a_step_by_no_more_than_the_bound() -> None:
    one = learner(replace(NOISY, clip=0.05))
    request = TrainRequest(one.name, 1, np.zeros(5, dtype=np.float32), np.zeros(0, dtype=np.float32), np.array([3.0]))
    one.clients.network.load(request.weights, request.statistics)
    tilt = torch.tensor([2.0, -7.0])
    everybody = np.arange(90)
    whole = one._shortened_sum(everybody, tilt)
    changes = [
        float(torch.linalg.vector_norm(whole - one._shortened_sum(np.delete(everybody, row), tilt)))
        for row in range(0, 90, 9)
    ]
    assert max(changes) <= 0.05
    assert max(changes) > 0.049, "some rows are shortened"


def test_what_is_said_of_slices_changes_by_no_more_than_the_noise_is_for() -> None:
    """A row is in one of two groups, or in one of four cells: one part, or more where slices overlap."""
    for constraint, parts in ((LossParity(0.0), 1), (EqualizedOdds(0.0, "error"), 1)):
        assert most_parts(learner(NOISY, constraint)._rows) == parts


# -- what dp-accounting is told of the noise is what is drawn; standard deviations of 4,000 numbers are good to 1.1 %

LOUD = replace(NOISY, dual_noise_multiplier=1.0)
DRAWS = 2000


def at_zero(one: RecordLearner) -> tuple[Any, Any]:
    zero = np.zeros(5, dtype=np.float32), np.zeros(0, dtype=np.float32)
    one.clients.network.load(*zero)
    return zero


def test_a_step_has_the_noise_that_is_accounted_for() -> None:
    one, moved = learner(LOUD), []
    for draw in range(DRAWS):
        at_zero(one)
        one._step(np.zeros(0, dtype=np.int64), torch.zeros(2), 1.0, np.random.default_rng(draw))
        moved.append(one.clients.network.weights.copy())
    expected = LOUD.clip * LOUD.noise_multiplier / (LOUD.rate * 90)
    np.testing.assert_allclose(np.std(moved, axis=0), expected, rtol=0.08)
    assert np.std(moved) == pytest.approx(expected, rel=0.03)


def test_every_row_is_in_every_step_with_the_same_chance_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    one, taken = learner(replace(LOUD, steps=DRAWS)), []
    monkeypatch.setattr(one, "_step", lambda rows, *_: taken.append(np.isin(np.arange(90), rows)))
    one.note(TrainRequest(one.name, 1, *at_zero(one), np.array([0.0])))
    one.train()
    chosen = np.array(taken)
    assert chosen.shape == (DRAWS, 90)
    # Four standard errors of a share and more; how many are in a step varies as independent draws do.
    np.testing.assert_allclose(chosen.mean(axis=0), LOUD.rate, atol=0.045)
    assert chosen.mean() == pytest.approx(LOUD.rate, abs=0.005)
    assert chosen.sum(axis=1).var() == pytest.approx(90 * LOUD.rate * (1 - LOUD.rate), rel=0.15)


def test_slices_sums_have_the_noise_that_is_accounted_for() -> None:
    one = learner(LOUD)
    zero, counts = at_zero(one), one.clients.data.counts[one.name].astype(np.float64)
    values = np.array([one._values(*zero, counts, np.random.default_rng(draw)) for draw in range(2 * DRAWS)])
    assert LOUD.measure_clip is not None
    expected = LOUD.measure_clip * 1.0 * np.sqrt((counts**-2).sum())
    assert values.std() == pytest.approx(expected, rel=0.05)


def test_slices_counts_have_the_noise_that_is_accounted_for_and_are_released_once() -> None:
    one = learner(LOUD)
    exact, found = one.clients.data.counts[one.name], []
    for draw in range(DRAWS):
        one._secret = draw.to_bytes(32, "little")
        found.append(one._counts() - exact)
        np.testing.assert_array_equal(one._counts() - exact, found[-1])
    assert np.std(found) == pytest.approx(1.0, rel=0.05)


def test_no_row_counts_for_more_in_a_slices_sum_than_the_bound() -> None:
    one = learner(replace(LOUD, measure_clip=0.5, dual_noise_multiplier=1e-12))
    weights, nothing = np.array([3.0, 0.0, 0.0, 0.0, 0.0], dtype=np.float32), np.zeros(0, dtype=np.float32)
    (rows,) = rows_of()
    losses = np.logaddexp(0.0, -rows.labels * (np.asarray(rows.features)[:, 0] * 3.0))
    assert (losses > 0.5).any()
    inside = np.asarray(rows.groups["group"]) == "a"
    counts = one.clients.data.counts[one.name].astype(np.float64)
    (value,) = one._values(weights, nothing, counts, np.random.default_rng(0))
    cut = np.minimum(losses, 0.5)
    assert abs(value) == pytest.approx(abs(cut[inside].mean() - cut[~inside].mean()), abs=1e-6)


def test_with_a_secret_of_its_own_nothing_follows_from_the_jobs_seed() -> None:
    one = learner(LOUD)
    zero = at_zero(one)

    def trained(secret: bytes | None, multiplier: float = 0.0) -> Any:
        one._secret = secret
        one.note(TrainRequest(one.name, 1, *zero, np.array([multiplier])))
        return one.train().weights.copy()

    first = trained(b"a" * 32)
    # A round that is gone through again repeats what was sent.
    np.testing.assert_array_equal(trained(b"a" * 32), first)
    for other in (trained(None), trained(b"b" * 32)):
        assert np.abs(other - first).max() > 1e-3


def test_runs_repeat_and_rounds_have_noise_of_their_own() -> None:
    first, again = run(NOISY, LossParity(0.0)), run(NOISY, LossParity(0.0))
    np.testing.assert_array_equal(first.weights, again.weights)
    assert not np.allclose(first.weights, run(None, LossParity(0.0)).weights, atol=1e-3)


def test_a_statement_is_about_records_and_counts_every_release() -> None:
    pytest.importorskip("dp_accounting")
    made = run(NOISY, LossParity(0.0), rounds=4)
    (stated,) = client_privacy([rows_of()[0].name], NOISY, made.transcript, 1e-5).values()
    assert stated.epsilon is not None
    assert "one record of the client being blanked" in stated.words
    import dp_accounting as accounting

    steps = accounting.PoissonSampledDpEvent(0.2, accounting.GaussianDpEvent(1.2))
    spent = accounting.rdp.RdpAccountant()
    spent.compose(steps, 4 * 6).compose(accounting.GaussianDpEvent(30.0), 1 + 2 * 4)
    assert stated.by_accountant["RDP"] == pytest.approx(spent.get_epsilon(1e-5), rel=1e-9)
    without = replace(NOISY, measure_clip=None, dual_noise_multiplier=None)
    assert privacy_statement(without, 4, 1e-5).epsilon < stated.epsilon
    assert privacy_statement(NOISY, 0, 1e-5).epsilon == 0.0


def test_a_search_for_the_noise_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("dp_accounting")
    # With so little noise the accountant leaves orders out, and would say so for each.
    assert privacy_statement(RecordGaussian(1.0, 0.5, 0.05, 20), 20, 1e-5).epsilon > 8.0
    assert not caplog.records


def test_the_noise_for_an_epsilon_keeps_within_it() -> None:
    pytest.importorskip("dp_accounting")

    def spent(one: RecordGaussian) -> float:
        return privacy_statement(one, 10, 1e-5).epsilon

    found = record_noise_for(NOISY, 4.0, spent)
    assert 3.9 < spent(found) <= 4.0
    assert found.dual_noise_multiplier == pytest.approx(30.0 / 1.2 * found.noise_multiplier)
    with pytest.raises(InputError, match="epsilon is 0"):
        record_noise_for(NOISY, 0.0, spent)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clip": 0.0}, "clip is 0"),
        ({"rate": 1.5}, "rate is 1.5"),
        ({"steps": 0}, "steps is 0"),
        ({"measure_clip": None}, "give both"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(NOISY, **change)


def test_models_and_methods_that_it_does_not_cover_are_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    job = Job("fedavg", (), max_rounds=1)
    with pytest.raises(InputError, match="replace BatchNorm"):
        train_clients(job, rows_of(), model=module, update_noise=NOISY)
    with pytest.raises(InputError, match="does not support this solver"):
        train_clients(Job("fairalm", (LossParity(0.0),), max_rounds=1), rows_of(), update_noise=NOISY)
    bare = replace(NOISY, measure_clip=None, dual_noise_multiplier=None)
    with pytest.raises(InputError, match="needs measure_clip"):
        run(bare, LossParity(0.0))
