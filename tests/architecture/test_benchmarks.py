"""What benchmarks and examples import of evenhand is there, also where they import it only when it is needed."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for folder in ("benchmarks", "examples", "docs") for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> list[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "evenhand"
        for alias in node.names
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_imports_is_there(path: Path) -> None:
    for module, name in imported(path):
        try:
            home = import_module(module)
        except ImportError as error:
            if str(error.name).startswith("evenhand"):
                raise
            pytest.skip(f"{error.name} is not installed here")
        if not hasattr(home, name):
            import_module(f"{module}.{name}")


def test_most_programs_import_something() -> None:
    assert sum(bool(imported(path)) for path in FILES) > 25
