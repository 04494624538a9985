"""Shared by all tests: `tests/` on the import path (for `support`), PostgreSQL, hypothesis that repeats itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = str(Path(__file__).resolve().parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

pytest.register_assert_rewrite("contract", "horizontal_contract")

settings.register_profile(
    "evenhand",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("evenhand")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of a running PostgreSQL server, password included."""
    from support.postgres import PostgresUnavailable, postgres_server

    try:
        server = postgres_server()
        url = server.__enter__()
    except PostgresUnavailable as error:
        pytest.skip(f"no PostgreSQL server can be started: {error}")
    try:
        yield url
    finally:
        server.__exit__(None, None, None)
