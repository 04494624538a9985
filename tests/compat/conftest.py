"""The archive of 0.1.0, unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from support.archive import ARCHIVE


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked archive, which is the working folder: its runs name their tables relative to it."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
