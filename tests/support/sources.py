"""Where this machine keeps copies of the public files, if it does."""

from __future__ import annotations

import os
from pathlib import Path


def local_folder() -> Path | None:
    named = os.environ.get("EVENHAND_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    return folder if (folder / "adult").is_dir() else None


# Looked up before the tests clear the environment.
FOLDER = local_folder()
