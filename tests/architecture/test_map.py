"""The newcomer's map is true: rooms and files it names exist, and each equation is named where the map says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "evenhand"
REPRODUCTIONS = ROOT / "reproductions"
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
EQUATIONS = re.findall(r"^\| [^|]+ \| ([^|]+?) \| `([^`]+)` \|$", MAP, flags=re.MULTILINE)


def found(path: str) -> Path:
    """Return the file that the map names: of the library, of the reproductions, or of the tests."""
    places = {"evenhand_reproductions": REPRODUCTIONS, "tests": ROOT}
    return places.get(path.partition("/")[0], SOURCE) / path


def test_every_room_is_on_the_map() -> None:
    on_map = set(re.findall(r"^      (\w+)/ ", MAP, flags=re.MULTILINE))
    there = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert on_map == there


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", MAP))))
def test_files_on_the_map_exist(path: str) -> None:
    assert found(path).is_file()


@pytest.mark.parametrize(("equation", "path"), EQUATIONS)
def test_an_equation_is_named_where_the_map_says(equation: str, path: str) -> None:
    # "Eq. 1" must not be found in "Eq. 12", nor "Eq. 11" missed where a file says "Eqs. 11 and 12".
    assert re.search(re.escape(equation) + r"(?!\d)", found(path).read_text(encoding="utf-8"))


def test_all_papers_have_equations_on_the_map() -> None:
    papers = {equation.partition(" ")[0] for equation, _ in EQUATIONS}
    assert papers == {"FairVFL", "VFB²", "FairFedAvgALM", "proximal"}


def test_no_equation_goes_without_its_paper() -> None:
    """Three papers have an Eq. 10."""
    bare = re.compile(
        r"(?<!FairVFL )(?<!VFB² )(?<!FairFedAvgALM )(?<!proximal AL )(?<!FPFL )\b(?:Eq\.|Eqs\.|Algorithm) \(?\d"
    )
    bare_ones = [
        f"{path.relative_to(SOURCE)}: {match.group()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for match in bare.finditer(path.read_text(encoding="utf-8"))
    ]
    assert bare_ones == []
