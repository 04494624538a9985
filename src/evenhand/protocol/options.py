"""Check a solver's options by name and value, the same way for every solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from evenhand.errors import InputError

Options = TypeVar("Options")


def check_options(solver: str, options: type[Options], given: Mapping[str, Any]) -> Options:
    """Return the options as the solver's dataclass; refuse unknown names. The dataclass refuses wrong values."""
    known = [field.name for field in fields(options)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise InputError(f"solver {solver!r} has no option {name!r}; it has {', '.join(known)}")
    return options(**given)
