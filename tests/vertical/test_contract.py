"""Every solver of `evenhand.solvers.VERTICAL` keeps the contract."""

from __future__ import annotations

import pytest
from contract import SolverContract

from evenhand.solvers.registry import VERTICAL

# These differ from vfb2-sgd, vfb2-saga and afsvrg-vp in one option of the same roles, so `make soak` runs them.
VARIANTS = ("afsgd-vp", "afsaga-vp")
LISTED = [pytest.param(name, marks=pytest.mark.soak if name in VARIANTS else ()) for name in VERTICAL]


class TestEverySolver(SolverContract):
    @pytest.fixture(params=LISTED)
    def solver(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
