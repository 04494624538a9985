"""The model that a party names in its own section: `model = "mlp"`, or its own code.

Code is named as ``"package.module:maker"``. It is imported from the party's own machine and never sent. Nothing is
imported unless the machine's environment variable EVENHAND_MODEL_CODE lists the module: a job file, or a run folder,
that somebody else wrote cannot call code by itself.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from evenhand.errors import InputError, JobError
from evenhand.models.learning.base import PartyLearner
from evenhand.models.learning.choose import NAMED, as_learner
from evenhand.printing import quoted
from evenhand.protocol.job import check_options
from evenhand.runtime.folder import RunFolder

MODEL_CODE: Final = "EVENHAND_MODEL_CODE"
"""Environment variable that lists the modules, separated by commas, in which a party's `model` may name a function."""
_CODE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_BESIDE: Final = ("columns", "trusted")
"""Keys beside code that are settings of `RegressorLearner` rather than arguments of the function."""


def section_learner(given: str | Mapping[str, Any], where: str = "model") -> PartyLearner:
    """Return the learner of a party's section: a name, or a table with its kind and settings.

    Parameters
    ----------
    where
        The key, for errors.
    """
    kind, table = check_learner(given, where)
    if kind in NAMED:
        made = NAMED[kind]()
        known = {one.name for one in fields(made)} - {"module", "curves", "columns", "read", "device"}
        if strange := sorted(set(table) - known):
            raise JobError(f"key {where}.{strange[0]} is no setting of {kind!r}; there are {', '.join(sorted(known))}")
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
        fixed = {"curves": True} if kind == "curves" else {}
        try:
            return check_options(f"model {kind!r}", type(made), {**settings, **fixed})
        except InputError as error:
            raise JobError(f"key {where}: {error}") from error
    return _of_code(kind, table, where)


def check_learner(given: str | Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of a learner and its settings; refuse a kind that cannot be. Nothing is imported."""
    table = {"kind": given} if isinstance(given, str) else dict(given)
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or (kind not in NAMED and not _CODE.fullmatch(kind)):
        raise JobError(
            f"key {where} is {quoted(kind)}; choose {', '.join(NAMED)}, or name a function of your own as "
            '"package.module:function"'
        )
    return kind, table


def _of_code(kind: str, table: dict[str, Any], where: str) -> PartyLearner:
    module, name = kind.split(":")
    allowed = [one.strip() for one in os.environ.get(MODEL_CODE, "").split(",")]
    if module not in allowed:
        raise JobError(
            f"key {where} names code in {module!r}, which this machine does not allow; if you trust it, set the "
            f"environment variable {MODEL_CODE}={module}"
        )
    # Sites without code of their own need not load scikit-learn.
    from evenhand.models.learning.regressor import RegressorLearner

    beside = {one: table.pop(one) for one in _BESIDE if one in table}
    try:
        made = getattr(importlib.import_module(module), name)(**table)
    except Exception as error:
        raise JobError(f"key {where}: {kind} failed: {type(error).__name__}: {error}") from error
    try:
        learner = as_learner(made)
        if beside and not isinstance(learner, RegressorLearner):
            raise InputError(f"{next(iter(beside))} is for regressors with scikit-learn's interface; remove it")
        if isinstance(learner, RegressorLearner):
            columns, trusted = beside.get("columns", learner.columns), beside.get("trusted", learner.trusted)
            return RegressorLearner(learner.regressor, columns, tuple(trusted))
    except InputError as error:
        raise JobError(f"key {where}: {kind} gave no model that can be fitted: {error}") from error
    return learner


def kept_learner(folder: RunFolder, name: str) -> PartyLearner | None:
    """Return the learner of a party of a finished run, if its section names one."""
    described = folder.description
    own = described.get("own", {}).get("party", {})
    sections = [own, *(one for one in described.get("party", []) if isinstance(one, dict))]
    given = next((one["model"] for one in sections if one.get("name") == name and "model" in one), None)
    return None if given is None else section_learner(given, f"party.{name}.model")
