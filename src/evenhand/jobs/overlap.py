"""Find the rows that parties have in common, as in a job with private ids: nobody collects a list of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from evenhand.errors import DataError, InputError
from evenhand.jobs.federation.files import read_party
from evenhand.jobs.schema import check_names
from evenhand.jobs.vertical.rows import open_party
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.runtime.inprocess import InProcess
from evenhand.training.vertical_sources import check_same_kind


@dataclass(frozen=True, eq=False)
class Overlap:
    """Common rows of parties.

    Attributes
    ----------
    rows
        Number of rows of each party.
    common
        Each party's own ids of the common rows, in the order that a job would use.
    """

    rows: dict[str, int]
    common: dict[str, pd.Index]

    @property
    def count(self) -> int:
        return len(next(iter(self.common.values())))


def find_overlap(files: Sequence[Path], least: int = 1) -> Overlap:
    """Return the overlap of the tables that the parties' own files name.

    Each party's role has only its own ids, and sends points that are blinded by its own key. If there are fewer common
    rows than `least`, or than a party's own policy requires, the parties learn only that.
    """
    if len(files) < 2:
        raise InputError("give the files of at least two parties to count their common rows")
    owners = [read_party(path) for path in files]
    names = [own.party.name for own in owners]
    check_names("party", names)
    ids = {}
    for own, path in zip(owners, files, strict=True):
        # Missing and duplicate ids are refused when a table is read.
        ids[own.party.name] = open_party(own.party, path.absolute().parent).known.index
    check_same_kind(list(ids.values()), names)
    least = max(least, *(own.policy.least_rows for own in owners))
    server = PrivateAlignServer(names, least)
    parties = [PrivateAlignParty(name, index, names) for name, index in ids.items()]
    InProcess([server, *parties]).run()
    if server.problem:
        raise DataError(f"the rows cannot be aligned: {server.problem}")
    common = {one.name: ids[one.name][one.places] for one in parties if one.places is not None}
    return Overlap({name: len(index) for name, index in ids.items()}, common)
