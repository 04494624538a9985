"""What the process of one side finds where it is: its own file, where its runs go, and what it says to others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from evenhand.errors import EvenhandError, RunError
from evenhand.jobs.federation.files import PARTY_FILE, RUNS, PartyFile, read_party


class Here(NamedTuple):
    """A side's own file, the folder that relative paths in it start from, and where its run folders go."""

    own: PartyFile
    base: Path
    runs: Path


def here() -> Here:
    """As whoever started this site has said."""
    path = os.environ.get(PARTY_FILE)
    if not path:
        raise RunError(
            "this site was started without a party's file; start it with evenhand federation join or serve, or set "
            f"{PARTY_FILE} to the file"
        )
    return at(Path(path), os.environ.get(RUNS))


def at(path: Path, runs: str | None = None) -> Here:
    base = path.absolute().parent
    return Here(read_party(path), base, Path(runs or base / "runs"))


def outside_word(error: Exception) -> str:
    """What others learn of an error: that there was one. It may quote a row."""
    kind = type(error).__name__ if isinstance(error, EvenhandError) else "error"
    return f"it stopped ({kind}); its own console says why"
