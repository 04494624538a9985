"""Baselines of the field: each recomputed for three rounds from its paper, and under the contract of solvers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.problems import small

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "horizontal"))

from horizontal_contract import Case, HorizontalContract

from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.job import Job
from evenhand.solvers import HORIZONTAL
from evenhand_reproductions.in_memory import train_clients
from evenhand_reproductions.methods import METHODS, register_methods
from evenhand_reproductions.methods.afl import simplex

NAMES = tuple(one.name for one in METHODS)
# Two kinds of server state; the others have none, or differ in one formula, which the references check.
SHAPES = ("fedadam", "afl")
PROBLEM = small(seed=7, rows=96)
PARTS = [np.arange(0, 16), np.arange(16, 48), np.arange(48, 96)]
STEP, BATCH, EPOCHS, ROUNDS = 0.3, None, 2, 3

Array = np.ndarray


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = dict(HORIZONTAL)
    register_methods()
    yield
    HORIZONTAL.clear()
    HORIZONTAL.update(before)


def trained(name: str, **options: Any) -> Array:
    """The weights after three rounds, of full-batch local steps, so that nothing is drawn."""
    job = Job(
        solver=name,
        max_rounds=ROUNDS,
        options={"step": STEP, "batch_size": BATCH, "local_epochs": EPOCHS, "clip": None, **options},
    )
    clients = [
        ClientRows(f"c{place}", PROBLEM.matrix[rows], PROBLEM.labels[rows], PROBLEM.sensitive.iloc[rows])
        for place, rows in enumerate(PARTS)
    ]
    return np.asarray(train_clients(job, clients).model.weights, dtype=np.float64)


# -- references, written from the papers: logistic regression with an intercept, from zero


def loss_and_slope(w: Array, rows: Array) -> tuple[float, Array]:
    x = np.column_stack([PROBLEM.matrix[rows], np.ones(len(rows))])
    margins = PROBLEM.labels[rows] * (x @ w)
    slope = -(PROBLEM.labels[rows] / (1.0 + np.exp(margins))) @ x / len(rows)
    return float(np.logaddexp(0.0, -margins).mean()), slope


def local(w: Array, rows: Array, epochs: int = EPOCHS) -> Array:
    for _ in range(epochs):
        w = w - STEP * loss_and_slope(w, rows)[1]
    return w


Rule = Callable[[Array, list[Array], dict[str, Any]], Array]
SHARES = np.array([len(rows) for rows in PARTS]) / 96.0


def by_paper(rule: Rule) -> Array:
    w, state = np.zeros(PROBLEM.matrix.shape[1] + 1), {}
    for _ in range(ROUNDS):
        w = rule(w, [local(w, rows) for rows in PARTS], state)
    return w


def adaptive(kind: str) -> Rule:
    def rule(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
        delta = sum(share * (end - w) for share, end in zip(SHARES, ends, strict=True))
        m = 0.9 * state.get("m", 0.0) + 0.1 * delta
        v = state.get("v", np.full_like(w, 1e-6))
        if kind == "adagrad":
            v = v + delta**2
        elif kind == "adam":
            v = 0.99 * v + 0.01 * delta**2
        else:
            v = v - 0.01 * delta**2 * np.sign(v - delta**2)
        state.update(m=m, v=v)
        return np.asarray(w + 0.1 * m / (np.sqrt(v) + 1e-3))

    return rule


def q_fedavg(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    q, bound = 2.0, 1.0 / STEP
    losses = [loss_and_slope(w, rows)[0] for rows in PARTS]
    slopes = [bound * (w - end) for end in ends]
    total = sum(f**q * g for f, g in zip(losses, slopes, strict=True))
    height = sum(q * f ** (q - 1) * (g @ g) + bound * f**q for f, g in zip(losses, slopes, strict=True))
    return np.asarray(w - total / height)


def agnostic(w: Array, ends: list[Array], state: dict[str, Any]) -> Array:
    mixture = state.get("mixture", SHARES)
    raised = mixture + 0.5 * np.array([loss_and_slope(w, rows)[0] for rows in PARTS])
    # Projection onto the simplex by bisection on the shift.
    low, high = raised.min() - 1.0, raised.max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(raised - middle, 0.0).sum() > 1.0 else (low, middle)
    state["mixture"] = np.maximum(raised - low, 0.0)
    return np.asarray(sum(share * end for share, end in zip(mixture, ends, strict=True)))


REFERENCES: dict[str, tuple[Rule, dict[str, Any]]] = {
    "fedadagrad": (adaptive("adagrad"), {}),
    "fedadam": (adaptive("adam"), {}),
    "fedyogi": (adaptive("yogi"), {}),
    "q-fedavg": (q_fedavg, {"fairness": 2.0}),
    "afl": (agnostic, {"mixture_step": 0.5}),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_three_rounds_are_those_of_the_paper(name: str) -> None:
    rule, options = REFERENCES[name]
    np.testing.assert_allclose(trained(name, **options), by_paper(rule), atol=1e-6)


def test_fednova_divides_by_the_steps_of_each_client() -> None:
    """τ_i of a client follows from its rows, its batches and its passes over them."""
    found = trained("fednova", batch_size=None, local_epochs="auto")
    steps, w = [20, 20, 20], np.zeros(PROBLEM.matrix.shape[1] + 1)
    for _ in range(ROUNDS):
        moves = [(local(w, rows, count) - w) / count for rows, count in zip(PARTS, steps, strict=True)]
        w = w + 20.0 * sum(share * move for share, move in zip(SHARES, moves, strict=True))
    np.testing.assert_allclose(found, w, atol=1e-6)
    server = HORIZONTAL["fednova"]
    from evenhand_reproductions.methods.fednova import NormalisingServer

    made = NormalisingServer.__new__(NormalisingServer)
    made.options = server.options(batch_size=16, local_epochs=3)
    assert [made.local_steps(rows) for rows in (16, 32, 48, 50)] == [3, 6, 9, 12]
    changes = {"a": {"weights": np.array([1.0])}, "b": {"weights": np.array([4.0])}}
    for one, rows in zip(changes.values(), (16, 48), strict=True):
        one["rows"] = np.array(rows)
    # τ_eff = ¼ · 3 + ¾ · 9 = 7.5, and Σ p Δ / τ = ¼ · 1/3 + ¾ · 4/9.
    np.testing.assert_allclose(made.change(changes, {"a": 0.25, "b": 0.75}), [7.5 * (0.25 / 3 + 0.75 * 4 / 9)])


def test_the_projection_onto_the_simplex() -> None:
    np.testing.assert_allclose(simplex(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])
    np.testing.assert_allclose(simplex(np.array([2.0, 0.0, -1.0])), [1.0, 0.0, 0.0])


@pytest.mark.parametrize("name", ["afl", "q-fedavg"])
def test_methods_that_need_losses_say_so(name: str) -> None:
    with pytest.raises(InputError, match="loss in every round"):
        trained(name, report_every=2)


def test_robust_rules_are_refused() -> None:
    with pytest.raises(InputError, match="has its own"):
        trained("fedadam", aggregation="median")


@pytest.mark.usefixtures("_registered")
class TestContract(HorizontalContract):
    @pytest.fixture(params=[pytest.param(name, marks=() if name in SHAPES else pytest.mark.soak) for name in NAMES])
    def case(self, request: pytest.FixtureRequest) -> Case:
        return Case(request.param, "global")
