"""Modules and classes of 0.1.0 under their old names."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib import import_module
from typing import Any, Final

import pytest
from support.archive import ARCHIVE

from evenhand.moved import MODULES, NAMES

with zipfile.ZipFile(ARCHIVE) as _archive:
    CLASSES: Final[dict[str, list[str]]] = json.loads(_archive.read("classes.json"))

# What README and docs of 0.1.0 told users to import.
DOCUMENTED: Final = {
    "evenhand": ("EqualOpportunity", "DemographicParity", "VerticalClassifier", "HorizontalClassifier", "select"),
    "evenhand.constraints": ("Constraint", "Groups"),
    "evenhand.data": ("load", "load_sparse"),
    "evenhand.measures": ("Measure",),
    "evenhand.slices": ("Row", "Slice"),
}


def resolve(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("module", [name.removeprefix("evenhand.") for name in CLASSES])
def test_a_module_of_then_is_found(module: str) -> None:
    try:
        import_module(f"evenhand.{module}")
    except ModuleNotFoundError as error:
        pytest.fail(f"evenhand.{module} of 0.1.0 has no line in MODULES of evenhand/moved.py: {error}")


@pytest.mark.parametrize("old", MODULES)
def test_a_moved_module_has_its_classes(old: str) -> None:
    new = MODULES[old]
    try:
        import_module(f"evenhand.{new}")
    except ModuleNotFoundError as error:
        pytest.fail(f'evenhand/moved.py: "{old}": "{new}" is stale, there is no such module: {error}')
    for name in CLASSES[f"evenhand.{old}"]:
        try:
            found = resolve(f"evenhand.{old}.{name}")
        except (AttributeError, ModuleNotFoundError) as error:
            pytest.fail(
                f'evenhand/moved.py: "{old}": "{new}" does not lead to {name}; say in NAMES what "{old}.{name}" is '
                f"called now: {error}"
            )
        assert isinstance(found, type)


@pytest.mark.parametrize("old", NAMES)
def test_a_renamed_class_is_found(old: str) -> None:
    try:
        found = resolve(f"evenhand.{NAMES[old]}")
    except (AttributeError, ModuleNotFoundError) as error:
        pytest.fail(f'evenhand/moved.py: "{old}": "{NAMES[old]}" is stale: {error}')
    try:
        assert resolve(f"evenhand.{old}") is found
    except AttributeError as error:
        module = old.rpartition(".")[0]
        pytest.fail(f"evenhand.{module} does not call keep_old_names(__name__), so {old} is not found: {error}")


@pytest.mark.parametrize("module", DOCUMENTED)
def test_what_the_docs_named_can_be_imported(module: str) -> None:
    for name in DOCUMENTED[module]:
        resolve(f"{module}.{name}")


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"evenhand\.slicess"):
        import_module("evenhand.slicess")
    with pytest.raises(AttributeError, match="Rwo"):
        resolve("evenhand.slices.Rwo")
    with pytest.raises(AttributeError, match="has no attribute 'Rwo'"):
        resolve("evenhand.data.tables.Rwo")


def test_importing_evenhand_imports_nothing_of_it() -> None:
    """Nor does an old module import its new home before it is asked for a name."""
    program = """
import sys
import evenhand
assert sorted(name for name in sys.modules if name.startswith("evenhand")) == ["evenhand"]
import evenhand.slices
assert sorted(name for name in sys.modules if name.startswith("evenhand.")) == ["evenhand.moved", "evenhand.slices"]
assert evenhand.slices.Row.__module__ == "evenhand.constraints.slices"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
