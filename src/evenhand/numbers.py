"""Tell which values are numbers in settings."""

from __future__ import annotations

import math

import numpy as np


def is_number(value: object) -> bool:
    """Return whether a setting is a finite number that fits a float; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_whole(value: object) -> bool:
    """Return whether a setting is an integer of at most 64 bits."""
    return is_number(value) and isinstance(value, (int, np.integer)) and -(2**63) <= int(value) < 2**63
