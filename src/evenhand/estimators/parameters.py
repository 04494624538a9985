"""Parameters of a constraint as an estimator's own, so that a grid can name them: ``constraint__epsilon``."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any, Final, Self

from sklearn.base import BaseEstimator

from evenhand.constraints.kinds import Constraint
from evenhand.errors import InputError

_PREFIX: Final = "constraint__"


class WithConstraintParameters(BaseEstimator):  # type: ignore[misc]
    """An estimator with a `constraint`, whose settings can be read and changed by name."""

    constraint: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.constraint, Constraint):
            found |= {f"{_PREFIX}{name}": value for name, value in asdict(self.constraint).items()}
        return found

    def set_params(self, **params: Any) -> Self:
        own = {name: value for name, value in params.items() if not name.startswith(_PREFIX)}
        super().set_params(**own)
        changed = {name.removeprefix(_PREFIX): value for name, value in params.items() if name not in own}
        if changed:
            self.constraint = _replaced(self.constraint, changed)
        return self


def _replaced(constraint: Any, changed: dict[str, Any]) -> Constraint:
    if not isinstance(constraint, Constraint):
        raise InputError(
            f"{_PREFIX}{next(iter(changed))} needs an estimator with one constraint, such as EqualOpportunity()"
        )
    known = [field.name for field in fields(constraint)]
    for name in changed:
        if name not in known:
            raise InputError(f"{constraint.kind} has no setting {name!r}; it has {', '.join(known)}")
    return replace(constraint, **changed)
