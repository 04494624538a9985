"""Tutorials are walked through as a reader would, and print what the page says they do."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("walkthrough", DOCS / "walkthrough.py")
assert SPEC is not None
assert SPEC.loader is not None
walkthrough = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(walkthrough)


IN_EVERY_TEST = "screening"
"""The quickest tutorial; the others are walked in the soak."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.stem == IN_EVERY_TEST else pytest.mark.soak, id=page.stem)
        for page in sorted((DOCS / "tutorials").glob("*.md"))
    ],
)
def test_every_command_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    said = page.read_text(encoding="utf-8")
    assert "```console\n$ " in said
    assert list(walkthrough.differences(said, walkthrough.walked(said, tmp_path))) == []


def test_what_is_not_so_is_found() -> None:
    said = "| accuracy | 0.7264 |\nruns/plain\n"
    assert list(walkthrough.differences(said, "accuracy   0.7270".join(["| ", " |\nruns/plain"]))) != []
    assert list(walkthrough.differences(said, said.replace("0.7264", "0.7299"))) == []
    assert list(walkthrough.differences(said, said.replace("0.7264", "0.7464"))) != []
    assert list(walkthrough.differences(said, said.replace("plain", "fair"))) != []
    assert list(walkthrough.differences(said, said + "one line more\n")) != []
    assert list(walkthrough.differences("1.2e-09", "4.7e-12")) == []


def test_a_command_that_fails_ends_the_walk(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        walkthrough.walked("```console\n$ exit 3\n```\n", tmp_path)
