"""Solvers whose answers are masked keep the contract of all solvers; nothing in it knows of masks."""

from __future__ import annotations

import numpy as np
import pytest
from horizontal_contract import Case, HorizontalContract

pytest.importorskip("nacl")
CASES = [Case(name, protection="masked") for name in ("sqp",)]


@pytest.fixture(autouse=True)
def _same_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are compared to the bit, messages too: masks must be the same ones."""
    monkeypatch.setattr("evenhand.privacy.key_exchange.new_secret", lambda: bytes(range(32)))


class TestMaskedSolvers(HorizontalContract):
    @pytest.fixture(params=CASES, ids=lambda case: case.solver)
    def case(self, request: pytest.FixtureRequest) -> Case:
        found: Case = request.param
        return found

    def test_another_seed_is_another_run_where_anything_is_drawn(self, case: Case) -> None:
        """Two of three at a time: one alone has no sum to hide in."""
        options = {"participation": 0.7} if case.has_option("participation") else {}
        one, other = (case.train(case.job(seed=seed, options=options)) for seed in (1, 2))
        assert np.array_equal(one.weights, other.weights) == (not options)
