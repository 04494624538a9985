"""`evenhand data fetch digits`: works without a network, and says what was used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_digits_are_always_to_be_had(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    done = here("data", "fetch", "Digits", "--offline")
    assert (done.returncode, done.stderr) == (0, "")
    assert "digits: mnist-5k cannot be had here" in done.stdout
    assert "digits: scikit-learn is used" in done.stdout
    assert done.stdout.rstrip().endswith("digits.csv.gz")


def test_a_damaged_file_is_not_passed_over(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mnist_5k.csv").write_text("0,0,0\n")
    done = here("data", "fetch", "digits", "--offline", "--source", tmp_path)
    assert done.returncode == 3
    assert "is not the published mnist_5k.csv" in done.stderr
