"""A client says the same, bit for bit, whoever it shares a process with: how many, how large, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.horizontal.averaging import batched
from evenhand.horizontal.averaging.batched import Batching, deal
from evenhand.horizontal.averaging.messages import FINAL, MODEL, TILT
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.averaging.rounds import AveragingServer
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms
from evenhand.solvers.registry import HORIZONTAL
from evenhand_reproductions.in_memory import horizontal_terms

AVERAGING = [name for name, solver in HORIZONTAL.items() if issubclass(solver.options, AveragingOptions)]


@dataclass(frozen=True)
class Company:
    """Clients with so many rows each, and what they train.

    Attributes
    ----------
    at_once
        How many numbers are trained at once; few make several stacks of what would be one.
    """

    sizes: list[int]
    columns: int
    classes: int | None
    hidden: tuple[int, ...]
    options: dict[str, Any]
    at_once: int
    seed: int


@st.composite
def companies(draw: st.DrawFn) -> Company:
    options = {
        "batch_size": draw(st.sampled_from([None, 5, 16, 40])),
        "clip": draw(st.sampled_from([None, 0.3])),
        "dual_rows": draw(st.sampled_from(["all", "batches"])),
        "local_epochs": draw(st.integers(1, 2)),
    }
    return Company(
        # Two groups of both labels need four rows.
        sizes=draw(st.lists(st.integers(4, 75), min_size=2, max_size=5)),
        columns=draw(st.integers(1, 40)),
        classes=draw(st.sampled_from([None, 3])),
        hidden=draw(st.sampled_from([(), (5,), (17, 3)])),
        options=options | {"step": 0.03, "report_every": 1},
        at_once=draw(st.sampled_from([1, 5000, 2**20])),
        seed=draw(st.integers(0, 99)),
    )


def rows_of(company: Company) -> list[ClientRows]:
    rng = np.random.default_rng(company.seed)
    found = []
    for place, size in enumerate(company.sizes):
        numbers = np.arange(size)
        labels = np.where(numbers % 2, 1.0, -1.0) if company.classes is None else rng.integers(0, 3, size).astype(float)
        groups = pd.DataFrame({"group": np.where(numbers // 2 % 2, "a", "b")})
        found.append(ClientRows(f"c{place}", rng.standard_normal((size, company.columns)), labels, groups))
    return found


def said(clients: list[ClientRows], terms: HorizontalTerms) -> dict[str, dict[str, bytes]]:
    """All that each client answers to a model: its update, what it measures, its gradient."""
    solver = HORIZONTAL[terms.job.solver]
    server = solver.server(terms, HorizontalServerData())
    assert isinstance(server, AveragingServer)
    assert solver.batched is not None
    roles = solver.batched(terms, {client.name: ClientData(client) for client in clients})
    rng = np.random.default_rng(terms.job.seed)
    model = {
        "weights": server.weights + 0.3 * rng.standard_normal(server.weights.size).astype(np.float32),
        "statistics": server.statistics,
    }
    multipliers, tilt = rng.random(len(server.multipliers)), rng.standard_normal(len(server.means.parts))
    answers: dict[str, list[Any]] = {role.name: [] for role in roles}
    for role in roles:
        role.receive(MODEL.message(SERVER, role.name, round=1, multipliers=multipliers, **model))
    for role in roles:
        answers[role.name] += role.work()
        answers[role.name] += role.receive(FINAL.message(SERVER, role.name, round=1, measure=1, **model))
        answers[role.name] += role.receive(TILT.message(SERVER, role.name, rows=99, tilt=tilt))
    return {
        name: {f"{message.kind} {field}": array.tobytes() for message in sent for field, array in message.body.items()}
        for name, sent in answers.items()
    }


@pytest.mark.portable
@pytest.mark.parametrize("solver", AVERAGING)
@settings(max_examples=15)
@given(company=companies())
def test_alone_and_in_company_a_client_says_the_same(solver: str, company: Company) -> None:
    clients = rows_of(company)
    job = Job(
        solver=solver,
        model="mlp" if company.hidden else "linear",
        hidden=company.hidden or (32, 16),
        options=company.options,
        alpha=0.01 if company.seed % 2 else None,
        seed=company.seed,
        max_rounds=1,
    )
    terms = horizontal_terms(job, clients, classes=company.classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched, "_STACKED_AT_ONCE", company.at_once)
        together, backwards = said(clients, terms), said(clients[::-1], terms)
    assert together == backwards
    for client in clients:
        assert together[client.name] == said([client], terms)[client.name]


@pytest.mark.parametrize(
    ("size", "batch_size", "batch", "padded", "steps"),
    [
        *[(1, None, 1, 32, 1), (33, None, 33, 64, 1), (300, None, 300, 320, 1), (2100, None, 2100, 2560, 1)],
        *[(300, 128, 128, 128, 3), (100, 128, 100, 128, 1), (1290, 1300, 1290, 1312, 1), (9, 4, 4, 32, 3)],
    ],
)
def test_batches_follow_from_a_clients_own_rows(
    size: int, batch_size: int | None, batch: int, padded: int, steps: int
) -> None:
    found = Batching.of(slice(16, 16 + size), batch_size, lone_rows=True)
    assert found == Batching(16, size, batch, padded, steps, epochs=1)


def test_an_epoch_has_every_row_once_and_padding_is_the_clients_own() -> None:
    clients = [Batching.of(slice(0, 9), 4, lone_rows=True), Batching.of(slice(16, 29), 4, lone_rows=False)]
    numbers, inside = deal(clients, [np.random.default_rng(place) for place in range(2)])
    assert numbers.shape == inside.shape == (3, 2, 32)
    assert sorted(numbers[:, 0][inside[:, 0] > 0]) == list(range(9))
    # The thirteenth row would be alone in its batch.
    assert len(set(numbers[:, 1][inside[:, 1] > 0])) == 12
    for place, rows in enumerate((range(9), range(16, 29))):
        assert set(numbers[:, place].reshape(-1)) <= set(rows)
    assert inside.sum(axis=2).tolist() == [[4, 4], [4, 4], [1, 4]]
