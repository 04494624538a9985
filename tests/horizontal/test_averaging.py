"""FedAvg's rounds against plain SGD, and what all averaging solvers have from them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from support.clients import as_reference, deal_rows, pooled, train_rows, unequal
from support.problems import small
from torch import Tensor, nn

from evenhand.errors import DivergenceError, InputError, ProtocolError
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData, generator
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.solvers.registry import HORIZONTAL
from evenhand.training.horizontal import HorizontalRun
from evenhand_reproductions.in_memory import horizontal_terms, train_clients

AVERAGING = [name for name, solver in HORIZONTAL.items() if issubclass(solver.options, AveragingOptions)]
PROBLEM = small(seed=2, rows=70)
PARTS = unequal(PROBLEM, 3)


class Wrapped(nn.Module):
    """A module that is not a plain perceptron any more, although it computes the same."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.inner(rows)
        return output


def perceptron(outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, outputs))


def plain_sgd(module: nn.Module, client: ClientRows, rounds: int, seed: int, options: dict[str, Any]) -> np.ndarray:
    """Mini-batch SGD as one would write it with torch's own parts; batches in the order the seed gives."""
    module = copy.deepcopy(module)
    rate = options["step"]
    rows, labels = (torch.tensor(given, dtype=torch.float32) for given in (client.features, client.labels))
    for round_number in range(1, rounds + 1):
        order = generator(seed, client.name, round_number, "batches")
        optimiser = torch.optim.SGD(module.parameters(), lr=rate, weight_decay=options.get("alpha", 0.0))
        for _ in range(options["local_epochs"]):
            for batch in torch.tensor(order.permutation(len(rows))).split(options["batch_size"]):
                optimiser.zero_grad()
                margin = labels[batch] * module(rows[batch])[:, 0]
                torch.nn.functional.softplus(-margin).mean().backward()
                nn.utils.clip_grad_norm_(module.parameters(), options["clip"])
                optimiser.step()
        if round_number % options["step_decay_every"] == 0:
            rate *= options["step_decay_factor"]
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


@pytest.mark.parametrize("wrap", [False, True])
def test_with_one_client_it_is_plain_sgd(wrap: bool) -> None:
    options = {
        "batch_size": 16,
        "step": 0.8,
        "clip": 0.15,
        "local_epochs": 2,
        "step_decay_every": 2,
        "step_decay_factor": 0.5,
    }
    (client,) = deal_rows(PROBLEM)
    module = perceptron()
    run = train_rows(
        PROBLEM, options=options, max_rounds=5, seed=9, runtime={"model": Wrapped(module) if wrap else module}
    )
    np.testing.assert_allclose(run.weights, plain_sgd(module, client, 5, 9, options), rtol=1e-4, atol=1e-5)


def test_full_batches_and_one_step_are_pooled_gradient_descent() -> None:
    """Whoever holds which rows: the shares n_i/n make the average of mean gradients the pooled gradient."""
    run = train_rows(PROBLEM, parts=PARTS, options={"step": 0.7}, max_rounds=25, alpha=0.02)
    reference, weights = pooled(PROBLEM), np.zeros(5)
    for _ in range(25):
        weights -= 0.7 * (reference.gradient(weights, reference.no_multipliers()) + 0.02 * weights)
    np.testing.assert_allclose(as_reference(run), weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("solver", AVERAGING)
@pytest.mark.parametrize("outputs", [1, 2])
def test_side_by_side_is_one_by_one(solver: str, outputs: int) -> None:
    module = perceptron(outputs)
    options = {"batch_size": 8, "step": 0.2, "clip": 0.5, "local_epochs": 2}
    alone, together = (
        train_rows(PROBLEM, None, PARTS, solver=solver, options=options, max_rounds=4, alpha=0.01, runtime=runtime)
        for runtime in ({"model": Wrapped(module)}, {"model": module})
    )
    np.testing.assert_allclose(together.weights, alone.weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(together.multipliers, alone.multipliers, rtol=1e-4, atol=1e-5)


def participants(run: HorizontalRun) -> list[set[str]]:
    found: dict[float, set[str]] = {}
    for entry in run.transcript:
        if entry.kind == "model":
            found.setdefault(entry.time, set()).add(entry.receiver)
    return list(found.values())


def test_a_share_of_the_clients_takes_part_and_who_does_changes() -> None:
    parts = [list(range(place, 70, 7)) for place in range(7)]
    run = train_rows(PROBLEM, None, parts, options={"participation": 0.4, "step": 0.1}, max_rounds=12)
    drawn = participants(run)
    assert [len(names) for names in drawn] == [3] * 12
    assert set.union(*drawn) == {f"c{place}" for place in range(7)}
    assert len({frozenset(names) for names in drawn}) > 3
    # The closing measurement is everybody's all the same.
    assert sum(entry.kind == "gradient" for entry in run.transcript) == 7


def test_one_client_takes_part_at_least() -> None:
    run = train_rows(PROBLEM, None, PARTS, options={"participation": 0.01}, max_rounds=2)
    assert [len(names) for names in participants(run)] == [1, 1]


@pytest.mark.parametrize("solver", AVERAGING)
def test_a_run_without_reports_sends_the_same_updates_and_certifies_nothing(solver: str) -> None:
    quiet, telling = (
        train_rows(PROBLEM, None, PARTS, solver=solver, options={"report_every": every}, max_rounds=4)
        for every in (0, 1)
    )
    assert quiet.weights.tobytes() == telling.weights.tobytes()
    assert {"sums", "gradient", "tilt"} <= {entry.kind for entry in telling.transcript}
    assert not {"sums", "gradient", "tilt"} & {entry.kind for entry in quiet.transcript}
    assert np.isnan(quiet.certificate.stationarity)
    assert not quiet.certificate.converged
    assert quiet.history["objective"].isna().all()


def test_reports_come_as_often_as_asked_for_and_change_nothing_else() -> None:
    often, seldom = (
        train_rows(PROBLEM, None, PARTS, solver="fairfedavgalm", options={"report_every": every}, max_rounds=5)
        for every in (1, 2)
    )
    assert often.weights.tobytes() == seldom.weights.tobytes()
    known = seldom.history["objective"].notna()
    assert list(known) == [True, False, True, False, True, True]
    np.testing.assert_array_equal(seldom.history["objective"][known], often.history["objective"][known])
    multiplier = f"upper multiplier[{often.row_names[0]}]"
    np.testing.assert_array_equal(seldom.history[multiplier], often.history[multiplier])


class Normalising(nn.Module):
    """Batch normalisation and dropout: what behaves differently in training and in use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)
        self.drop = nn.Dropout(0.3)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.last(self.drop(torch.relu(self.norm(self.first(rows)))))
        return output


def test_running_statistics_are_averaged_with_the_shares_of_weights() -> None:
    parts = [list(range(20)), list(range(20, 70))]
    alone = [train_rows(PROBLEM, None, [part], max_rounds=1, runtime={"model": Normalising}) for part in parts]
    both = train_rows(PROBLEM, None, parts, max_rounds=1, runtime={"model": Normalising})
    assert both.statistics.shape == (12,)
    # Each trains under its own name; c1's rows were c0's when it was alone, and full batches need no order.
    expected = (20 * alone[0].statistics + 50 * alone[1].statistics) / 70
    np.testing.assert_allclose(both.statistics, expected, rtol=1e-5)
    assert not np.allclose(both.statistics, [0.0] * 6 + [1.0] * 6, atol=1e-3)
    rows = PROBLEM.matrix[:9]
    np.testing.assert_array_equal(both.model.predict(rows), both.model.predict(rows))


def test_dropout_is_drawn_from_the_seed_and_not_from_torch() -> None:
    runs = []
    for seed, elsewhere in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(elsewhere)
        runs.append(
            train_rows(PROBLEM, None, PARTS, max_rounds=2, seed=seed, runtime={"model": perceptron_with_drop()})
        )
    assert runs[0].weights.tobytes() == runs[1].weights.tobytes()
    assert runs[0].weights.tobytes() != runs[2].weights.tobytes()


def perceptron_with_drop() -> nn.Module:
    return nn.Sequential(perceptron()[0], nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 1))


def test_a_lone_last_row_is_left_out_where_batches_are_normalised() -> None:
    run = train_rows(
        PROBLEM, None, [list(range(17))], options={"batch_size": 8}, max_rounds=2, runtime={"model": Normalising}
    )
    assert np.isfinite(run.weights).all()
    with pytest.raises(InputError, match="client 'c1' has batches of one row"):
        train_rows(PROBLEM, None, [[*range(5)], [6]], max_rounds=2, runtime={"model": Normalising})


def test_images_and_classes() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(12) % 3
    images = rng.standard_normal((12, 1, 8, 8)) + labels[:, None, None, None]
    sex = rng.integers(0, 2, 12)
    clients = [ClientRows(f"c{i}", images[i::2], labels[i::2].astype(float), sex[i::2]) for i in range(2)]

    def model() -> nn.Module:
        from evenhand.models.networks import ResNet18Network

        return ResNet18Network(outputs=3, input_channels=1, channels=(4, 4, 8, 8), small_images=True)

    job = Job(solver="fairfedavgalm", max_rounds=8, options={"step": 0.1, "penalty": 0.1, "dual_step": 0.1})
    run = train_clients(job, clients, model=model)
    assert run.history["objective"].iloc[-1] < run.history["objective"].iloc[0]
    assert run.model.predict(images).shape == (12, 3)
    assert run.row_names == ["mean loss, 0 vs. 1 (group)"]


def test_weights_that_leave_the_finite_numbers_are_said_so() -> None:
    with pytest.raises(
        DivergenceError, match=r"c\d: weights became infinite or NaN in round \d+; the steps are too long"
    ):
        train_rows(PROBLEM, None, PARTS, options={"step": 1e30}, max_rounds=20, alpha=5.0)


@pytest.mark.parametrize("rows", [0, -5])
def test_a_client_that_claims_no_rows_is_refused(rows: int) -> None:
    clients = deal_rows(PROBLEM, PARTS)
    job = Job(solver="fedavg", max_rounds=1)
    told = train_clients(job, clients, keep_messages=True).transcript.messages or []
    update = next(message for message in told if message.kind == "update")
    server = HORIZONTAL["fedavg"].server(horizontal_terms(job, clients), HorizontalServerData())
    server.start()
    with pytest.raises(ProtocolError, match=f"reports {rows} rows"):
        server.receive(Message(update.sender, "server", "update", {**update.body, "rows": np.array(rows)}))


@pytest.mark.parametrize(
    ("kind", "field", "value", "told"),
    [
        ("model", "round", -1, "0 of 2 rounds; it refuses a model of round -1"),
        ("model", "round", 2**62, "it refuses a model"),
        ("tilt", "rows", 0, "a total of 0 rows, which is fewer than its own"),
    ],
)
def test_a_client_refuses_numbers_that_cannot_be(kind: str, field: str, value: int, told: str) -> None:
    clients = deal_rows(PROBLEM, PARTS)
    job = Job(solver="fedavg", max_rounds=2)
    messages = train_clients(job, clients, keep_messages=True).transcript.messages or []
    client = HORIZONTAL["fedavg"].participant(horizontal_terms(job, clients), "c0", ClientData(clients[0]))
    heard = [message for message in messages if message.receiver == "c0"]
    before = [message.kind for message in heard].index(kind)
    for message in heard[:before]:
        client.receive(message)
        client.work()
    with pytest.raises(ProtocolError, match=told):
        client.receive(Message("server", "c0", kind, {**heard[before].body, field: np.array(value)}))


class Noise:
    """A protection that keeps a diary."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []

    def __repr__(self) -> str:
        return "Noise()"

    def protect(
        self, delta_weights: np.ndarray, delta_multipliers: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        noise = rng.standard_normal(delta_weights.size).astype(np.float32)
        self.seen.append((delta_weights.size, delta_multipliers.size, float(noise[0])))
        return 0.01 * noise, np.full(delta_multipliers.size, 0.25)


def test_a_protection_has_the_last_word_on_every_update_and_nothing_else_is_sent() -> None:
    first, again = Noise(), Noise()
    runs = [
        train_rows(
            PROBLEM,
            None,
            PARTS,
            solver="fairfedavgalm",
            max_rounds=3,
            runtime={"update_noise": noise, "keep_messages": True},
        )
        for noise in (first, again)
    ]
    assert runs[0].weights.tobytes() == runs[1].weights.tobytes()
    assert [(weights, multipliers) for weights, multipliers, _ in first.seen] == [(5, 1)] * 9
    assert len({number for _, _, number in first.seen}) == 9
    assert {entry.kind for entry in runs[0].transcript} == {"model", "update", "final"}
    updates = [message for message in runs[0].transcript.messages or [] if message.kind == "update"]
    assert all(message["multipliers"] == 0.25 for message in updates)
    assert runs[0].raw_multipliers == pytest.approx([0.75])


def test_a_protection_covers_running_statistics_and_can_be_one_clients_own() -> None:
    noise = Noise()
    train_rows(PROBLEM, None, PARTS, max_rounds=1, runtime={"update_noise": {"c1": noise}, "model": Normalising})
    weights = 4 * 6 + 6 + 12 + 6 + 1
    assert [(size, multipliers) for size, multipliers, _ in noise.seen] == [(weights + 12, 0)]
    with pytest.raises(InputError, match="update_noise names 'c9', which is not a client"):
        train_rows(PROBLEM, None, PARTS, max_rounds=1, runtime={"update_noise": {"c9": noise}})


def test_a_run_can_begin_where_another_ended() -> None:
    settings: dict[str, Any] = {"solver": "fairfedavgalm", "options": {"growth": 1.0}}
    first = train_rows(PROBLEM, None, PARTS, max_rounds=3, **settings)
    both = train_rows(PROBLEM, None, PARTS, max_rounds=3, runtime={"start": first.as_start()}, **settings)
    whole = train_rows(PROBLEM, None, PARTS, max_rounds=6, **settings)
    np.testing.assert_allclose(both.weights, whole.weights, rtol=1e-6)
    np.testing.assert_allclose(both.multipliers, whole.multipliers, rtol=1e-6)
    with pytest.raises(InputError, match="the start has 5 weights, but the model needs 25"):
        train_rows(PROBLEM, None, PARTS, model="mlp", hidden=(4,), runtime={"start": first.as_start()}, **settings)
    with pytest.raises(InputError, match="the start has 1 multipliers, but the model needs 0"):
        train_rows(PROBLEM, None, PARTS, runtime={"start": first.as_start()})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"step": 0.0}, "step is 0.0"),
        ({"step": float("nan")}, "step is nan"),
        ({"step_decay_every": -1}, "step_decay_every is -1"),
        ({"step_decay_factor": 0}, "step_decay_factor is 0"),
        ({"clip": -1.0}, "clip is -1.0"),
        ({"local_epochs": 0}, "local_epochs is 0"),
        ({"participation": 0.0}, "participation is 0.0"),
        ({"participation": 1.5}, "participation is 1.5"),
        ({"dual_rows": "some"}, "dual_rows is 'some'"),
        ({"report_every": -1}, "report_every is -1"),
        ({"report_every": True}, "report_every is True"),
    ],
)
def test_options_check_themselves(options: dict[str, Any], message: str) -> None:
    for solver in AVERAGING:
        with pytest.raises(InputError, match=message):
            HORIZONTAL[solver].options(**options)
