"""Memory that is no longer used, back to the operating system."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """Have the C library hand on what was freed and it keeps for later, where it has a word for that (glibc).

    It keeps arrays of up to 32 MB. Between reading a table and training on it, those are many, and none is used again.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
