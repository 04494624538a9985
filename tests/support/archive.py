"""What evenhand 0.1.0 left behind, packed; `tests/fixtures/make_0_1_0.py` made it."""

from __future__ import annotations

from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[1] / "fixtures" / "evenhand-0.1.0.zip"
