"""Defaults of averaging solvers follow from the terms and a client's own rows."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from evenhand import EqualizedOdds, HorizontalClassifier, LossParity
from evenhand.errors import InputError
from evenhand.horizontal.averaging.batched import LEAST_STEPS, Batching
from evenhand.protocol.job import Job, check_options
from evenhand.protocol.terms import HorizontalTerms
from evenhand.solvers.registry import HORIZONTAL
from evenhand_reproductions.presets import preset_options

torch = pytest.importorskip("torch")

AVERAGING = ("fedavg", "fairfedavgalm", "fairalm", "fairfed", "fpfl")


def terms(solver: str, model: Any = "linear", columns: int = 9, **job: Any) -> HorizontalTerms:
    clients: Any = {f"c{number}": "client" for number in range(4)}
    return HorizontalTerms(Job(solver=solver, model=model, max_rounds=50, **job), clients, 0, {}, (columns,))


def resolved(solver: str, model: str = "linear", columns: int = 9, **options: Any) -> dict[str, Any]:
    agreed = terms(solver, model, columns, options=options)
    return asdict(check_options(solver, HORIZONTAL[solver].options, options).resolved(agreed))


def table(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, pd.Series, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = pd.Series(rng.choice(["f", "m"], rows, p=[0.3, 0.7]), name="sex")
    frame = pd.DataFrame(rng.standard_normal((rows, 6)), columns=list("abcdef"))
    frame["a"] += groups == "m"
    score = 1.5 * frame["a"] - frame["b"] + (groups == "m") - 1.8
    return frame, np.where(score + rng.logistic(size=rows) > 0, 1, 0), groups, rng.integers(4, size=rows)


# -- from the terms


@pytest.mark.parametrize("solver", AVERAGING)
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_on_tables_steps_follow_from_the_columns(solver: str, model: str) -> None:
    assert resolved(solver, model, columns=9)["step"] == 0.2
    assert resolved(solver, model, columns=159)["step"] == 0.05
    assert resolved(solver, model)["step_decay_every"] is None
    assert resolved(solver, model, step=0.3, step_decay_every=7)["step"] == 0.3
    others = {key: value for key, value in resolved(solver, model).items() if key != "local_epochs"}
    assert "auto" not in [value for value in others.values() if isinstance(value, str)]


@pytest.mark.parametrize("solver", AVERAGING)
@pytest.mark.parametrize("model", ["module", "resnet18"])
def test_networks_of_ones_own_are_trained_with_adam(solver: str, model: str) -> None:
    found = resolved(solver, model)
    assert (found["optimizer"], found["step"], found["step_decay_every"]) == ("adam", 1e-3, None)
    assert found["local_epochs"] == "auto"
    if solver == "fairfedavgalm":
        assert (found["penalty"], found["dual_step"]) == (2.0, 1.0)
        assert resolved(solver, model, penalty=0.3)["penalty"] == 0.3
        assert resolved(solver, "mlp", optimizer="adam")["penalty"] == 0.1
    assert resolved(solver, "mlp")["optimizer"] == "sgd"
    assert resolved(solver, model, step=0.3)["optimizer"] == "sgd"
    assert resolved(solver, model, step=0.3, optimizer="adam")["step"] == 0.3
    noisy = replace(terms(solver, model), noise={"mechanism": "clipped-gaussian"})
    assert HORIZONTAL[solver].options().resolved(noisy).optimizer == "sgd"


@pytest.mark.parametrize("outputs", [1, 10])
def test_a_module_with_unscaled_images_learns_at_the_defaults(outputs: int) -> None:
    images, digits = load_digits(return_X_y=True)
    images, labels = images[:500].reshape(-1, 1, 8, 8).astype(np.float32), digits[:500] % (2 if outputs == 1 else 10)
    train = np.arange(500) % 4 != 0

    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 24), torch.nn.Tanh(), torch.nn.Linear(24, outputs)
        )

    constraint = LossParity(0.05) if outputs == 1 else None
    model = HorizontalClassifier(model=network, constraint=constraint, max_rounds=12, random_state=0)
    groups = np.where(np.arange(500) % 3 == 0, "a", "b")[train]
    model.fit(images[train], labels[train], clients=(np.arange(500) % 7)[train] % 3, sensitive_features=groups)
    # SGD at the papers' step gives .69 and .22.
    assert (model.predict(images[~train]) == labels[~train]).mean() > 0.85
    with pytest.raises(InputError, match=r"has the shape \(375, 1, 8, 8\), as images have"):
        HorizontalClassifier().fit(images[train], labels[train], clients=(np.arange(500) % 3)[train])


@pytest.mark.parametrize("solver", AVERAGING)
def test_sgd_of_networks_has_the_papers_settings(solver: str) -> None:
    found = resolved(solver, "module", optimizer="sgd")
    assert {name: found[name] for name in preset_options("fairfedavgalm-celeba", solver)} == preset_options(
        "fairfedavgalm-celeba", solver
    )


def test_multipliers_that_only_grow_and_shares_that_only_follow_go_by_rounds_and_clients() -> None:
    assert resolved("fpfl")["dual_step"] == 1 / 50
    assert resolved("fairfed")["weight_step"] == 1 / (4 * 50)


@pytest.mark.parametrize(("rows", "passes"), [(30, 20), (128, 20), (129, 10), (2432, 2), (2500, 1), (10_000, 1)])
def test_small_clients_make_as_many_steps_as_it_takes(rows: int, passes: int) -> None:
    found = Batching.of(slice(0, rows), 128, "auto", lone_rows=True)
    assert found.epochs == passes == -(-LEAST_STEPS // found.steps)
    assert Batching.of(slice(0, rows), 128, 3, lone_rows=True).epochs == 3


# -- what comes of it


@pytest.mark.parametrize("rows", [300, 1500])
def test_fedavg_comes_near_the_optimum(rows: int) -> None:
    frame, labels, _, clients = table(rows)
    best = HorizontalClassifier(solver="sqp", alpha=1e-6).fit(frame, labels, clients=clients)
    found = HorizontalClassifier(solver="fedavg", random_state=0, max_rounds=60).fit(frame, labels, clients=clients)
    assert found.certificate_.objective < 1.03 * best.certificate_.objective
    assert abs(found.score(frame, labels) - best.score(frame, labels)) < 0.01


@pytest.mark.parametrize("solver", ["fairfedavgalm", "fairalm", "fpfl"])
def test_constrained_solvers_tell_rows_apart(solver: str) -> None:
    frame, labels, groups, clients = table(600)
    model = HorizontalClassifier(solver=solver, constraint=EqualizedOdds(0.02, "error"), random_state=0, max_rounds=60)
    model.fit(frame, labels, sensitive_features=groups, clients=clients)
    assert 0.1 < model.predict(frame).mean() < 0.6
    assert model.score(frame, labels) > 0.75
