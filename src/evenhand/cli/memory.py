"""Too little memory, told before libraries are loaded that would crash for want of it."""

from __future__ import annotations

import sys
from typing import Final

from evenhand.errors import ResourceError

_LEAST: Final = 1_500_000_000
"""Bytes of address space. With less, DuckDB and OpenBLAS abort or crash where no exception reaches us: at 0.65 GB each
of six runs of a job with 120 rows did, at 1.25 GB some could not read a table, from 1.4 GB on none failed."""


def check_address_space() -> None:
    """Refuse to begin under a limit on address space (``ulimit -v``) that the libraries cannot work in."""
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST:
        raise ResourceError(
            f"this process may use {limit / 1e9:.2f} GB of address space (ulimit -v); loading the libraries and "
            f"reading a small table takes {_LEAST / 1e9:.1f} GB, and torch, where a job needs it, 3 GB"
        )
