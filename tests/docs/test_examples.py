"""The Python that pages show runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import people

from evenhand.data import load
from evenhand.errors import FetchError

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def run(block: str, **given: Any) -> dict[str, Any]:
    space = {"__name__": "example", **given}
    exec(compile(block, "example", "exec", dont_inherit=True), space)
    return space


@pytest.mark.slow
def test_the_readme() -> None:
    try:
        load("adult", offline=True)
    except FetchError:
        pytest.skip("Adult is not on this machine: evenhand data fetch adult")
    vertical, horizontal = blocks("README.md")
    space = run(vertical)
    assert space["model"].certificate_.converged
    assert run(horizontal, adult=space["adult"])["model"].certificate_.converged


# How close a tight bound is met on few rows is chance, and not what is asked here.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")
def test_trees() -> None:
    pytest.importorskip("lightgbm")
    tables = people(rows=400)
    bank, shop = tables["bank"][["age", "city"]], tables["shop"]
    given = {"bank": bank, "shop": shop, "X": bank.join(shop), "hospital": np.arange(400) % 3}
    given |= {"y": tables["bank"]["outcome"], "sex": tables["bank"]["sex"]}
    vertical, horizontal = blocks("docs/trees.md")
    assert run(vertical, **given)["model"].n_iter_ > 0
    assert run(horizontal, **given)["model"].n_iter_ > 0


def test_curves() -> None:
    (block,) = blocks("docs/curves.md")
    tables = people(rows=120)
    parties = {"bank": tables["bank"][["age"]], "shop": tables["shop"]}
    models = run(block)
    for name, segments in (("curves", 2), ("lines", 1), ("mixed", 1)):
        assert models[name].fit(parties, tables["bank"]["outcome"]).encoders_["bank"].width_out == segments


def test_programs() -> None:
    pytest.importorskip("torch")
    for block in blocks("docs/programs.md"):
        run(block)
