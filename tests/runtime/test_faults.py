"""Any schedule of faults leaves a lock-step run's result as it was, bit for bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults import Faults, FaultyInProcess

from evenhand.constraints import EqualOpportunity
from evenhand.errors import InputError
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings

NAMES = ("server", "party0", "party1", "party2")


def roles(pace: str = "exact", rounds: int = 6):
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(60, 6))
    groups = pd.DataFrame({"sex": rng.choice(["f", "m"], 60)})
    labels = np.where(columns @ rng.normal(size=6) + rng.logistic(size=60) > 0, 1.0, -1.0)
    parties = [PartyColumns(f"party{k}", columns[:, 2 * k : 2 * k + 2], k == 0) for k in range(3)]
    options = {"step": 0.5, "local_steps": 3, "pace": pace}
    job = Job("fairvfl", (EqualOpportunity(0.01),), max_rounds=rounds, tol=0.0, options=options)
    return Holdings.of(job, parties, labels, groups).roles()


def finish(runtime_of) -> tuple[list[np.ndarray], object, list[dict]]:
    server, parties = roles()
    reports: list[dict] = []
    runtime_of([server, *parties], reports.append).run()
    plain = [{name: value for name, value in row.items() if name != "time"} for row in reports]
    return [party.model.weights for party in parties], server.certificate, plain


CLEAN = finish(lambda all_roles, report: InProcess(all_roles, on_report=report))

schedules = st.builds(
    Faults,
    drop=st.floats(0, 0.7),
    duplicate=st.floats(0, 0.9),
    delay=st.floats(0, 1.0),
    crashes=st.dictionaries(st.sampled_from(NAMES), st.lists(st.integers(0, 20), max_size=4)),
    save_every=st.integers(1, 5),
    seed=st.integers(0, 1000),
)


@pytest.mark.portable
@settings(max_examples=40, deadline=None, derandomize=True)
@given(faults=schedules)
def test_any_fault_schedule_gives_the_same_model_certificate_and_history(faults):
    weights, certificate, reports = finish(
        lambda all_roles, report: FaultyInProcess(all_roles, faults, on_report=report)
    )
    assert all(np.array_equal(a, b) for a, b in zip(weights, CLEAN[0], strict=True))
    assert certificate == CLEAN[1]
    pd.testing.assert_frame_equal(pd.DataFrame(reports), pd.DataFrame(CLEAN[2]), check_exact=True)


def test_faults_cost_virtual_time():
    server, parties = roles()
    clean = InProcess([server, *parties])
    clean.run()
    server, parties = roles()
    faulty = FaultyInProcess([server, *parties], Faults(drop=0.5, seed=1))
    faulty.run()
    assert faulty.time > clean.time + Faults().timeout


@settings(max_examples=10, deadline=None, derandomize=True)
@given(faults=schedules)
def test_an_asynchronous_run_ends_with_a_true_certificate_under_faults(faults):
    server, parties = roles(pace="until-server-speaks", rounds=40)
    FaultyInProcess([server, *parties], faults).run()
    combined = sum(party.model.scores() for party in parties)
    np.testing.assert_allclose(server.present().scores, combined, rtol=0, atol=1e-12)
    point = server.lagrangian.at(combined)
    assert server.certificate.violation == pytest.approx(point.violation, abs=1e-12)
    gradients = [party.model.gradient(point.derivative(server.multipliers)) for party in parties]
    stationarity = np.sqrt(sum(gradient @ gradient for gradient in gradients))
    assert server.certificate.stationarity == pytest.approx(stationarity, rel=1e-9)


def test_a_probability_of_one_is_refused():
    with pytest.raises(InputError, match="drop is 1"):
        Faults(drop=1)
