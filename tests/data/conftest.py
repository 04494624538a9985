"""Fixtures: the real public sets, the package registry, and an environment without the user's settings."""

from __future__ import annotations

import pytest
from support.public_sets import load_set, plain_environment, registry
from support.sources import FOLDER

__all__ = ["load_set", "plain_environment", "registry"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no local copy, the tests on real data need the registry."""
    for item in items:
        if FOLDER is None and "load_set" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.registry)
