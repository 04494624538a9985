"""Settings of the papers' experiments with averaging solvers, by name, as printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from evenhand.errors import InputError


@dataclass(frozen=True)
class Preset:
    """Settings of a paper's experiments.

    Attributes
    ----------
    rounds
        T.
    common
        Options of all solvers.
    own
        Further options by solver; those that are listed can be used with the preset.
    """

    rounds: int
    common: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]


_SGD: Final = {"optimizer": "sgd", "schedule": "steps", "batch_size": 128, "clip": 1.0, "local_epochs": 1}
PRESETS: Final[Mapping[str, Preset]] = {
    # FairFedAvgALM's supplement, C.1: a ResNet-18 on CelebA.
    "fairfedavgalm-celeba": Preset(
        70,
        {**_SGD, "step": 0.01, "step_decay_every": 25, "step_decay_factor": 0.1},
        {
            "fedavg": {},
            "fairfed": {"weight_step": 0.2},
            "fairalm": {"growth": 1.01, "dual_step": 1.0},
            "fpfl": {"penalty": 5.0, "dual_step": 2.0},
            "fairfedavgalm": {"growth": 1.05, "penalty": 5.0, "dual_step": 2.0},
        },
    ),
    # Its supplement, C.2: imSitu; which metric FairFed goes by is in its Section 5.
    "fairfedavgalm-imsitu": Preset(
        200,
        {**_SGD, "step": 0.02, "step_decay_every": 40, "step_decay_factor": 0.5},
        {
            "fedavg": {},
            "fairfed": {"weight_step": 0.2, "metric": "equal-opportunity"},
            "fairalm": {"growth": 1.01, "dual_step": 1.0},
            "fpfl": {"penalty": 0.1, "dual_step": 0.2},
            "fairfedavgalm": {"growth": 1.01, "penalty": 2.0, "dual_step": 1.0},
        },
    ),
    # Its Theorem 4.2: η_w,t = 2 / (μ t), η_λ,t = 16 κ² / (μ t^(2/3)), β constant; here with μ = κ = 1:
    # give step = 2/μ and dual_step = 16 κ²/μ for another problem.
    "fairfedavgalm-theorem": Preset(
        100,
        {**_SGD, "schedule": "theorem", "step": 2.0, "step_decay_every": None, "clip": None},
        {"fairfedavgalm": {"growth": 1.0, "penalty": 5.0, "dual_step": 16.0}},
    ),
}
"""By name."""


def preset_of(name: str, solver: str) -> Preset:
    """Return the preset of that name; refuse one that is not for the solver."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}; there is {', '.join(map(repr, PRESETS))}")
    found = PRESETS[name]
    if solver not in found.own:
        raise InputError(f"preset {name!r} is for {', '.join(map(repr, found.own))}; the solver is {solver!r}")
    return found


def preset_options(name: str, solver: str) -> dict[str, Any]:
    """Return a preset's options for a solver."""
    preset = preset_of(name, solver)
    return {**preset.common, **preset.own[solver]}
