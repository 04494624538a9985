"""The adversarial FairVFL: recomputed for three rounds by another program, and under the contract of solvers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.problems import deal, pooled_weights, small, two_attributes

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vertical"))

import torch
from contract import SUITABLE, SolverContract

from evenhand.errors import DataError
from evenhand.protocol.job import Job
from evenhand.solvers import VERTICAL
from evenhand_reproductions.in_memory import train_vertical
from evenhand_reproductions.methods import register_methods
from evenhand_reproductions.methods.adversarial_fairvfl import AdversarialFairVFL, others
from evenhand_reproductions.methods.perceptron import Perceptron

NAME = "adversarial-fairvfl"
OPTIONS: dict[str, Any] = {
    "width": 3,
    "protected": 2,
    "hidden": 4,
    "batch_size": 16,
    "similar": 4,
    "step": 0.05,
    "adversary": 0.7,
    "privacy": 0.5,
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = dict(VERTICAL)
    register_methods()
    yield
    VERTICAL.clear()
    VERTICAL.update(before)


def layers_of(network: Perceptron) -> list[Any]:
    """The layers of a network as it begins, as leaves for another program's derivatives."""
    return [torch.tensor(layer, requires_grad=True) for layer in network.layers]


def through(layers: list[Any], x: Any, intercepts: bool = True) -> Any:
    for place, layer in enumerate(layers):
        x = x @ layer[:-1] + layer[-1] if intercepts else x @ layer
        x = torch.relu(x) if place < len(layers) - 1 else x
    return x


def reference(problem: Any, blocks: list[list[int]], seed: int, rounds: int, hidden: tuple[int, ...]) -> np.ndarray:
    """Three networks and their losses, from the authors' description, with torch's derivatives and its Adam."""
    o, n = AdversarialFairVFL(**OPTIONS), len(problem.labels)
    x, y = torch.tensor(problem.matrix), torch.tensor(problem.labels)
    ends = [[column, *([-1] if party == 0 and not hidden else [])] for party, column in enumerate(blocks)]
    columns = [torch.cat([x[:, e[0]], torch.ones(n, 1)], 1) if len(e) > 1 else x[:, e[0]] for e in ends]
    locals_ = [
        layers_of(Perceptron((c.shape[1], *hidden, o.width), (seed, 6, party), intercepts=bool(hidden)))
        for party, c in enumerate(columns)
    ]
    head = torch.tensor(
        np.random.default_rng([seed, 2]).uniform(-1, 1, (o.width, 1)) / np.sqrt(o.width), requires_grad=True
    )
    frame = problem.sensitive
    codes = [torch.tensor(frame[one].rank(method="dense").to_numpy().astype(int) - 1) for one in frame]
    mappers = [layers_of(Perceptron((o.width, o.hidden, o.protected), (seed, 3, a))) for a in range(len(codes))]
    scorers = [
        layers_of(Perceptron((o.protected + o.width, o.hidden, o.hidden, 1), (seed, 4, a))) for a in range(len(codes))
    ]
    judges = [layers_of(Perceptron((o.protected, int(c.max()) + 1), (seed, 7, a))) for a, c in enumerate(codes)]
    adam = [torch.optim.Adam([*m, *j], lr=o.step) for m, j in zip(mappers, judges, strict=True)]
    tell = [torch.optim.Adam(s, lr=o.step) for s in scorers]
    hide = [torch.optim.Adam(m, lr=o.privacy * o.step) for m in mappers]
    main = torch.optim.Adam([head, *(layer for one in locals_ for layer in one)], lr=o.step)

    def unified(rows: Any) -> Any:
        return sum(through(one, c[rows], bool(hidden)) for one, c in zip(locals_, columns, strict=True))

    for number in range(rounds):
        epoch, place = divmod(number, n // o.batch_size)
        order = np.random.default_rng([seed, 1, epoch]).permutation(n)
        rows = np.sort(order[place * o.batch_size : (place + 1) * o.batch_size])
        d = unified(rows).detach()
        for a in range(len(codes)):
            p = through(mappers[a], d).detach()
            unit = p / (p.square().sum(1, keepdim=True) + 1e-6).sqrt()
            close = (unit @ unit.T).fill_diagonal_(-9.0)
            near = close.argsort(dim=1, descending=True, stable=True)[:, : o.similar]
            rng = np.random.default_rng([seed, 5, number, a])
            other = d[near[torch.arange(len(rows)), torch.tensor(rng.integers(o.similar, size=len(rows)))]]
            for optimiser, sign in ((tell[a], 1.0), (hide[a], -1.0)):
                optimiser.zero_grad()
                p = through(mappers[a], d)
                pair = torch.cat([through(scorers[a], torch.cat([p, one], 1)) for one in (d, other)], 1)
                (sign * torch.nn.functional.cross_entropy(pair, torch.zeros(len(rows), dtype=int))).backward()
                optimiser.step()
        for _ in range(o.adversary_steps):
            for a, code in enumerate(codes):
                adam[a].zero_grad()
                told = through(judges[a], through(mappers[a], d))
                torch.nn.functional.cross_entropy(told, code[rows]).backward()
                adam[a].step()
        main.zero_grad()
        d = unified(rows)
        loss = torch.nn.functional.softplus(-y[rows] * (d @ head)[:, 0]).mean()
        for a, code in enumerate(codes):
            told = through(judges[a], through(mappers[a], d))
            loss = loss - o.adversary * torch.nn.functional.cross_entropy(told, code[rows])
        loss.backward()
        main.step()
    return (unified(np.arange(n)) @ head)[:, 0].detach().numpy()


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_three_rounds_are_those_of_another_program(hidden: tuple[int, ...]) -> None:
    """Two sensitive attributes, batches over two epochs, and the scores of all rows at the end."""
    problem, blocks, seed = two_attributes(seed=3, rows=40), [[2, 0], [1], [3]], 5
    model: dict[str, Any] = {"model": "mlp", "hidden": hidden} if hidden else {}
    job = Job(solver=NAME, max_rounds=3, seed=seed, options=OPTIONS, **model)
    run = train_vertical(job, deal(problem, blocks), problem.labels, problem.sensitive)
    parts = zip(run.models.values(), blocks, strict=True)
    found = sum(one.predict(problem.matrix[:, block]) for one, block in parts)
    np.testing.assert_allclose(found, reference(problem, blocks, seed, 3, hidden), atol=1e-6)


def test_other_rows_are_similar_and_never_the_row_itself() -> None:
    angles = np.array([0.0, 0.1, 0.2, 3.0, 3.1])
    protected = 5.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    for seed in range(20):
        drawn = others(protected, 1, np.random.default_rng(seed))
        np.testing.assert_array_equal(drawn, [1, drawn[1], 1, 4, 3])
        assert drawn[1] in (0, 2)
        assert (others(protected, 9, np.random.default_rng(seed)) != np.arange(5)).all()


def test_the_adversary_takes_the_attribute_out_of_the_scores() -> None:
    """Scores of a model without it differ more between groups. It does not take out all, however large λ is."""
    problem = small(seed=11, rows=400, columns=3)
    matrix = np.column_stack([problem.matrix, np.where(problem.groups == "a", 1.0, -1.0)])
    labels = np.where(np.random.default_rng(0).random(400) < 0.75, matrix[:, 3], problem.labels)
    gaps = []
    for adversary in (0.0, 20.0):
        parties = deal(type(problem)(matrix, labels, problem.sensitive), [[0, 1], [2, 3]])
        options = {"step": 0.02, "adversary": adversary, "width": 4, "protected": 4}
        run = train_vertical(Job(solver=NAME, max_rounds=150, options=options), parties, labels, problem.sensitive)
        scores = matrix @ pooled_weights(run, [[0, 1], [2, 3]])[:4]
        gaps.append(scores[problem.groups == "a"].mean() - scores[problem.groups == "b"].mean())
    assert abs(gaps[1]) < 0.7 * abs(gaps[0])


def test_without_sensitive_attributes_it_is_refused() -> None:
    problem = small(seed=1)
    with pytest.raises(DataError, match="needs sensitive attributes"):
        train_vertical(Job(solver=NAME, max_rounds=1), deal(problem, [[0, 1], [2, 3]]), problem.labels)


@pytest.mark.usefixtures("_registered")
class TestContract(SolverContract):
    @pytest.fixture
    def solver(self, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setitem(SUITABLE, NAME, {**OPTIONS, "batch_size": 64})
        return NAME
