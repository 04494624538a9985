"""Settings of the papers' experiments by name, and the reproductions that use them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd
import pytest

from evenhand.errors import InputError
from evenhand.horizontal.averaging.fairfed import FairFed
from evenhand.protocol.job import Job, check_options
from evenhand.solvers.registry import HORIZONTAL
from evenhand_reproductions.presets import PRESETS, preset_of, preset_options

pytest.importorskip("torch")
from evenhand_reproductions.fairfedavgalm import methods


def test_the_tables_of_the_supplement() -> None:
    assert preset_options("fairfedavgalm-celeba", "fairfedavgalm") == {
        **{"optimizer": "sgd", "schedule": "steps", "batch_size": 128, "clip": 1.0, "local_epochs": 1},
        **{"step": 0.01, "step_decay_every": 25, "step_decay_factor": 0.1},
        **{"growth": 1.05, "penalty": 5.0, "dual_step": 2.0},
    }
    imsitu = preset_options("fairfedavgalm-imsitu", "fpfl")
    assert (imsitu["step"], imsitu["step_decay_every"], imsitu["step_decay_factor"]) == (0.02, 40, 0.5)
    assert (imsitu["penalty"], imsitu["dual_step"]) == (0.1, 0.2)
    # Section 5: FairFed goes by DP on CelebA and by EO on imSitu.
    assert "metric" not in preset_options("fairfedavgalm-celeba", "fairfed")
    assert FairFed().metric == "demographic-parity"
    assert preset_options("fairfedavgalm-imsitu", "fairfed")["metric"] == "equal-opportunity"
    assert (PRESETS["fairfedavgalm-celeba"].rounds, PRESETS["fairfedavgalm-imsitu"].rounds) == (70, 200)


def test_the_schedules_of_the_theorem() -> None:
    given = preset_options("fairfedavgalm-theorem", "fairfedavgalm")
    found = HORIZONTAL["fairfedavgalm"].options(**given)
    for number in (1, 8, 27):
        settings = found.settings(number)
        assert settings.step == pytest.approx(2.0 / number)
        assert settings.dual_step == pytest.approx(16.0 / number ** (2 / 3))
        assert settings.penalty == 5.0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_its_solvers(name: str) -> None:
    for solver in PRESETS[name].own:
        check_options(solver, HORIZONTAL[solver].options, preset_options(name, solver))


def test_unknown_names_and_other_solvers_are_refused() -> None:
    with pytest.raises(InputError, match="there is no preset 'celeba'; there is 'fairfedavgalm-celeba', "):
        preset_of("celeba", "fedavg")
    with pytest.raises(InputError, match=r"preset 'fairfedavgalm-celeba' is for .*; the solver is 'sqp'"):
        preset_options("fairfedavgalm-celeba", "sqp")


@pytest.mark.parametrize("method", methods.BASELINES, ids=lambda method: method.name)
def test_reproductions_train_with_the_settings_of_the_supplement(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the digit what they were when these were the defaults of the first version."""
    seen: list[Job] = []
    monkeypatch.setattr(methods, "train_clients", lambda job, *_, **__: seen.append(job))
    task: Any = type("Task", (), {"name": "adult", "network": None, "deal": lambda *_, **__: [], "test": None})()
    task.test = type("Rows", (), {"groups": pd.Series(["a", "b"])})()
    methods.fit(task, method, methods.PaperSetting("x", participation=0.5), 0)
    defaults = {
        **{
            "optimizer": "sgd",
            "batch_size": 128,
            "step": 0.1,
            "step_decay_every": 25,
            "step_decay_factor": 0.1,
            "schedule": "steps",
            "batches": "shuffled",
        },
        **{"clip": 1.0, "local_epochs": 1, "participation": 0.5, "dual_rows": "all", "report_every": 0},
        **{"aggregation": "mean", "trim": 0.2, "norm_bound": None},
    }
    own = {
        "fedavg": {},
        "fairfed": {"weight_step": 0.2, "metric": "demographic-parity"},
        "fairalm": {"growth": 1.01, "dual_step": 1.0},
        "fpfl": {"penalty": 5.0, "dual_step": 2.0},
        "fairfedavgalm": {"penalty": 5.0, "growth": 1.05, "dual_step": 2.0},
    }[method.solver]
    found = asdict(check_options(method.solver, HORIZONTAL[method.solver].options, seen[0].options))
    assert found == {**defaults, **own, **method.options}
