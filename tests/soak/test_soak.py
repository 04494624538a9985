"""Slow sweeps of the property tests, run by `make soak` only: the same properties on many more examples."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).resolve().parents[1]
LONG = settings(max_examples=400, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))


def neighbour(path: str) -> ModuleType:
    """Another test file as a module: its strategies and checks are used here on more examples."""
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_for_soak", TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAULTS = neighbour("runtime/test_faults.py")
SUBSPACE = neighbour("vertical/test_subspace.py")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@LONG
@given(faults=FAULTS.schedules)
def test_any_fault_schedule(faults: object) -> None:
    FAULTS.test_any_fault_schedule_gives_the_same_model_certificate_and_history.hypothesis.inner_test(faults)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@LONG
@given(SUBSPACE.awkward(), st.integers(0, 8))
def test_any_problem_and_split(awkward: object, history: int) -> None:
    check = SUBSPACE.test_any_problem_any_split_never_gets_worse_and_ends_with_a_true_certificate
    check.hypothesis.inner_test(awkward, history)
