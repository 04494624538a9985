"""Sources of the participants' own data in a vertical run, and how parties find their common rows.

A source serves the steps of one participant (`training/vertical_steps.py`). `jobs/vertical/rows.py` reads the table
that a job names; `estimators/rows.py` takes a frame in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pandas as pd

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.data.tables.align import align, check_ids
from evenhand.errors import DataError
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.protocol.align import AlignParty, AlignServer, How, SentIds
from evenhand.runtime.inprocess import InProcess


class HeldLabels(NamedTuple):
    """True labels and groups of the training rows, and the key from which randomised responses are drawn."""

    truth: LabelledRows
    key: AnswerKey


class EncodedColumns(NamedTuple):
    """A party's encoded training rows.

    Attributes
    ----------
    categorical
        Columns that hold category codes.
    weights
        Weights of an earlier run to start from.
    """

    matrix: Matrix
    categorical: tuple[int, ...] = ()
    weights: Array | None = None


class PartySource(Protocol):
    """A party's own table: a file or database that a job names, or a frame in memory.

    The steps call the methods in this order.
    """

    def ids(self) -> pd.Index | int:
        """Open the table; return the id of each row, or the number of rows if they have no ids."""
        ...

    def unaligned(self, problem: str, unmatched: Integers) -> DataError:
        """Return the error to raise if rows cannot be aligned; `unmatched` are own rows that another party lacks."""
        ...

    def take(self, places: Integers) -> int:
        """Keep the rows at these places, in this order; return the number of training rows among them."""
        ...

    def labels(self) -> HeldLabels:
        """Return labels and groups of the training rows; called only at the label holder."""
        ...

    def columns(self) -> EncodedColumns:
        """Encode the features; return those of the training rows."""
        ...


class LabelSource(Protocol):
    """The server's own copy of the label holder's table."""

    def unaligned(self, problem: str) -> DataError:
        """Return the error to raise if rows cannot be aligned."""
        ...

    def labels(self, sent: SentIds) -> HeldLabels:
        """Return labels and groups of the common training rows, matched by the ids that the party has sent."""
        ...


@dataclass(frozen=True, eq=False)
class LabelsHere:
    """Labels of a party in the same process: the server needs no copy of its table."""

    holder: PartySource

    def unaligned(self, problem: str) -> DataError:
        return DataError(problem)

    def labels(self, _: SentIds) -> HeldLabels:
        # The party has taken the common rows already: `Together` advances it before the server.
        return self.holder.labels()


@dataclass(frozen=True)
class Alignment:
    """How parties find their common rows.

    Attributes
    ----------
    parties
        Parties that have columns; rows are in the order of the first.
    holder
        The label holder.
    how
        ``"equal"`` requires the same ids at all parties; ``"inner"`` keeps the common ones; ``"private"`` keeps the
        common ones without giving the server a list of ids.
    least
        Minimum number of common rows; with fewer the run ends, and no participant learns any common id.
    most_ids
        At a party: most ids of another party that it compares its own with, under ``"private"``; None is the default.
    """

    parties: Sequence[str]
    holder: str
    how: Literal["equal", "inner", "private"] = "equal"
    least: int = 1
    most_ids: int | None = None

    def party(self, name: str, ids: pd.Index | int) -> AlignParty | PrivateAlignParty:
        if self.how == "private" and not isinstance(ids, int):
            labelled = name == self.holder
            return PrivateAlignParty(name, ids, self.parties, holds_labels=labelled, most_ids=self.most_ids)
        return AlignParty(name, ids, every=self.how == "equal")

    def server(self) -> AlignServer | PrivateAlignServer:
        if self.how == "private":
            return PrivateAlignServer(self.parties, self.least, self.holder)
        return AlignServer(self.parties, self.how, self.least)


def common_rows(ids: Mapping[str, pd.Index | int], how: How = "equal") -> dict[str, Integers]:
    """Find the common rows of tables that are all in this process, by the same exchange.

    Parameters
    ----------
    ids
        By party: the id of each row of its table, or the number of rows if they have no ids.
    """
    for name, index in ids.items():
        if not isinstance(index, int):
            check_ids(index, name)
    server = AlignServer(list(ids), how)
    InProcess([server, *(AlignParty(name, index) for name, index in ids.items())]).run()
    if server.problem:
        raise named_problem(ids, how, server.problem)
    return {name: server.places[name] for name in ids}


def named_problem(ids: Mapping[str, pd.Index | int], how: How, problem: str) -> DataError:
    """Return why rows cannot be aligned, with some of the ids, which are all in this process."""
    known = {name: pd.DataFrame(index=index) for name, index in ids.items() if not isinstance(index, int)}
    try:
        align(list(known.values()), list(known), how) if known else None
    except DataError as error:
        return error
    return DataError(problem)
