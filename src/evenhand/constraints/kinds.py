"""The constraints a model can be trained under, each a list of rows `lower ≤ a·g ≤ upper` over slice means.

Every constraint of the five papers is linear in slice means, so a constraint only has to define its rows
(`Constraint.inequalities`). `binding` binds them to labels and groups, and all solvers take them from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, TypeAlias

import numpy as np

from evenhand.constraints.groups import Groups
from evenhand.constraints.losses import Measure, MeasureName
from evenhand.constraints.slices import Inequality, Slice
from evenhand.errors import ConstraintError, InputError
from evenhand.printing import is_number, listed, quoted

Label: TypeAlias = str | int | float | bool


@dataclass(frozen=True)
class Constraint(ABC):
    """Base of all constraints. A subclass defines its rows; see `docs/add-a-constraint.md`."""

    kind: ClassVar[str]
    compares_groups: ClassVar[bool] = True

    @property
    def crosses(self) -> bool:
        """Whether combinations of all attributes' groups are compared as well."""
        return False

    @property
    def splits_patterns(self) -> bool:
        """Whether the bound holds among people of each pattern of presence, not only over all rows."""
        return False

    @property
    def level(self) -> float | None:
        """Confidence that the bound holds for new people; None bounds the training rows alone."""
        return None

    @abstractmethod
    def inequalities(self, groups: Groups) -> list[Inequality]:
        """Return the rows of this constraint when the sensitive attributes take these values."""

    def among(self, classes: tuple[Label, ...]) -> Constraint:
        """Return the constraint for labels of these classes; none means labels of ±1."""
        if classes:
            raise ConstraintError(f"constraint {self.kind} is for two labels, but there are {len(classes)} classes")
        return self


def _check_bound(name: str, value: float, measure: MeasureName) -> None:
    if not (is_number(value) and value >= 0):
        raise ConstraintError(f"{name} is {quoted(value)}; it must be a finite number, zero or more")
    if measure in ("error", "positive") and value >= 1:
        raise ConstraintError(
            f"{name} is {quoted(value)}, which no rate exceeds (measure {measure!r}); give a number below 1, or no "
            "constraint"
        )


def _check_flag(name: str, value: bool) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise ConstraintError(f"{name} is {quoted(value)}; it must be True or False")


def _check_level(confidence: float | None) -> None:
    if confidence is not None and not (is_number(confidence) and 0 < confidence < 1):
        raise ConstraintError(f"confidence is {quoted(confidence)}; give a number between 0 and 1, such as 0.95")


class _OfClasses(Constraint):
    """A constraint that bounds the rates of every class, or of one, where there are more than two labels.

    Attributes
    ----------
    of_class
        The label of that class; None is every class.
    classes
        All labels in order; a job fills them in.
    """

    of_class: Label | None
    classes: tuple[Label, ...]

    def _check_classes(self) -> None:
        if self.of_class is not None and not isinstance(self.of_class, (str, int, float, np.generic)):
            raise ConstraintError(f"of_class is {quoted(self.of_class)}; give one of the labels")
        if not isinstance(self.classes, (tuple, list)) or len(self.classes) == 1:
            raise ConstraintError(f"classes is {quoted(self.classes)}; leave it out, since a job fills it in")
        # JSON has lists in place of tuples.
        object.__setattr__(self, "classes", tuple(self.classes))

    def among(self, classes: tuple[Label, ...]) -> Constraint:
        if not classes and self.of_class is not None:
            raise ConstraintError(
                f"{self.kind}: of_class is {quoted(self.of_class)}, but there are two labels; of_class is for more"
            )
        if self.of_class is not None and _place(self.of_class, classes) is None:
            raise ConstraintError(
                f"{self.kind}: of_class is {quoted(self.of_class)}, which is none of the labels ({listed(classes)})"
            )
        return replace(self, **{"classes": classes})

    @property
    def _counted(self) -> tuple[int, ...]:
        """Indices of the classes whose rates are bounded."""
        place = None if self.of_class is None else _place(self.of_class, self.classes)
        return tuple(range(len(self.classes))) if place is None else (place,)


def _place(wanted: Label, classes: Sequence[Label]) -> int | None:
    """Return the index of a class; text equals text only."""
    same = (
        place for place, one in enumerate(classes) if one == wanted and isinstance(one, str) == isinstance(wanted, str)
    )
    return next(same, None)


@dataclass(frozen=True)
class _Parity(_OfClasses):
    """Slice means of any two groups differ by at most epsilon, for each label in `labels`.

    Attributes are compared one at a time; with `cross`, combinations of their groups (sex × race) are compared as well.
    With a `confidence` of 0.95, training also aims to prove that the difference among new people is at most epsilon, at
    95 % confidence. With ``by_presence=True`` the bound holds among the people of each pattern of presence: those whose
    rows the same other parties have (``ids="left"``).
    """

    labels: ClassVar[tuple[int | None, ...]]

    epsilon: float = 0.01
    measure: MeasureName = "loss"
    temperature: float = 0.5
    cross: bool = False
    confidence: float | None = None
    of_class: Label | None = None
    classes: tuple[Label, ...] = field(default=(), repr=False)
    by_presence: bool = False

    @property
    def crosses(self) -> bool:
        return self.cross

    @property
    def splits_patterns(self) -> bool:
        return self.by_presence

    @property
    def level(self) -> float | None:
        return self.confidence

    def __post_init__(self) -> None:
        self._check_classes()
        Measure(self.measure, self.temperature)
        _check_bound("epsilon", self.epsilon, self.measure)
        _check_level(self.confidence)
        _check_flag("cross", self.cross)
        _check_flag("by_presence", self.by_presence)

    def _means(self) -> list[tuple[int | None, str, Measure]]:
        """Return what is compared: the label of the rows, the name of its class, and the measure."""
        measure = Measure(self.measure, self.temperature)
        if not self.classes:
            return [(label, "", measure) for label in self.labels]
        by_label, rates = self.labels != (None,), self.measure == "positive"
        if not by_label and not rates:
            if self.of_class is not None:
                raise ConstraintError(
                    f"{self.kind} with measure {self.measure!r} compares rows of all classes; remove of_class, or "
                    "choose measure 'positive'"
                )
            return [(None, "", measure)]
        found: list[tuple[int | None, str, Measure]] = []
        for place in self._counted:
            name = str(self.classes[place])
            of_class = replace(measure, of_class=place, class_name=name) if rates else measure
            found.append((place, name, of_class) if by_label else (None, "", of_class))
        return found

    def inequalities(self, groups: Groups) -> list[Inequality]:
        return [
            Inequality(
                ((1.0, Slice(label, attribute, a, name)), (-1.0, Slice(label, attribute, b, name))),
                -self.epsilon,
                self.epsilon,
                measure,
            )
            for label, name, measure in self._means()
            for attribute, values in groups.items()
            for a, b in combinations(values, 2)
        ]


@dataclass(frozen=True)
class EqualOpportunity(_Parity):
    """Groups differ by at most epsilon among the positives: the papers' DEO ≤ ε with measure ``"loss"``.

    With more than two labels, `of_class` names the label that takes the place of the positive one.
    """

    kind: ClassVar[str] = "equal-opportunity"
    labels: ClassVar[tuple[int | None, ...]] = (1,)

    def among(self, classes: tuple[Label, ...]) -> Constraint:
        if classes and self.of_class is None:
            raise ConstraintError(
                f"{self.kind} compares groups among the rows of one label, and there are {len(classes)} labels "
                f"({listed(classes)}); name one in of_class, or choose equalized-odds for all of them"
            )
        return super().among(classes)


@dataclass(frozen=True)
class EqualizedOdds(_Parity):
    """Groups differ by at most epsilon among the positives and among the negatives.

    With more than two labels they do so among the rows of each label, or of `of_class`.
    """

    kind: ClassVar[str] = "equalized-odds"
    labels: ClassVar[tuple[int | None, ...]] = (1, -1)


@dataclass(frozen=True)
class LossParity(_Parity):
    """Groups' mean losses, over both labels, differ by at most epsilon."""

    kind: ClassVar[str] = "loss-parity"
    labels: ClassVar[tuple[int | None, ...]] = (None,)


@dataclass(frozen=True)
class DemographicParity(_Parity):
    """Groups' (smooth) selection rates differ by at most epsilon.

    With more than two labels, these are the rates at which each label is predicted, or at which `of_class` is.
    """

    kind: ClassVar[str] = "demographic-parity"
    labels: ClassVar[tuple[int | None, ...]] = (None,)

    measure: MeasureName = "positive"


@dataclass(frozen=True)
class GroupAgainstOverall(_Parity):
    """Each group's mean differs from the mean over everybody by at most epsilon (as in FPFL)."""

    kind: ClassVar[str] = "group-against-overall"
    labels: ClassVar[tuple[int | None, ...]] = (None,)

    def inequalities(self, groups: Groups) -> list[Inequality]:
        return [
            Inequality(
                ((1.0, Slice()), (-1.0, Slice(None, attribute, value))),
                -self.epsilon,
                self.epsilon,
                measure,
            )
            for _, _, measure in self._means()
            for attribute, values in groups.items()
            for value in values
        ]


@dataclass(frozen=True)
class MeanPredictionParity(_Parity):
    """Groups' mean predictions differ by at most epsilon, in the unit of the target: for targets that are numbers."""

    kind: ClassVar[str] = "mean-prediction-parity"
    labels: ClassVar[tuple[int | None, ...]] = (None,)

    measure: MeasureName = "prediction"


@dataclass(frozen=True)
class BoundedGroupLoss(Constraint):
    """The mean loss of each group is at most `limit` (Agarwal, Dudík and Wu, "Fair regression", 2019).

    With ``cross``, combinations of the attributes' groups are bounded as well. With a `confidence`, training also aims
    to prove the bound for new people.
    """

    kind: ClassVar[str] = "bounded-group-loss"

    limit: float = 1.0
    measure: MeasureName = "loss"
    temperature: float = 0.5
    cross: bool = False
    confidence: float | None = None
    by_presence: bool = False

    @property
    def crosses(self) -> bool:
        return self.cross

    @property
    def splits_patterns(self) -> bool:
        return self.by_presence

    @property
    def level(self) -> float | None:
        return self.confidence

    def __post_init__(self) -> None:
        Measure(self.measure, self.temperature)
        _check_bound("limit", self.limit, self.measure)
        _check_level(self.confidence)
        _check_flag("cross", self.cross)
        _check_flag("by_presence", self.by_presence)

    def inequalities(self, groups: Groups) -> list[Inequality]:
        measure = Measure(self.measure, self.temperature)
        return [
            Inequality(((1.0, Slice(None, attribute, value)),), -np.inf, self.limit, measure)
            for attribute, values in groups.items()
            for value in values
        ]


@dataclass(frozen=True)
class NeymanPearson(_OfClasses):
    """The mean over one class is at most `limit`: over `label`, or over `of_class` of more than two labels.

    The objective stays the mean loss over both classes. With one inequality over all rows that is active, the bounded
    class adds a constant, and the minimiser is that of the other class's loss. With an inequality at each client, or
    one that is not active, it is another: `prox-al` and `sqp` minimise the other class's loss with
    ``objective="other-class"`` (proximal AL Eq. 30).
    """

    kind: ClassVar[str] = "neyman-pearson"
    compares_groups: ClassVar[bool] = False

    limit: float = 0.1
    label: int = 1
    measure: MeasureName = "loss"
    temperature: float = 0.5
    confidence: float | None = None
    of_class: Label | None = None
    classes: tuple[Label, ...] = field(default=(), repr=False)
    by_presence: bool = False

    @property
    def splits_patterns(self) -> bool:
        return self.by_presence

    @property
    def level(self) -> float | None:
        return self.confidence

    def __post_init__(self) -> None:
        self._check_classes()
        Measure(self.measure, self.temperature)
        _check_bound("limit", self.limit, self.measure)
        _check_level(self.confidence)
        _check_flag("by_presence", self.by_presence)
        if not (is_number(self.label) and self.label in (-1, 1)):
            raise ConstraintError(f"label is {quoted(self.label)}; it must be 1 (the positive class) or -1")

    def inequalities(self, groups: Groups) -> list[Inequality]:
        measure = Measure(self.measure, self.temperature)
        if not self.classes:
            return [Inequality(((1.0, Slice(self.label)),), -np.inf, self.limit, measure)]
        found = []
        for place in self._counted:
            name = str(self.classes[place])
            own = replace(measure, of_class=place, class_name=name) if self.measure == "positive" else measure
            found.append(Inequality(((1.0, Slice(place, class_name=name)),), -np.inf, self.limit, own))
        return found

    def among(self, classes: tuple[Label, ...]) -> Constraint:
        if classes and self.of_class is None:
            raise ConstraintError(
                f"{self.kind} bounds one label, and there are {len(classes)} ({listed(classes)}); name it in of_class"
            )
        return super().among(classes)


Constraints: TypeAlias = Constraint | Iterable[Constraint] | None
KINDS: dict[str, type[Constraint]] = {
    kind.kind: kind
    for kind in (
        EqualOpportunity,
        EqualizedOdds,
        LossParity,
        DemographicParity,
        GroupAgainstOverall,
        MeanPredictionParity,
        BoundedGroupLoss,
        NeymanPearson,
    )
}


def register(kind: type[Constraint]) -> type[Constraint]:
    """Add a kind of constraint of your own, so that terms and job files can name it; usable as a decorator.

    Every participant's process must register it: terms carry its name and its fields, not its code.
    """
    name = getattr(kind, "kind", None)
    if not isinstance(name, str) or not name:
        raise ConstraintError(f"{kind.__name__} has no kind; give the class a name of its own in `kind`")
    known = KINDS.get(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConstraintError(f"there is a constraint of kind {name!r} already; choose another name")
    KINDS[name] = kind
    return kind


def as_list(constraints: Constraints) -> list[Constraint]:
    if constraints is None:
        return []
    wanted: list[Any] = [constraints]
    if isinstance(constraints, Iterable) and not isinstance(constraints, (str, type)):
        # An array without dimensions is Iterable by type, but cannot be iterated over.
        with suppress(TypeError):
            wanted = list(constraints)
    for constraint in wanted:
        if not isinstance(constraint, Constraint):
            raise ConstraintError(
                f"{quoted(constraint)} is not a constraint; use for example evenhand.EqualOpportunity(epsilon=0.01)"
            )
    return wanted


def moved(constraints: Sequence[Constraint], vary: str | None = None) -> int | None:
    """Return the place of the one constraint whose ε a frontier changes; None if none has an ε.

    Parameters
    ----------
    vary
        Kind of the constraint; None takes the first that has an ε. The others keep their bounds.
    """
    places = [place for place, one in enumerate(constraints) if hasattr(one, "epsilon")]
    if vary is None:
        return places[0] if places else None
    if not (found := [place for place in places if constraints[place].kind == vary]):
        kinds = ", ".join(repr(constraints[place].kind) for place in places) or "none"
        raise InputError(f"vary is {quoted(vary)}, which is no constraint with an epsilon here; there is {kinds}")
    return found[0]
