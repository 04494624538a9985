"""Masked sums across clients: equal to the same sums without masks, whoever goes away, and nothing but sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from horizontal_contract import CLOCK, Case
from scipy.stats import chisquare

pytest.importorskip("nacl")
from support.faults import Faults, FaultyInProcess

from evenhand.constraints.scope import ConstraintScope
from evenhand.errors import InputError, RunError
from evenhand.horizontal.masked.messages import MASKED
from evenhand.solvers.registry import HORIZONTAL

SUMMING = list(HORIZONTAL)


def no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same fixed point, the same messages, with masks of zeros."""
    zeros = lambda secret, label, size: np.zeros(size, dtype=np.uint64)  # noqa: E731
    monkeypatch.setattr("evenhand.privacy.secret_sums.stream", zeros)


@pytest.mark.parametrize("solver", SUMMING)
def test_a_masked_run_is_the_unmasked_run_in_fixed_point(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(solver, protection="masked")
    job = case.job(max_rounds=3 if case.declared.fixed_rounds else 12)
    masked = case.train(job)
    no_masks(monkeypatch)
    bare = case.train(job)
    assert masked.weights.tobytes() == bare.weights.tobytes()
    assert masked.multipliers.tobytes() == bare.multipliers.tobytes()
    assert masked.certificate == bare.certificate


@pytest.mark.parametrize("solver", [name for name in SUMMING if name != "prox-al"])
def test_and_the_plain_run_but_for_rounding(solver: str) -> None:
    plain, masked = Case(solver), Case(solver, protection="masked")
    one, other = plain.train(plain.job()), masked.train(masked.job())
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    assert one.certificate.rounds == other.certificate.rounds


def test_prox_al_ends_at_the_same_optimum() -> None:
    """Its z begin elsewhere, so it comes by another way."""
    settings: dict[str, Any] = {"max_rounds": 3000, "alpha": 0.03, "tol": 1e-4}
    plain, masked = Case("prox-al"), Case("prox-al", protection="masked")
    one, other = plain.train(plain.job(**settings)), masked.train(masked.job(**settings))
    assert one.certificate.converged
    assert other.certificate.converged
    assert other.certificate.objective == pytest.approx(one.certificate.objective, rel=1e-3)


@pytest.mark.parametrize("solver", SUMMING)
def test_answers_leave_clients_under_masks_only(solver: str) -> None:
    case = Case(solver, protection="masked")
    told = case.train(case.job(), keep_messages=True).transcript
    assert {entry.kind for entry in told if entry.receiver == "server"} == {
        "public-key",
        "masked-answer",
        "vouched",
        "opened-shares",
    }
    words = np.concatenate([one["words"] for one in told.messages or () if one.kind == MASKED.kind])
    # Keys are fresh each time: a false alarm once in a million runs.
    assert chisquare(np.bincount(words.view(np.uint8) >> 4, minlength=16)).pvalue > 1e-6


@pytest.mark.parametrize("turn", [1, 4, 5, 7])
@pytest.mark.parametrize("solver", ["fairfedavgalm", "sqp"])
def test_a_client_that_goes_away_loses_nothing_but_itself(solver: str, turn: int) -> None:
    case = Case(solver, protection="masked")
    runtime = FaultyInProcess(
        list(case.maker(case.job(least_summed=1))().values()),
        Faults(timeout=1e-5, drop=0.1, gone={"c1": turn}, seed=1),
        CLOCK,
    )
    runtime.run()
    server: Any = runtime.mailboxes["server"].role
    assert server.gone.tolist() == [1]
    assert server.certificate.rounds >= 3


def test_when_too_many_go_the_run_stops_and_says_so() -> None:
    case = Case("sqp", protection="masked")
    faults = Faults(timeout=1e-5, gone={"c0": 4, "c1": 4})
    runtime = FaultyInProcess(list(case.maker(case.job())().values()), faults, CLOCK)
    with pytest.raises(RunError, match="are left"):
        runtime.run()


def test_by_default_a_client_that_goes_away_ends_the_run() -> None:
    """Two sums that differ by one client would show its answer to a server that repeats a question."""
    case = Case("sqp", protection="masked")
    faults = Faults(timeout=1e-5, gone={"c1": 9})
    runtime = FaultyInProcess(list(case.maker(case.job())().values()), faults, CLOCK)
    with pytest.raises(RunError, match="with earlier sums it would show a sum over 1 of them"):
        runtime.run()


def test_without_masks_nobody_may_go() -> None:
    case = Case("sqp")
    runtime = FaultyInProcess(list(case.maker(case.job())().values()), Faults(timeout=1e-5, gone={"c1": 2}), CLOCK)
    with pytest.raises(RunError, match="c1 is gone"):
        runtime.run()


@pytest.mark.parametrize(
    ("solver", "changes", "settings", "words"),
    [
        ("sqp", {}, {"scope": ConstraintScope("local")}, "choose scope 'global'"),
        ("prox-al", {"options": {"participation": 0.7}}, {}, "needs all clients in every round"),
        ("fedavg", {"options": {"participation": 0.4}}, {}, "its sum is not hidden"),
    ],
)
def test_where_sums_are_not_enough_masks_are_refused(
    solver: str, changes: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    case = Case(solver, protection="masked")
    with pytest.raises(InputError, match=words):
        case.train(case.job(**changes), **settings)


@pytest.mark.parametrize("protection", ["dealer", "encrypted"])
def test_what_hides_labels_from_parties_is_not_for_clients(protection: Any) -> None:
    case = Case("sqp")
    with pytest.raises(InputError, match="horizontal jobs support 'masked' and 'none'"):
        case.train(replace(case.job(), protection=protection, allow_experimental=True))
