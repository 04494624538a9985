"""The threat model: one table in two places, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table(page: str) -> list[str]:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("| who | honest"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append(line)
    return rows


def test_both_pages_have_the_same_table() -> None:
    assert table("SECURITY.md") == table("docs/threat-model.md")


def test_every_cell_names_a_test_or_says_what_is_not_promised() -> None:
    for row in table("SECURITY.md")[2:]:
        *_, malicious = (cell.strip() for cell in row.strip("|").split("|"))
        assert "::test_" in malicious or "ot promised:" in malicious or malicious.startswith("as "), row


def test_named_tests_exist() -> None:
    text = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 40
    for file, function in named:
        path = ROOT / file
        assert path.is_file(), file
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), f"{file}::{function}"
