"""Shared by all tests: `tests/` on the import path (for `support`), PostgreSQL, hypothesis that repeats itself.

Where torch is not installed, tests that turn out to need it are skipped: it is an extra, and the rest must do without.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from evenhand.errors import MissingExtraError

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


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    """As every run of evenhand's has it (`training/run.py`): what is the same to the bit is so with one thread."""
    with threadpool_limits(1, user_api="blas"):
        yield


NO_TORCH = "needs torch, which is not installed"

if find_spec("torch") is None:

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport]:
        report = yield
        if report.failed and "No module named 'torch'" in str(report.longrepr):
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, NO_TORCH)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call() -> Generator[None]:
        try:
            return (yield)
        except MissingExtraError as error:
            if "evenhand[torch]" in str(error):
                pytest.skip(NO_TORCH)
            raise


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
