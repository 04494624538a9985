"""Label privacy of a job: ε of labels and groups, and whether the label holder ends with the true labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from evenhand.constraints.groups import Groups
from evenhand.constraints.responses import RandomisedResponse
from evenhand.errors import InputError


@dataclass(frozen=True)
class LabelPrivacy:
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
            RandomisedResponse(epsilon)
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
    def of_labels(self) -> RandomisedResponse:
        return RandomisedResponse(self.epsilon)

    def of_groups(self, groups: Groups) -> dict[str, RandomisedResponse]:
        """Return ε by attribute, if groups are randomised too."""
        return (
            {}
            if self.groups is None
            else {name: RandomisedResponse(self.groups, len(each)) for name, each in groups.items()}
        )

    @property
    def words(self) -> str:
        """Describe the privacy of messages that depend on labels."""
        groups = "groups as they are" if self.groups is None else f"of each group with ε = {self.groups:g}"
        return (
            f"With label_privacy, of randomised responses in place of labels (ε = {self.epsilon:g}), {groups}: whoever "
            "reads it learns a label no better than ε allows."
        )

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)
