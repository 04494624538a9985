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
    OFFERED: Final[dict[str, list[str]]] = json.loads(_archive.read("names.json"))

# What README and docs of 0.1.0 told users to import.
DOCUMENTED: Final = {
    "evenhand": ("EqualOpportunity", "DemographicParity", "VerticalClassifier", "HorizontalClassifier", "select"),
    "evenhand.constraints": ("Constraint", "Groups"),
    "evenhand.data": ("load", "load_sparse"),
    "evenhand.measures": ("Measure",),
    "evenhand.slices": ("Row", "Slice"),
}

# Packages of 0.1.0 that said what they offer, and those that have taken over the name of one of its modules.
PACKAGES: Final = {
    *("programs", "metrics", "central", "cli", "data", "reproductions", "estimators"),
    *("constraints", "vertical.subspace", "horizontal.averaging", "horizontal.sqp", "horizontal.prox_al"),
    *("data.tables", "data.images"),
}
# Classes that only ever lived while a run did, so that nobody has saved one: what was in them is done otherwise now.
GONE: Final = {
    "vertical.vfb2.looks.LookingParty",
    "horizontal.prox_al.ProxALRoles",
    "horizontal.sqp.SQPRoles",
    "training.client_programs.ClientPrograms",
}


def skip_without_torch(error: Exception) -> None:
    """Torch is an extra: whoever lacks it cannot be led to what is made of it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        pytest.skip("needs torch, which is not installed")


def resolve(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("old", [name.removeprefix("evenhand.") for name in OFFERED])
def test_a_module_of_then_is_found_and_has_what_it_offered(old: str) -> None:
    try:
        module = import_module(f"evenhand.{old}")
    except ModuleNotFoundError as error:
        skip_without_torch(error)
        pytest.fail(f"evenhand.{old} of 0.1.0 has no line in MODULES of evenhand/moved.py: {error}")
    if old in MODULES:
        try:
            import_module(f"evenhand.{MODULES[old]}")
        except ModuleNotFoundError as error:
            skip_without_torch(error)
            pytest.fail(f'evenhand/moved.py: "{old}": "{MODULES[old]}" is stale, there is no such module: {error}')
    for name in OFFERED[f"evenhand.{old}"]:
        if (old in MODULES or old in PACKAGES) and f"{old}.{name}" not in GONE:
            try:
                getattr(module, name)
            except (AttributeError, ModuleNotFoundError) as error:
                skip_without_torch(error)
                pytest.fail(
                    f"nothing leads to evenhand.{old}.{name} of 0.1.0: say in NAMES of evenhand/moved.py what "
                    f'"{old}.{name}" is called now, or in GONE of this file why nobody will ask for it: {error}'
                )


@pytest.mark.parametrize("old", NAMES)
def test_a_renamed_class_is_found(old: str) -> None:
    try:
        found = resolve(f"evenhand.{NAMES[old]}")
    except (AttributeError, ModuleNotFoundError) as error:
        skip_without_torch(error)
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
