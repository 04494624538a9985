"""Shared by all tests: `tests/` on the import path (for `support`), and hypothesis that repeats itself in CI."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = str(Path(__file__).resolve().parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

pytest.register_assert_rewrite("contract")

settings.register_profile(
    "evenhand",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("evenhand")
