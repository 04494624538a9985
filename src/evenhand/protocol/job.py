"""A job: what to train, under which constraints, with which solver. It contains no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from evenhand.constraints.kinds import Constraint
from evenhand.errors import InputError
from evenhand.numbers import is_number, is_whole
from evenhand.protocol.label_privacy import LabelPrivacy
from evenhand.protocol.options import Options, check_options

ModelName = Literal["linear", "mlp", "trees", "resnet18", "module"]
"""Models; ``"module"`` is a torch module that every participant has as code."""
MODELS: Final[tuple[ModelName, ...]] = get_args(ModelName)
LossName = Literal["logistic", "squared"]
RuntimeName = Literal["auto", "messages", "interleaved", "threads"]
Protection = Literal["auto", "none", "masked", "dealer", "encrypted"]
PROTECTIONS: Final[tuple[Protection, ...]] = ("none", "masked", "dealer", "encrypted")
"""Protection levels, weakest first; ``"auto"`` is the solver's choice."""
RUNTIMES: tuple[RuntimeName, ...] = ("auto", "messages", "interleaved", "threads")


@dataclass(frozen=True)
class Job:
    """Everything about a run except data.

    Parameters
    ----------
    solver
        Name of the solver, or ``"auto"``: ``"subspace"`` for linear parties, ``"fairvfl"`` for neural ones, ``"trees"``
        for boosted trees.
    constraints
        Constraints of the model; none trains without.
    model
        ``"linear"``, ``"mlp"`` for perceptrons, ``"trees"``, which solver ``"trees"`` implies, ``"resnet18"`` for
        images, or ``"module"`` for a torch module that every client has as code. The last two are for clients only.
    alpha
        μ of the regulariser (μ/2)‖θ‖²; None is 2/n, the papers' choice.
    max_rounds
        Maximum number of communication rounds.
    tol
        The solver's stopping tolerance.
    seed
        Seed of the initial weights of neural parties and of the rows that stochastic solvers visit.
    fit_intercept
        Whether the first active party's linear model has an intercept (which is not regularised).
    hidden
        Widths of a neural party's hidden layers.
    loss
        ``"logistic"`` for labels ±1; ``"squared"`` for regression, with real labels.
    options
        The solver's hyperparameters by name, for instance ``{"local_steps": 7}``.
    protection
        ``"none"``: messages as published. ``"masked"``: the server learns sums over parties only. ``"dealer"`` and
        ``"encrypted"``: ν is not sent to passive parties either, with the help of a third party that has no data, or by
        encryption. ``"auto"``: ``"masked"`` where it costs next to nothing, else ``"none"``.
    label_privacy
        The ε of randomised response, if labels leave their holder only as randomised responses. A mapping works too.
    """

    solver: str = "auto"
    constraints: tuple[Constraint, ...] = ()
    model: ModelName = "linear"
    alpha: float | None = None
    max_rounds: int = 1000
    tol: float = 1e-4
    seed: int = 0
    fit_intercept: bool = True
    hidden: tuple[int, ...] = (32, 16)
    loss: LossName = "logistic"
    options: Mapping[str, Any] = field(default_factory=dict)
    protection: Protection = "auto"
    label_privacy: LabelPrivacy | None = None

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise InputError(f"model is {self.model!r}; choose one of {', '.join(map(repr, MODELS))}")
        if self.solver == "trees" and self.model == "linear":
            # "linear" is the default, so solver "trees" alone is enough to choose trees.
            object.__setattr__(self, "model", "trees")
        if self.loss not in ("logistic", "squared"):
            raise InputError(f"loss is {self.loss!r}; choose 'logistic' or 'squared'")
        if self.protection not in ("auto", *PROTECTIONS):
            known = ", ".join(map(repr, ("auto", *PROTECTIONS)))
            raise InputError(f"protection is {self.protection!r}; choose one of {known}")
        object.__setattr__(self, "label_privacy", LabelPrivacy.of(self.label_privacy))
        if self.alpha is not None and not (is_number(self.alpha) and self.alpha >= 0):
            raise InputError(f"alpha is {self.alpha!r}; it must be zero or more, or None for 2/n")
        if not (is_whole(self.max_rounds) and self.max_rounds >= 1):
            raise InputError(f"max_rounds is {self.max_rounds!r}; it must be at least 1")
        if not (is_number(self.tol) and self.tol >= 0):
            raise InputError(f"tol is {self.tol!r}; it must be zero or more")
        if not all(width >= 1 for width in self.hidden):
            raise InputError(f"hidden is {self.hidden}; each layer needs at least one unit")

    def settings(self, kind: type[Options], defaults: Mapping[str, Any] | None = None) -> Options:
        """Return the solver's own options, checked.

        They are checked once for each job: all roles that are built from it share one object.

        Parameters
        ----------
        kind
            The solver's class of options.
        defaults
            Options that follow from the job's other fields, where `options` does not name them.
        """
        known: dict[type[Any], Any] = self.__dict__.setdefault("_settings", {})
        if kind not in known:
            known[kind] = check_options(self.solver, kind, {**(defaults or {}), **self.options})
        found: Options = known[kind]
        return found

    def resolved(self, solver: str, protection: Protection) -> Job:
        """Return the job with its solver and protection named; options that were checked stay so."""
        if (solver, protection) == (self.solver, self.protection):
            return self
        named = replace(self, solver=solver, protection=protection)
        named.__dict__["_settings"] = self.__dict__.setdefault("_settings", {})
        return named

    @property
    def finishes(self) -> bool:
        """Return whether the label holder fits its own part to the true labels at the end, under label privacy."""
        return self.label_privacy is not None and self.label_privacy.finish

    def regulariser(self, rows: int) -> float:
        """Return μ for n rows.

        Randomised responses vary more than labels. There 2/n is multiplied by the factor by which the variance of a
        row's derivative grows.
        """
        if self.alpha is not None:
            return self.alpha
        return 2.0 / rows * (1.0 if self.label_privacy is None else 1.0 + 4.0 * self.label_privacy.of_labels.variance)
