"""Every solver of `evenhand.solvers.VERTICAL` keeps the contract."""

from __future__ import annotations

import pytest
from contract import SolverContract

from evenhand.solvers.registry import VERTICAL


class TestEverySolver(SolverContract):
    @pytest.fixture(params=VERTICAL)
    def solver(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
