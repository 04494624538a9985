"""Checks on an encoder's state: it is read only if an encoder could have written it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.errors import DataError


def from_json(content: bytes) -> Any:
    """Read plain values from JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not the state of an encoder: it cannot be read as JSON ({error})") from error


def require(holds: Any, where: str, what: str) -> None:
    """Refuse the state unless a condition holds."""
    if not holds:
        raise DataError(f"this is not the state of an encoder: {where} is not {what}")


def require_keys(state: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    """Refuse a table that has other keys than these."""
    require(set(state) == set(keys), where, f"made of {', '.join(keys)}")


def number_from_state(value: Any, where: str, *, positive: bool = False) -> float:
    """Read a finite number."""
    require(type(value) in (int, float), where, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    valid = number == value and math.isfinite(number) and (number > 0.0 or not positive)
    require(valid, where, "above 0" if positive else "finite")
    return number


def is_text(value: Any) -> bool:
    """Tell whether a value is text that can be written: JSON can hold half of a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
