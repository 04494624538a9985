"""Shares of noise under masks: the sum has all of it, its ε is that of the whole noise, and fewer open nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from horizontal_contract import CLOCK, Case
from scipy.stats import kstest

pytest.importorskip("nacl")
pytest.importorskip("dp_accounting")
from horizontal_contract import PARTS, PROBLEM
from support.clients import deal_rows
from support.faults import Faults, FaultyInProcess

from evenhand.errors import InputError, RunError
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.privacy.accounting import privacy_statement
from evenhand.privacy.mechanism import ClippedGaussian, SharedGaussian, noise_terms
from evenhand.protocol.roles import Traffic
from evenhand.training.horizontal import build_roles
from evenhand.training.protection import client_privacy

SHARED = SharedGaussian(0.5, None, 2.0, shares=4)


def test_as_many_shares_are_the_whole_noise() -> None:
    rng = np.random.default_rng(0)
    drawn = [SHARED.protect(np.zeros(5000), np.zeros(0), rng)[0] for _ in range(SHARED.shares)]
    assert kstest(np.sum(drawn, axis=0) / (2.0 * 2 * 0.5), "norm").pvalue > 1e-3


def test_epsilon_is_that_of_the_whole_noise() -> None:
    whole = privacy_statement(ClippedGaussian(0.5, None, 2.0), 5, 1e-5)
    shared = privacy_statement(SHARED, 5, 1e-5)
    assert shared.epsilon == whole.epsilon
    assert "as long as 4 clients or more in every sum keep their noise" in shared.words
    assert "local" in whole.words


def test_a_share_is_never_sent_bare() -> None:
    with pytest.raises(InputError, match="would send only its share of the noise"):
        Case("fedavg").train(Case("fedavg").job(), update_noise=SharedGaussian(0.5, None, 1.0, shares=2))


@pytest.mark.parametrize("shares", [1, 0, 2.5])
def test_shares_are_of_two_or_more(shares: Any) -> None:
    with pytest.raises(InputError, match="shares is"):
        SharedGaussian(0.5, None, 1.0, shares=shares)


def test_a_run_is_stated_by_the_sums_that_were_opened() -> None:
    case, update_noise = Case("fedavg", protection="masked"), SharedGaussian(0.5, None, 1.0, shares=3)
    run = case.train(case.job(), update_noise=update_noise)
    stated = client_privacy(["c0", "c1", "c2"], update_noise, run.transcript, 1e-5)
    assert {one.epsilon for one in stated.values()} == {privacy_statement(update_noise, 4, 1e-5).epsilon}
    # Asked to measure models on their rows, clients say more than noise covers.
    told = case.train(case.job(options={"report_every": 1}), update_noise=update_noise)
    assert client_privacy(["c0"], update_noise, told.transcript, 1e-5)["c0"].epsilon is None


def test_a_kind_that_no_vocabulary_declares_counts_as_unprotected() -> None:
    case, update_noise = Case("fedavg", protection="masked"), SharedGaussian(0.5, None, 1.0, shares=3)
    transcript = case.train(case.job(), update_noise=update_noise).transcript.copy()
    transcript.count(0.0, Traffic("c0", "server", "a kind of its own", 1, 8))
    stated = client_privacy(["c0", "c1"], update_noise, transcript, 1e-5)
    assert stated["c0"].epsilon is None
    assert "messages of kind 'a kind of its own'" in stated["c0"].words
    assert stated["c1"].epsilon == privacy_statement(update_noise, 4, 1e-5).epsilon


def test_clients_open_no_sum_with_too_little_noise() -> None:
    case, update_noise = Case("fedavg", protection="masked"), SharedGaussian(0.5, None, 1.0, shares=3)
    clients = {one.name: ClientData(one, None, update_noise) for one in deal_rows(PROBLEM, PARTS)}
    server, others = build_roles(
        case.terms(case.job(), noise=noise_terms(update_noise)), HorizontalServerData(), clients
    )
    runtime = FaultyInProcess([server, *others], Faults(timeout=1e-5, gone={"c1": 3}), CLOCK)
    with pytest.raises(RunError, match="does not unmask a sum over 2 clients"):
        runtime.run()
