"""A job: what to train, under which constraints, with which solver and which label privacy. It contains no data."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args, get_type_hints

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from evenhand.constraints.families import POWER, LossName, find_loss
from evenhand.constraints.groups import Groups
from evenhand.constraints.kinds import Constraint, Label
from evenhand.constraints.losses import SOFTMAX, Loss
from evenhand.constraints.responses import ResponseMechanism
from evenhand.constraints.thresholds import ANY_SHARE, Band, Threshold, fixed_cut
from evenhand.errors import InputError
from evenhand.printing import is_number, is_whole, near


@dataclass(frozen=True)
class RandomizedResponse:
    """Labels leave their holder only as randomised responses.

    Parameters
    ----------
    epsilon
        ε of each person's label: no message is more than e^ε times as likely with one label as with the other.
    groups
        ε of each sensitive attribute. None uses true groups; a constraint that compares them then reveals them to the
        receivers of ν.
    finish
        Whether the label holder fits its own weights to the true labels and groups at the end, so that constraints hold
        on them. Its part never leaves it; without this step the whole model is private.
    """

    epsilon: float
    groups: float | None = None
    finish: bool = False

    def __post_init__(self) -> None:
        for epsilon in (self.epsilon, *(() if self.groups is None else (self.groups,))):
            ResponseMechanism(epsilon)
        if not isinstance(self.finish, bool):
            raise InputError(f"label_privacy: finish is {self.finish!r}; it is True or False")

    @classmethod
    def of(cls, given: Any) -> Self | None:
        """Return label privacy from a mapping, an instance, or None."""
        if given is None or isinstance(given, cls):
            return given
        known = [one.name for one in fields(cls)]
        if not isinstance(given, Mapping) or "epsilon" not in given or not set(given) <= set(known):
            raise InputError(f"label_privacy is {given!r}; give {{'epsilon': 1.0}}, and no others than {known}")
        return cls(**given)

    @property
    def of_labels(self) -> ResponseMechanism:
        return ResponseMechanism(self.epsilon)

    def of_groups(self, groups: Groups) -> dict[str, ResponseMechanism]:
        """Return ε by attribute, if groups are randomised too."""
        return (
            {}
            if self.groups is None
            else {name: ResponseMechanism(self.groups, len(each)) for name, each in groups.items()}
        )

    @property
    def words(self) -> str:
        """Describe the privacy of messages that depend on labels."""
        groups = "groups as they are" if self.groups is None else f"of each group with ε = {self.groups:g}"
        return (
            f"With label_privacy, of randomised responses in place of labels (ε = {self.epsilon:g}), {groups}: a "
            "reader learns a label no better than ε allows."
        )

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


SEARCHES: Final = 2
"""Trainings that look for the cut that a rule chooses, where constraints bound rates at it."""
Options = TypeVar("Options")
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
"""A finite number above zero."""
NotNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
"""A finite number, zero or more."""
Share = Annotated[float, Field(gt=0.0, le=1.0)]
"""A number above 0 and at most 1."""
Count = Annotated[int, Field(ge=1, lt=2**63)]
"""A whole number, at least 1."""
Whole = Annotated[int, Field(ge=0, lt=2**63)]
"""A whole number, zero or more."""


class CheckedOptions:
    """Base of a solver's options: a dataclass that checks each field against its annotation."""

    def __post_init__(self) -> None:
        for name, annotated in _adapters(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            try:
                annotated.validate_python(value.item() if isinstance(value, np.generic) else value, strict=True)
            except ValidationError as error:
                wrong = " or ".join(one["msg"] for one in error.errors()).replace(" or Input should be", " or")
                raise InputError(f"{name} is {value!r}; {wrong.replace('Input should', 'it must')}") from None


@cache
def _adapters(options: type[Any]) -> dict[str, TypeAdapter[Any]]:
    """Return what checks each field, by name; it is made once for each class."""
    kinds = get_type_hints(options, include_extras=True)
    return {field.name: TypeAdapter(kinds[field.name]) for field in fields(options)}


def check_options(owner: str, options: type[Options], given: Mapping[str, Any]) -> Options:
    """Return the options as a dataclass; refuse unknown names. The dataclass refuses wrong values."""
    check_option_names(owner, options, given)
    return options(**given)


def check_option_names(owner: str, options: type[Any], given: Mapping[str, Any]) -> None:
    """Refuse names that are no fields of a dataclass."""
    known = [field.name for field in fields(options)]
    for name in given:
        if name not in known:
            raise InputError(f"{owner} has no option {name!r}{near(name, known)}")


ModelName = Literal["linear", "mlp", "trees", "resnet18", "module", "own"]
"""Models; ``"module"`` is a torch module that every participant has as code, ``"own"`` each party's own choice."""
MODELS: Final[tuple[ModelName, ...]] = get_args(ModelName)
RuntimeName = Literal["auto", "messages", "interleaved", "threads"]
Protection = Literal["auto", "none", "masked", "dealer", "encrypted"]
PROTECTIONS: Final[tuple[Protection, ...]] = ("none", "masked", "dealer", "encrypted")
"""Protection levels, weakest first; ``"auto"`` is the solver's choice."""
MissingParty = Literal["refuse", "absent"]
"""Whether a model scores rows that a party lacks, or without a party that is away."""
LostParty = Literal["end", "continue"]
"""What a run does when a party is gone for good in the middle of training."""
Weights = Literal["shared", "party"]
"""Who holds a passive party's weights where they were trained in shares: nobody alone, or the party."""
PARTY_WEIGHTS: Final = 'weights = "party"'
EXPERIMENTAL: Final[Mapping[str, str]] = {
    PARTY_WEIGHTS: (
        "a party's own weights tell it what any model tells of its labels, and two runs that differ by one person tell "
        "that person's label"
    ),
}
"""What needs ``allow_experimental``, and the known attack on it. An entry goes when its attack fails."""


def check_experimental(name: str, what: str, allowed: bool, how: str) -> None:
    """Refuse a protection with a known successful attack, unless the user has allowed it.

    Parameters
    ----------
    name
        Key of `EXPERIMENTAL`; other names pass.
    what
        How the error names it.
    how
        How to allow it.
    """
    if name in EXPERIMENTAL and not allowed:
        raise InputError(f"{what} is experimental: {EXPERIMENTAL[name]}. To use it all the same, {how}")


def _class_weight(given: Any, count: int) -> Literal["balanced"] | tuple[float, ...] | None:
    """Return a weight for each class, the negative one of two first; JSON has lists in place of tuples."""
    if given is None or given == "balanced":
        return given
    if isinstance(given, (list, tuple)) and len(given) == count and all(is_number(one) and one > 0 for one in given):
        return tuple(float(one) for one in given)
    each = "two positive numbers for the negative and positive class" if count == 2 else f"{count} positive numbers"
    raise InputError(f"class_weight is {given!r}; give 'balanced', or {each}")


def _classes(given: Any) -> tuple[Label, ...]:
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, (str, int, float)) for one in given):
        raise InputError(f"classes is {given!r}; give all labels as text or numbers")
    if len(given) == 1 or len(set(given)) < len(given):
        raise InputError(f"classes is {given!r}; give each label once, and at least two")
    return tuple(given)


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
        images, or ``"module"`` for a torch module that every client has as code; these two are for clients only.
        ``"own"``, which solver ``"learners"`` implies: each party has a model of its own choice.
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
        ``"logistic"`` for labels ±1. For numbers ``"squared"``; ``"poisson"`` for counts, ``"gamma"`` for amounts
        above zero and ``"tweedie"`` for amounts with zeros, all three with predictions exp(score).
    power
        p of ``"tweedie"``: the variance of a target with mean μ is proportional to μᵖ.
    options
        The solver's hyperparameters by name, for instance ``{"local_steps": 7}``.
    protection
        ``"none"``: messages as published. ``"masked"``: during training the server receives sums over parties only.
        ``"dealer"`` and ``"encrypted"``: passive parties do not receive ν either, with the help of a third party that
        has no data, or by encryption. ``"auto"``: ``"masked"`` where it costs next to nothing, else ``"none"``.
    weights
        With ``"dealer"`` and ``"encrypted"``. ``"shared"``: a passive party and the server each keep a share of its
        weights, and prediction is an exchange between all participants. ``"party"``: each party gets its own weights.
    allow_experimental
        Whether the job may use what `EXPERIMENTAL` lists, which is known to break.
    label_privacy
        The ε of randomised response, if labels leave their holder only as randomised responses. A mapping works too.
    least_summed
        Across clients with masks: the fewest clients in every sum that the server can form from all it learns,
        differences of sums included. 1 accepts clients that drop out: a server that repeats a question without such a
        client learns its answer.
    cut
        Score above which a row is decided positive. Constraints bound rates of decisions at it.
    class_weight
        How much a row of the negative and of the positive class weighs in the mean loss; ``"balanced"`` gives both
        classes the same total. Constraints and rates count people, and are not weighted. None weighs all rows alike.
        With `classes` it has a number for each of them.
    classes
        The labels in order, where there are more than two: labels of rows are then their places, and a model has a
        score for each. Empty for labels of ±1.
    rule
        The rule that chooses the cut, where it is not given as a number. A mapping works too.
    closed
        The constraint on rates that cuts by group meet after training, rather than training. A mapping with its kind
        works too.
    cut_by
        The sensitive attribute with a cut for each group; empty for one cut.
    group_cuts
        These cuts across clients, in the order of the groups, once they are chosen.
    band
        Bounds of the share of rows above the cut: a search for the cut has found them.
    missing_party
        Across columns, whether a model scores rows that a party lacks, or without a party that is away:
        ``"refuse"``, or ``"absent"``, where the party adds the number that it has learned for rows that it lacks.
    lost_party
        Across columns and between organisations, what a run does when a party is gone for good in the middle of
        training: ``"end"``, or ``"continue"`` with a model without that party.
    step
        Number of this training, or choice of a cut, in a run that has several. It changes the digest of the terms, so
        that no mask is used twice.
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
    power: float = POWER
    options: Mapping[str, Any] = field(default_factory=dict)
    protection: Protection = "auto"
    label_privacy: RandomizedResponse | None = None
    weights: Weights = "shared"
    allow_experimental: bool = False
    least_summed: int = 2
    cut: float = 0.0
    class_weight: Literal["balanced"] | tuple[float, ...] | None = None
    classes: tuple[Label, ...] = ()
    rule: Threshold | None = None
    closed: Constraint | None = None
    cut_by: str = ""
    group_cuts: tuple[float, ...] = ()
    band: Band = ANY_SHARE
    missing_party: MissingParty = "refuse"
    lost_party: LostParty = "end"
    step: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise InputError(f"model is {self.model!r}; choose one of {', '.join(map(repr, MODELS))}")
        if self.solver == "trees" and self.model == "linear":
            # "linear" is the default, so solver "trees" alone is enough to choose trees.
            object.__setattr__(self, "model", "trees")
        if self.solver == "learners" and self.model == "linear":
            object.__setattr__(self, "model", "own")
        find_loss(self.loss, self.power)
        if self.protection not in ("auto", *PROTECTIONS):
            known = ", ".join(map(repr, ("auto", *PROTECTIONS)))
            raise InputError(f"protection is {self.protection!r}; choose one of {known}")
        if self.missing_party not in get_args(MissingParty):
            raise InputError(f"missing_party is {self.missing_party!r}; choose 'refuse' or 'absent'")
        if self.lost_party not in get_args(LostParty):
            raise InputError(f"lost_party is {self.lost_party!r}; choose 'end' or 'continue'")
        if self.weights not in get_args(Weights):
            raise InputError(f"weights is {self.weights!r}; choose 'shared' or 'party'")
        if self.weights == "party" and self.protection not in ("dealer", "encrypted"):
            raise InputError(
                f"weights = 'party' is for protection 'dealer' and 'encrypted'; with {self.protection!r} parties have "
                "their weights anyway, so leave it out"
            )
        how = f"set allow_experimental = true in [job], or give {self.protection.title()}(allow_experimental=True)"
        for name, what in self._breakable.items():
            check_experimental(name, what, self.allow_experimental, how)
        object.__setattr__(self, "label_privacy", RandomizedResponse.of(self.label_privacy))
        if not (is_whole(self.least_summed) and self.least_summed >= 1):
            raise InputError(f"least_summed is {self.least_summed!r}; it must be a whole number, at least 1")
        if self.alpha is not None and not (is_number(self.alpha) and self.alpha >= 0):
            raise InputError(f"alpha is {self.alpha!r}; it must be zero or more, or None for 2/n")
        if not (is_whole(self.max_rounds) and self.max_rounds >= 1):
            raise InputError(f"max_rounds is {self.max_rounds!r}; it must be at least 1")
        if not (is_number(self.tol) and self.tol >= 0):
            raise InputError(f"tol is {self.tol!r}; it must be zero or more")
        if not is_number(self.cut):
            raise InputError(f"cut is {self.cut!r}; it must be a finite number, the score to decide at")
        object.__setattr__(self, "classes", _classes(self.classes))
        object.__setattr__(self, "class_weight", _class_weight(self.class_weight, max(2, len(self.classes))))
        object.__setattr__(self, "constraints", tuple(one.among(self.classes) for one in self.constraints))
        rule: Any = self.rule
        if isinstance(rule, Mapping):
            object.__setattr__(self, "rule", Threshold(**rule))
        if self.rule is not None:
            object.__setattr__(self, "cut", self.cut or fixed_cut(self.rule))
            self._check_rule(self.rule)
        if not all(width >= 1 for width in self.hidden):
            raise InputError(f"hidden is {self.hidden}; each layer needs at least one unit")

    def _check_rule(self, rule: Threshold) -> None:
        if self.cut_by and self.label_privacy is not None:
            raise InputError("threshold_by needs true labels of groups, without label_privacy; remove one of them")
        if self.label_privacy is not None and self.searches and rule.rule != "rate":
            raise InputError(
                f"threshold {rule.rule!r} with label_privacy: constraints bound rates at the cut, so it would depend "
                "on true labels and shape what other parties receive; choose 'rate', or give a number"
            )

    @property
    def asked(self) -> tuple[Constraint, ...]:
        """All constraints: those of training, and the one that cuts by group meet."""
        return self.constraints if self.closed is None else (*self.constraints, self.closed)

    @property
    def searches(self) -> int:
        """How often the model is trained to find the cut, before the training that counts.

        Rates depend on the cut, and a cut that a rule chooses depends on the model.
        """
        # Measures are known before groups are: a kind of constraint of one's own may have any.
        bounded = any(getattr(one, "measure", "") != "loss" for one in self.constraints)
        return SEARCHES if self.rule is not None and bounded else 0

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
            known[kind] = check_options(f"solver {self.solver!r}", kind, {**(defaults or {}), **self.options})
        found: Options = known[kind]
        return found

    def resolved(self, **named: Any) -> Job:
        """Return the job with fields that were left open, such as the solver; nothing is checked twice."""
        if all(getattr(self, name) == value for name, value in named.items()):
            return self
        found = copy(self)
        found.__dict__.update(named)
        if not named.keys() <= {"solver", "protection"}:
            # Options may follow from the other fields.
            found.__dict__.pop("_settings", None)
        return found

    @property
    def loss_function(self) -> Loss:
        """The loss with this name and power; with more than two classes the logistic loss is the softmax loss."""
        return SOFTMAX if self.classes else find_loss(self.loss, self.power)

    @property
    def _breakable(self) -> dict[str, str]:
        """What the job uses that `EXPERIMENTAL` may list, and how errors call it."""
        own = {PARTY_WEIGHTS: PARTY_WEIGHTS} if self.weights == "party" else {}
        return {self.protection: f"protection {self.protection!r}", **own}

    @property
    def experimental(self) -> str | None:
        """Return what of this job a known attack breaks, and the attack; None if nothing."""
        broken = (
            f"{what} is experimental: {EXPERIMENTAL[name]}"
            for name, what in self._breakable.items()
            if name in EXPERIMENTAL
        )
        return next(broken, None)

    @property
    def described_protection(self) -> str:
        """Return the level, who holds the weights, and what breaks it if that is known."""
        kept = f", {PARTY_WEIGHTS}" if self.weights == "party" else ""
        return f"{self.protection}{kept}" + (f" ({self.experimental})" if self.experimental else "")

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
