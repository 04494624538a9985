"""Parameters of objects inside an estimator as its own, so that a grid can name them: ``constraint__epsilon``."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

from sklearn.base import BaseEstimator

from evenhand.errors import InputError


class NestedParameters(BaseEstimator):  # type: ignore[misc]
    """An estimator with objects as parameters (constraint, solver, label privacy), which are dataclasses.

    ``get_params`` lists their fields and ``set_params`` changes them, as ``solver__history`` for instance.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = super().get_params(deep)
        if deep:
            for name, value in list(found.items()):
                if _is_object(value):
                    found |= {f"{name}__{one.name}": getattr(value, one.name) for one in fields(value)}
        return found

    def set_params(self, **params: Any) -> Self:
        own = super().get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        plain = {}
        for key, value in params.items():
            name, _, field = key.partition("__")
            if field and name in own:
                nested.setdefault(name, {})[field] = value
            else:
                plain[key] = value
        super().set_params(**plain)
        for name, changed in nested.items():
            setattr(self, name, _replaced(name, getattr(self, name), changed))
        return self


def _is_object(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _replaced(name: str, value: Any, changed: dict[str, Any]) -> Any:
    if not _is_object(value):
        raise InputError(
            f"{name}__{next(iter(changed))} needs one object as {name}, such as EqualOpportunity() or Subspace(); "
            f"it is {value!r}"
        )
    known = [one.name for one in fields(value)]
    for field in changed:
        if field not in known:
            raise InputError(f"{type(value).__name__} has no parameter {field!r}; it has {', '.join(known)}")
    return replace(value, **changed)
