"""What the documentation names is there: files, links, imports, and the example that it tells people to start from."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
}
# What a page of another time said stays as it was said then.
NOW = {name: text for name, text in PAGES.items() if name != "CHANGELOG.md"}


def found(pattern: str) -> list[tuple[str, str]]:
    return sorted({(page, match) for page, text in NOW.items() for match in re.findall(pattern, text)})


@pytest.mark.parametrize(("page", "file"), found(r"`((?:[\w.]+/)*\w+\.py)`"))
def test_a_file_that_a_page_names_exists(page: str, file: str) -> None:
    """By its whole path, or by its end where that says enough."""
    places = [
        ROOT / "src" / "evenhand",
        *(ROOT / name for name in ("tests", "benchmarks", "examples", "docs", "reproductions")),
    ]
    assert (ROOT / file).is_file() or any(list(place.rglob(file)) for place in places)


@pytest.mark.parametrize(("page", "target"), found(r"\]\((?!https?:|mailto:|#)([^)#]+)"))
def test_a_link_leads_somewhere(page: str, target: str) -> None:
    assert (ROOT / page).parent.joinpath(target).exists()


@pytest.mark.parametrize(("page", "line"), found(r"(?m)^(?:from evenhand[\w.]* import .+)$"))
def test_what_a_page_imports_is_offered_there(page: str, line: str) -> None:
    module, _, names = line.removeprefix("from ").partition(" import ")
    home = import_module(module)
    for name in names.split("#")[0].split(","):
        getattr(home, name.strip())
