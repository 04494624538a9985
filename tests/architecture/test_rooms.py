"""The rooms of the house: arrows point down only, solvers touch no transport and name no runtime, nobody pickles.

Imports are read from the source with `ast`, so that an import inside a function counts like any other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "evenhand"
SOURCE = Path(__file__).resolve().parents[2] / "src" / PACKAGE

# From the top down: a room may import from its own layer and from those below. "" is the package itself.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("", "__main__", "cli", "estimators", "federation"),
    ("jobs",),
    ("training",),
    ("report", "auditing"),
    ("runtime",),
    ("solvers",),
    ("vertical", "horizontal"),
    ("models", "privacy", "data", "metrics", "programs"),
    ("constraints", "protocol"),
    ("arrays", "errors", "printing"),
)
# A solver is a state machine without input, output or a clock: style.md, point 1.
NOT_FOR_SOLVERS = {"socket", "ssl", "threading", "multiprocessing", "asyncio", "concurrent", "subprocess", "time"}
NOT_FOR_SOLVERS |= {f"{PACKAGE}.{room}" for room in ("runtime", "report", "cli", "data", "training", "jobs")}
# Packages of pyproject.toml's extras: only what needs one may import it, and only when it is used.
EXTRAS = {"torch", "skops", "nvflare", "flwr", "lightgbm", "adbc_driver_manager", "dp_accounting", "mlflow"}
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
PICKLING_WORDS = {"allow_pickle", "read_pickle", "to_pickle"}


class Arrow(NamedTuple):
    """One import: the module that does it, the module it names, and where."""

    module: str
    imported: str
    line: int


def modules(source: Path) -> dict[str, Path]:
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = (PACKAGE, *path.relative_to(source).with_suffix("").parts)
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def parsed(path: Path) -> list[ast.AST]:
    """Every node of a file; the library's own files are parsed once for all tests."""
    return _kept(path) if path.is_relative_to(SOURCE) else _nodes(path)


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


_kept = cache(_nodes)


def arrows(source: Path) -> Iterator[Arrow]:
    known = modules(source)
    for module, path in known.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in parsed(path):
            if isinstance(node, ast.Import):
                yield from (Arrow(module, alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                origin = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    # `from evenhand.runtime import files` names a module, `from evenhand.errors import X` does not.
                    whole = f"{origin}.{alias.name}"
                    yield Arrow(module, whole if whole in known else origin, node.lineno)


def room(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def layer(module: str) -> int:
    found = [depth for depth, rooms in enumerate(LAYERS) if room(module) in rooms]
    assert found, f"{module} is in no layer: give it its place in LAYERS, or move it to a room that has one"
    return found[0]


def is_inside(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def pointing_up(source: Path) -> list[str]:
    return [
        f"{arrow.module}:{arrow.line} imports {arrow.imported}"
        for arrow in arrows(source)
        if is_inside(arrow.imported, PACKAGE) and layer(arrow.imported) < layer(arrow.module)
    ]


def forbidden(source: Path, inside: str, places: set[str]) -> list[str]:
    return [
        f"{arrow.module}:{arrow.line} imports {arrow.imported}"
        for arrow in arrows(source)
        if is_inside(arrow.module, inside) and any(is_inside(arrow.imported, place) for place in places)
    ]


def test_every_module_has_a_layer() -> None:
    for module in modules(SOURCE):
        layer(module)
    rooms = [name for rooms in LAYERS for name in rooms]
    assert len(rooms) == len(set(rooms))
    assert set(rooms) == {room(module) for module in modules(SOURCE)}, "LAYERS names a room that is not there"


def test_arrows_point_down_only() -> None:
    assert pointing_up(SOURCE) == []


def test_the_library_does_not_know_the_reproductions() -> None:
    assert forbidden(SOURCE, PACKAGE, {"evenhand_reproductions"}) == []


def test_parts_of_the_data_room_import_in_one_direction() -> None:
    """`images` may import `public`, and `public` may import `tables`."""
    assert forbidden(SOURCE, f"{PACKAGE}.data.tables", {f"{PACKAGE}.data.public", f"{PACKAGE}.data.images"}) == []
    assert forbidden(SOURCE, f"{PACKAGE}.data.public", {f"{PACKAGE}.data.images"}) == []


def test_no_module_waits_for_itself() -> None:
    known = modules(SOURCE)
    graph: dict[str, set[str]] = {module: set() for module in known}
    for arrow in arrows(SOURCE):
        if arrow.imported in known:
            graph[arrow.module].add(arrow.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("room", ["solvers", "vertical", "horizontal"])
def test_solvers_touch_neither_transport_nor_clock(room: str) -> None:
    assert forbidden(SOURCE, f"{PACKAGE}.{room}", NOT_FOR_SOLVERS) == []


def names_of_runtimes(source: Path) -> set[str]:
    """The classes of the room, and what a job calls its choice of one."""
    files = sorted((source / "runtime").glob("*.py"))
    nodes = [node for path in files for node in parsed(path)]
    return {"runtime", "RuntimeName", "RUNTIMES", *(node.name for node in nodes if isinstance(node, ast.ClassDef))}


def naming_a_runtime(source: Path, inside: str, names: set[str]) -> list[str]:
    """Where code (not its comments and docstrings) has such a name, or a string that leads to one."""
    found = []
    for module, path in modules(source).items():
        if not is_inside(module, inside):
            continue
        nodes = parsed(path)
        texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            words = {getattr(node, name, None) for name in ("id", "attr", "arg", "name")}
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                words |= set(node.value.split("."))
            found += [f"{module}:{getattr(node, 'lineno', '?')} names {word}" for word in words & names]
    return found


@pytest.mark.parametrize("room", ["solvers", "vertical", "horizontal"])
def test_no_solver_names_a_runtime(room: str) -> None:
    assert naming_a_runtime(SOURCE, f"{PACKAGE}.{room}", names_of_runtimes(SOURCE)) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('"""Ready for a runtime."""', 0),
        ("from evenhand.protocol.job import RuntimeName", 1),
        ("def f(runtime): ...", 1),
        ("import_module('evenhand.runtime.inprocess')", 1),
        ("x = InProcess([])", 1),
    ],
)
def test_a_solver_that_names_a_runtime_is_found(code: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "vertical").mkdir()
    (tmp_path / "vertical" / "some.py").write_text(code)
    assert len(naming_a_runtime(tmp_path, f"{PACKAGE}.vertical", names_of_runtimes(SOURCE))) == found


def test_nobody_pickles() -> None:
    assert forbidden(SOURCE, PACKAGE, PICKLES) == []
    for module, path in modules(SOURCE).items():
        words = {word for node in parsed(path) for word in (getattr(node, "attr", None), getattr(node, "arg", None))}
        assert not words & PICKLING_WORDS, module


@pytest.mark.parametrize("room", ["cli", "estimators", "training", "solvers"])
def test_importing_a_room_imports_no_extra(room: str) -> None:
    """Everything must start where no extra is installed."""
    names = [name for name in modules(SOURCE) if is_inside(name, f"{PACKAGE}.{room}")]
    code = f"import sys, {', '.join(names)}; print(*({EXTRAS!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


@pytest.mark.parametrize(
    ("path", "line", "found"),
    [
        ("vertical/bad.py", "from evenhand.runtime import files", "evenhand.vertical.bad:1 imports evenhand.runtime"),
        ("vertical/bad.py", "def f():\n    import evenhand.cli", "evenhand.vertical.bad:2 imports evenhand.cli"),
        ("vertical/bad.py", "from ..report.record import RunFolder", "evenhand.vertical.bad:1 imports evenhand.report"),
        ("jobs/runs.py", "from evenhand import VerticalClassifier", "evenhand.jobs.runs:1 imports evenhand"),
        ("protocol/fine.py", "from ..constraints import EqualOpportunity", None),
        (
            "errors.py",
            "from evenhand.models.linear import LinearModel",
            "evenhand.errors:1 imports evenhand.models",
        ),
        ("cli/fine.py", "from evenhand.vertical import fairvfl", None),
    ],
)
def test_an_arrow_that_points_up_is_found(path: str, line: str, found: str | None, tmp_path: Path) -> None:
    """The check itself can fail."""
    target = tmp_path / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(line)
    problems = pointing_up(tmp_path)
    assert [problem.startswith(found) for problem in problems] == [True] if found else problems == []


@pytest.mark.parametrize("line", ["import socket", "from threading import Lock", "import time as t"])
def test_a_solver_with_a_clock_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "vertical").mkdir()
    (tmp_path / "vertical" / "bad.py").write_text(line)
    assert len(forbidden(tmp_path, f"{PACKAGE}.vertical", NOT_FOR_SOLVERS)) == 1
