"""Check a solver's options by name and value, the same way for every solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from evenhand.errors import InputError

Options = TypeVar("Options")
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
"""A finite number above zero."""
Share = Annotated[float, Field(gt=0.0, le=1.0)]
"""A number above 0 and at most 1."""
Count = Annotated[int, Field(ge=1, lt=2**63)]
"""A whole number, at least 1."""


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


def check_options(solver: str, options: type[Options], given: Mapping[str, Any]) -> Options:
    """Return the options as the solver's dataclass; refuse unknown names. The dataclass refuses wrong values."""
    known = [field.name for field in fields(options)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise InputError(f"solver {solver!r} has no option {name!r}; it has {', '.join(known)}")
    return options(**given)
