"""Print text for people (stderr) and for programs (stdout), and check the memory limit."""

from __future__ import annotations

import sys
from typing import Final

from evenhand.errors import ResourceError
from evenhand.printing import printable

_LEAST: Final = 1_500_000_000
"""Bytes of address space. With less, DuckDB and OpenBLAS abort without an exception: with 0.65 GB all of six runs of a
job with 120 rows failed, with 1.25 GB some could not read a table, from 1.4 GB on none failed."""


def say(text: str, *, end: str = "\n") -> None:
    """Print a command's result to stdout; control characters are escaped in a terminal, not in a file or pipe."""
    print(printable(text) if sys.stdout.isatty() else text, end=end)


def remark(text: str) -> None:
    """Print a note to stderr."""
    print(printable(text), file=sys.stderr)


def check_address_space() -> None:
    """Refuse to start under a limit on address space (``ulimit -v``) that the libraries cannot work with."""
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST:
        raise ResourceError(
            f"this process may use {limit / 1e9:.2f} GB of address space (ulimit -v); loading the libraries and "
            f"reading a small table takes {_LEAST / 1e9:.1f} GB, and torch takes 3 GB"
        )
