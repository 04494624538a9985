"""How many rows parties have in common, found as in a job with private ids: no list of people is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from evenhand.data.tables.align import check_same_kind
from evenhand.errors import DataError, InputError
from evenhand.jobs.federation.files import read_party
from evenhand.jobs.schema import check_names
from evenhand.jobs.vertical.rows import open_party
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.runtime.inprocess import InProcess


@dataclass(frozen=True, eq=False)
class Overlap:
    """What parties have in common.

    Attributes
    ----------
    rows
        How many each party has.
    common
        Each party's own ids of the rows that all have, in the order in which a job would take them.
    """

    rows: dict[str, int]
    common: dict[str, pd.Index]

    @property
    def count(self) -> int:
        return len(next(iter(self.common.values())))


def find_overlap(files: Sequence[Path], least: int = 1) -> Overlap:
    """The overlap of the tables that parties' own files name.

    Every party's role has nothing but its own ids, and sends points that are blinded by its own key. With fewer common
    rows than `least`, or than a party's own policy asks for, nothing is found out but that.
    """
    if len(files) < 2:
        raise InputError("give the files of at least two parties, whose common rows are to be counted")
    owners = [read_party(path) for path in files]
    names = [own.party.name for own in owners]
    check_names("party", names)
    ids = {}
    for own, path in zip(owners, files, strict=True):
        # Ids that are missing or occur twice are refused where a table is read.
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
