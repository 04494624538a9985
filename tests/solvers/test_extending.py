"""The pages about adding a constraint and a solver do what they say: their code is run as it is written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.constraints import KINDS, register
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.errors import ConstraintError, InputError
from evenhand.solvers import HORIZONTAL, VERTICAL
from evenhand.solvers import register as register_solver

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    lists: list[dict[str, Any]] = [KINDS, VERTICAL, HORIZONTAL]
    kept = [dict(one) for one in lists]
    yield
    for one, before in zip(lists, kept, strict=True):
        one.clear()
        one.update(before)


@pytest.mark.parametrize("page", ["add-a-constraint.md", "add-a-solver.md"])
def test_a_page_does_what_it_says(page: str) -> None:
    pytest.importorskip("torch")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {"__name__": __name__}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, block in enumerate(blocks):
            exec(compile(block, f"{page}, block {number + 1}", "exec", dont_inherit=True), names)
    if "WorstGroup" in names:
        rows = names["WorstGroup"](0.4).inequalities({"sex": ["female", "male"]})
        assert [(row.lower, row.upper) for row in rows] == [(float("-inf"), 0.4)] * 2


def test_a_name_is_not_taken_twice() -> None:
    with pytest.raises(ConstraintError, match="'equal-opportunity' already"):
        register(type("Mine", (EqualOpportunity,), {"__module__": "mine"}))
    with pytest.raises(InputError, match="vertical solver 'subspace' already"):
        register_solver(type(VERTICAL["subspace"])(**{**vars(VERTICAL["subspace"]), "exact": False}))
