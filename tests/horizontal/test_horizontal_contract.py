"""Every solver of `evenhand.horizontal.solvers` keeps the contract."""

from __future__ import annotations

import pytest
from horizontal_contract import HorizontalContract

from evenhand.horizontal.solvers import SOLVERS


class TestEverySolver(HorizontalContract):
    @pytest.fixture(params=SOLVERS)
    def solver(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
