"""Models that the user of an estimator gives for each party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.errors import InputError
from evenhand.models.kinds import ModelKind, OwnModels, as_model
from evenhand.models.learning.base import PartyLearner
from evenhand.models.learning.choose import as_learner
from evenhand.models.learning.linear import LinearLearner


def vertical_model(model: Any, models: Any, solver: str) -> ModelKind:
    """Return the model as the job has it: that each party has its own, or the one of all.

    Parameters
    ----------
    solver
        Its name, or ``"auto"``.
    """
    if isinstance(model, OwnModels):
        return model
    named = isinstance(model, (str, ModelKind)) and model != "curves"
    if models is None and solver != "learners" and (named or not _may_learn(model)):
        return as_model(model, "vertical")
    if models is not None and model != "linear":
        raise InputError(f"models gives each party a model, and model is {model!r}; give one of the two")
    return OwnModels(fit_intercept=getattr(model, "fit_intercept", True) is not False)


def _may_learn(model: Any) -> bool:
    """Return whether what is given looks like a learner, so that an error is about learners."""
    return model == "curves" if isinstance(model, str) else callable(model) or hasattr(model, "fit")


def party_learners(model: Any, models: Any, names: Sequence[str]) -> dict[str, PartyLearner]:
    """Return each party's learner."""
    if isinstance(model, OwnModels) or models is None:
        one = LinearLearner() if isinstance(model, OwnModels) else as_learner(model)
        return dict.fromkeys(names, one)
    if isinstance(models, Mapping):
        if strange := [name for name in models if name not in names]:
            raise InputError(f"models names {strange[0]!r}, which is not a party; the parties are {', '.join(names)}")
        given = [models.get(name, "linear") for name in names]
    else:
        given = list(models) if isinstance(models, (list, tuple)) else [models]
    if len(given) != len(names):
        raise InputError(f"models has {len(given)} entries for {len(names)} parties; give one for each")
    found = {}
    for name, one in zip(names, given, strict=True):
        try:
            found[name] = as_learner(one)
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
    return found
