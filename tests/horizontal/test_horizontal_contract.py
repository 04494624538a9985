"""Every solver of `evenhand.solvers.HORIZONTAL` keeps the contract, in every scope that it takes."""

from __future__ import annotations

import pytest
from horizontal_contract import Case, HorizontalContract

from evenhand.solvers.registry import HORIZONTAL

CASES = [Case(name, scope) for name, solver in HORIZONTAL.items() for scope in solver.scopes]


class TestEverySolver(HorizontalContract):
    @pytest.fixture(params=CASES, ids=lambda case: f"{case.solver}-{case.scope}")
    def case(self, request: pytest.FixtureRequest) -> Case:
        found: Case = request.param
        return found
