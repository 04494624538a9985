"""FairFed's shares, computed again by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.clients import deal_rows, train_rows
from support.problems import Problem, small, two_attributes

from evenhand.errors import DataError, InputError
from evenhand.horizontal.averaging.fairfed import FairFed, FairFedServer, largest_gap
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import InProcess
from evenhand.training.horizontal import build_roles
from evenhand_reproductions.in_memory import horizontal_terms, train_clients

PROBLEM = small(seed=6, rows=60)
PARTS = [list(range(24)), list(range(24, 60)), [row for row in range(60) if row % 2 == 0][:9]]
OPTIONS = {"batch_size": None, "clip": None, "step": 0.8, "weight_step": 0.7, "local_epochs": 1}


def rate_gap(problem: Problem, rows: list[int], scores: np.ndarray, metric: str) -> float:
    """The two groups' difference of selection rates, or of true positive rates; NaN where a group is missing."""
    rates = []
    for group in ("a", "b"):
        inside = [r for r in rows if problem.groups[r] == group]
        if metric == "equal-opportunity":
            inside = [r for r in inside if problem.labels[r] > 0]
        rates.append(np.mean(scores[inside] > 0) if inside else np.nan)
    return abs(rates[0] - rates[1])


@pytest.mark.parametrize("metric", ["demographic-parity", "equal-opportunity"])
def test_shares_follow_the_clients_distance_from_everybodys_gap(metric: str) -> None:
    """Three rounds again by hand. c2 has one group only, so its accuracy stands in."""
    job = Job(solver="fairfed", max_rounds=3, options={**OPTIONS, "metric": metric}, seed=1)
    run = train_clients(job, deal_rows(PROBLEM, PARTS))
    design = np.column_stack([PROBLEM.matrix, np.ones(60)])
    weights, adjustment = np.zeros(5), np.zeros(3)
    everybody = [row for part in PARTS for row in part]
    counts = np.array([len(part) for part in PARTS])
    for _ in range(3):
        scores = design @ weights
        right = (scores > 0) == (PROBLEM.labels > 0)
        overall, accuracy = rate_gap(PROBLEM, everybody, scores, metric), right[everybody].mean()
        own = np.array([rate_gap(PROBLEM, part, scores, metric) for part in PARTS])
        assert np.isnan(own[2])
        distance = np.abs(own - overall)
        distance[2] = abs(right[PARTS[2]].mean() - accuracy)
        adjustment -= 0.7 * (distance - distance.mean())
        share = np.maximum(counts / counts.sum() + adjustment, 0.0)
        steps = []
        for part in PARTS:
            x, y = design[part], PROBLEM.labels[part]
            steps.append(x.T @ (-y / (1.0 + np.exp(y * (x @ weights)))) / len(part))
        weights = weights - 0.8 * (share / share.sum()) @ np.array(steps)
    assert np.abs(adjustment).max() > 0.02
    np.testing.assert_allclose(run.weights, weights, rtol=1e-4, atol=1e-5)


def server_of(clients: list[ClientRows], **options: float) -> FairFedServer:
    job = Job(solver="fairfed", max_rounds=6, options={**OPTIONS, **options}, seed=2)
    owns = {client.name: ClientData(client) for client in clients}
    server, others = build_roles(horizontal_terms(job, clients), HorizontalServerData(), owns)
    InProcess([server, *others]).run()
    assert isinstance(server, FairFedServer)
    return server


def test_shares_belong_to_names_whatever_the_order_and_whoever_takes_part() -> None:
    clients = deal_rows(PROBLEM, PARTS)
    there, back = (server_of(order, participation=0.6) for order in (clients, clients[::-1]))
    assert there.adjustments == pytest.approx(back.adjustments, rel=1e-6, abs=1e-12)
    assert sorted(there.adjustments) == ["c0", "c1", "c2"]
    assert sum(there.adjustments.values()) == pytest.approx(0.0, abs=1e-12)
    assert any(there.adjustments.values())


def test_with_no_weight_step_it_is_fedavg() -> None:
    fair = train_rows(PROBLEM, None, PARTS, solver="fairfed", options={**OPTIONS, "weight_step": 0.0}, max_rounds=4)
    plain = {name: value for name, value in OPTIONS.items() if name != "weight_step"}
    fedavg = train_rows(PROBLEM, None, PARTS, options=plain, max_rounds=4)
    assert fair.weights.tobytes() == fedavg.weights.tobytes()


def test_shares_that_all_fall_to_zero_give_way_to_those_by_rows() -> None:
    run = train_rows(PROBLEM, None, PARTS, solver="fairfed", options={**OPTIONS, "weight_step": 50.0}, max_rounds=8)
    assert np.isfinite(run.weights).all()


def test_history_tells_accuracy_and_gap() -> None:
    history = train_rows(PROBLEM, None, PARTS, solver="fairfed", options=OPTIONS, max_rounds=4).history
    assert ((history["accuracy"][:-1] > 0) & (history["accuracy"][:-1] <= 1)).all()
    assert history["gap"][:-1].notna().all()


def test_the_largest_gap_is_within_an_attribute_and_over_classes() -> None:
    hits, rows = np.array([[5, 1, 0, 9, 9]]), np.array([[10, 10, 0, 10, 10]])
    assert largest_gap(hits, rows, [3, 2]) == pytest.approx(0.4)
    assert largest_gap(hits, rows, [2, 3]) == pytest.approx(0.4)
    assert np.isnan(largest_gap(hits[:, 2:4], rows[:, 2:4], [2]))
    two_classes = np.array([[5, 5], [0, 8]])
    assert largest_gap(two_classes, np.full((2, 2), 10), [2]) == pytest.approx(0.8)


def test_several_attributes_and_classes() -> None:
    problem = two_attributes(seed=3)
    clients = [
        ClientRows(name, problem.matrix[rows], np.arange(45) % 3, problem.sensitive.iloc[rows])
        for name, rows in (("x", slice(0, 45)), ("y", slice(45, 90)))
    ]
    options = {**OPTIONS, "metric": "equal-opportunity"}
    run = train_clients(Job(solver="fairfed", max_rounds=3, options=options), clients, keep_messages=True)
    rates = next(message for message in run.transcript.messages or [] if message.kind == "rates")
    assert rates["class_rows"].shape == (3, 5)
    assert rates["class_rows"].sum() == 2 * 45
    assert rates["selected"].sum() == 2 * 45
    assert (rates["hits"] <= rates["selected"]).all()


def test_it_needs_groups_and_a_metric_it_knows() -> None:
    clients = [ClientRows(c.name, c.features, c.labels) for c in deal_rows(PROBLEM, PARTS)]
    with pytest.raises(DataError, match="fairfed compares groups"):
        train_clients(Job(solver="fairfed"), clients)
    with pytest.raises(InputError, match="metric is 'accuracy'"):
        FairFed(metric="accuracy")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weight_step is -1"):
        FairFed(weight_step=-1)
