"""Defaults of averaging solvers follow from the terms and a client's own rows; the papers' settings have names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.hospitals import HospitalJob

from evenhand import EqualizedOdds, HorizontalClassifier
from evenhand.errors import InputError, JobError
from evenhand.horizontal.averaging.batching import LEAST_STEPS, Batching
from evenhand.horizontal.averaging.fairfed import FairFedOptions
from evenhand.horizontal.averaging.presets import PRESETS, preset_options
from evenhand.horizontal.solvers import SOLVERS
from evenhand.protocol.job import Job
from evenhand.protocol.options import check_options
from evenhand.protocol.terms import HorizontalTerms

pytest.importorskip("torch")
from evenhand.reproductions.fairfedavgalm import methods

AVERAGING = ("fedavg", "fairfedavgalm", "fairalm", "fairfed", "fpfl")


def terms(solver: str, model: Any = "linear", columns: int = 9, **job: Any) -> HorizontalTerms:
    clients: Any = {f"c{number}": "client" for number in range(4)}
    return HorizontalTerms(Job(solver=solver, model=model, max_rounds=50, **job), clients, 0, {}, (columns,))


def resolved(solver: str, model: str = "linear", columns: int = 9, **options: Any) -> dict[str, Any]:
    agreed = terms(solver, model, columns, options=options)
    return asdict(check_options(solver, SOLVERS[solver].options, options).resolved(agreed))


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
def test_networks_of_ones_own_have_the_papers_settings(solver: str) -> None:
    found = resolved(solver, "module")
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


# -- presets


def test_the_tables_of_the_supplement() -> None:
    assert preset_options("fairfedavgalm-celeba", "fairfedavgalm") == {
        **{"schedule": "steps", "batch_size": 128, "clip": 1.0, "local_epochs": 1},
        **{"step": 0.01, "step_decay_every": 25, "step_decay_factor": 0.1},
        **{"growth": 1.05, "penalty": 5.0, "dual_step": 2.0},
    }
    imsitu = preset_options("fairfedavgalm-imsitu", "fpfl")
    assert (imsitu["step"], imsitu["step_decay_every"], imsitu["step_decay_factor"]) == (0.02, 40, 0.5)
    assert (imsitu["penalty"], imsitu["dual_step"]) == (0.1, 0.2)
    # Section 5: FairFed goes by DP on CelebA and by EO on imSitu.
    assert "metric" not in preset_options("fairfedavgalm-celeba", "fairfed")
    assert FairFedOptions().metric == "demographic-parity"
    assert preset_options("fairfedavgalm-imsitu", "fairfed")["metric"] == "equal-opportunity"
    assert (PRESETS["fairfedavgalm-celeba"].rounds, PRESETS["fairfedavgalm-imsitu"].rounds) == (70, 200)


def test_the_schedules_of_the_theorem() -> None:
    given = preset_options("fairfedavgalm-theorem", "fairfedavgalm")
    found = SOLVERS["fairfedavgalm"].options(**given)
    for number in (1, 8, 27):
        settings = found.settings(number)
        assert settings.step == pytest.approx(2.0 / number)
        assert settings.dual_step == pytest.approx(16.0 / number ** (2 / 3))
        assert settings.penalty == 5.0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_its_solvers(name: str) -> None:
    for solver in PRESETS[name].own:
        check_options(solver, SOLVERS[solver].options, preset_options(name, solver))


def test_what_is_given_goes_before_the_preset_and_unknown_names_list_the_known() -> None:
    frame, labels, _, clients = table(80)
    model = HorizontalClassifier(solver="fedavg", preset="fairfedavgalm-imsitu", solver_options={"step": 0.5})
    job = model._job(two_classes=True)
    assert (job.options["step"], job.options["step_decay_every"], job.max_rounds) == (0.5, 40, 200)
    assert model.set_params(max_rounds=3)._job(two_classes=True).max_rounds == 3
    with pytest.raises(InputError, match="there is no preset 'celeba'; there is 'fairfedavgalm-celeba', "):
        model.set_params(preset="celeba").fit(frame, labels, clients=clients)
    with pytest.raises(InputError, match=r"preset 'fairfedavgalm-celeba' is for .*; the solver is 'sqp'"):
        model.set_params(preset="fairfedavgalm-celeba", solver="sqp", solver_options=None).fit(
            frame, labels, clients=clients
        )


def test_job_files_take_presets(tmp_path: Any) -> None:
    from evenhand.jobs.file import read_job

    hospitals = HospitalJob(tmp_path)
    hospitals.content["job"] |= {"solver": "fairfedavgalm", "preset": "fairfedavgalm-celeba", "options": {"step": 0.3}}
    hospitals.content["job"].pop("max_rounds", None)
    job: Any = read_job(hospitals.write())
    trained = job.to_job()
    assert (trained.options["step"], trained.options["penalty"], trained.max_rounds) == (0.3, 5.0, 70)
    hospitals.content["job"]["preset"] = "mine"
    with pytest.raises(JobError, match="there is no preset 'mine'; there is 'fairfedavgalm-celeba'"):
        read_job(hospitals.write())


# -- reproductions keep the papers' settings


@pytest.mark.parametrize("method", methods.BASELINES, ids=lambda method: method.name)
def test_reproductions_train_with_the_settings_of_the_supplement(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the digit what they were when these were the defaults of the first version."""
    seen: list[Job] = []
    monkeypatch.setattr(methods, "train_clients", lambda job, *_, **__: seen.append(job))
    task: Any = type("Task", (), {"name": "adult", "network": None, "deal": lambda *_, **__: [], "test": None})()
    task.test = type("Rows", (), {"groups": pd.Series(["a", "b"])})()
    methods.fit(task, method, methods.PaperSetting("x", participation=0.5), 0)
    defaults = {
        **{"batch_size": 128, "step": 0.1, "step_decay_every": 25, "step_decay_factor": 0.1, "schedule": "steps"},
        **{"clip": 1.0, "local_epochs": 1, "participation": 0.5, "dual_rows": "all", "report_every": 0},
    }
    own = {
        "fedavg": {},
        "fairfed": {"weight_step": 0.2, "metric": "demographic-parity"},
        "fairalm": {"growth": 1.01, "dual_step": 1.0},
        "fpfl": {"penalty": 5.0, "dual_step": 2.0},
        "fairfedavgalm": {"penalty": 5.0, "growth": 1.05, "dual_step": 2.0},
    }[method.solver]
    found = asdict(check_options(method.solver, SOLVERS[method.solver].options, seen[0].options))
    assert found == {**defaults, **own, **method.options}
