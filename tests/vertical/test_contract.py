"""Every solver of `evenhand.vertical.solvers` keeps the contract."""

from __future__ import annotations

import pytest
from contract import SolverContract

from evenhand.vertical.solvers import SOLVERS


class TestEverySolver(SolverContract):
    @pytest.fixture(params=SOLVERS)
    def solver(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
