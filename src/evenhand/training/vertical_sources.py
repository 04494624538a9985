"""Sources of the participants' own data in a vertical run, and how parties find their common rows.

A source serves the steps of one participant (`training/vertical_steps.py`). `jobs/vertical/rows.py` reads the table
that a job names; `estimators/rows.py` takes a frame in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.presence import Presence
from evenhand.errors import DataError, InputError
from evenhand.models.learning.base import PartyLearner
from evenhand.printing import listed, quoted
from evenhand.privacy.hidden_align import HiddenAlignHolder, HiddenAlignParty, HiddenAlignServer
from evenhand.privacy.private_align import BlindingParty, PrivateAlignParty, PrivateAlignServer
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.protocol.align import AlignParty, AlignServer, How, SentIds, find_sums, id_kind, id_sums
from evenhand.runtime.inprocess import InProcess

HowAligned = Literal["equal", "inner", "left", "private", "private-left", "hidden-left"]
"""How parties find their common rows; see `Alignment`."""


class HeldLabels(NamedTuple):
    """True labels and groups of the training rows; with label privacy, the key that responses are drawn from."""

    truth: LabelledRows
    key: AnswerKey | None = None


class EncodedColumns(NamedTuple):
    """A party's encoded training rows.

    Attributes
    ----------
    categorical
        Columns that hold category codes.
    weights
        Weights of an earlier run to start from.
    signs
        For each column the sign that its weight must have, or 0; None without `monotone`.
    marks_absence
        Whether the last column marks rows that the party lacks.
    learner
        The model of the party's own choice, with solver ``"learners"``.
    """

    matrix: Matrix
    categorical: tuple[int, ...] = ()
    weights: Array | None = None
    signs: Integers | None = None
    marks_absence: bool = False
    learner: PartyLearner | None = None


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

    def take(self, places: Integers, held_out: Booleans | None = None) -> int:
        """Keep the rows at these places, in this order; return the number of training rows among them.

        Parameters
        ----------
        places
            Positions of the common rows in the table; −1 for rows that the party lacks.
        held_out
            Which of the common rows are held out; None if the party knows from the ids.
        """
        ...

    def labels(self, presence: Presence | None = None) -> HeldLabels:
        """Return labels and groups of the training rows; called only at the label holder.

        Parameters
        ----------
        presence
            Which of the common rows each other party has, if rows may be absent.
        """
        ...

    def held_out(self) -> Booleans:
        """Return which of the common rows are held out; called after `take`, only at the label holder."""
        ...

    def columns(self) -> EncodedColumns:
        """Encode the features; return those of the training rows."""
        ...


class LabelSource(Protocol):
    """The server's own copy of the label holder's table."""

    def unaligned(self, problem: str) -> DataError:
        """Return the error to raise if rows cannot be aligned."""
        ...

    def labels(self, sent: SentIds, presence: Presence | None = None) -> HeldLabels:
        """Return labels and groups of the common training rows, matched by the ids that the party has sent.

        Parameters
        ----------
        presence
            As in `PartySource.labels`.
        """
        ...

    def held_out(self) -> Booleans:
        """Return which of the common rows are held out; called after `labels`."""
        ...


@dataclass(frozen=True, eq=False)
class LabelsHere:
    """Labels of a party in the same process: the server needs no copy of its table."""

    holder: PartySource

    def unaligned(self, problem: str) -> DataError:
        return DataError(problem)

    def labels(self, _: SentIds, presence: Presence | None = None) -> HeldLabels:
        # The party has taken the common rows already: `Together` advances it before the server.
        return self.holder.labels(presence)

    def held_out(self) -> Booleans:
        return self.holder.held_out()


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
        common ones without giving the server a list of ids. ``"left"``, ``"private-left"``
        and ``"hidden-left"`` keep all rows of the label holder; with the last, nobody but a party itself learns which
        of these it has.
    least
        Minimum number of common rows, or of rows that each party shares with the label holder; with fewer the run ends,
        and no participant learns any common id.
    most_ids
        At a party: most ids of another party that it compares its own with, under ``"private"``; None is the default.
    own_least
        At a party: minimum number of its own rows that the label holder has too, and of ids in a list that it compares
        its own with.
    """

    parties: Sequence[str]
    holder: str
    how: HowAligned = "equal"
    least: int = 1
    most_ids: int | None = None
    own_least: int = 0

    @property
    def private(self) -> bool:
        """Whether the server gets no list of ids."""
        return self.how in ("private", "private-left", "hidden-left")

    @property
    def hidden(self) -> bool:
        """Whether neither the server nor the label holder learns which rows a party has."""
        return self.how == "hidden-left"

    @property
    def left(self) -> bool:
        """Whether all rows of the label holder are kept, also those that other parties lack."""
        return self.how in ("left", "private-left", "hidden-left")

    @property
    def others(self) -> list[str]:
        """Parties other than the label holder."""
        return [name for name in self.parties if name != self.holder]

    def party(self, name: str, ids: pd.Index | int) -> AlignParty | BlindingParty:
        labelled = name == self.holder
        limits = {"most_ids": self.most_ids, "fewest_ids": self.own_least}
        if self.hidden and not isinstance(ids, int):
            if labelled:
                return HiddenAlignHolder(name, ids, self.others, **limits)
            return HiddenAlignParty(name, ids, self.holder, max(self.least, self.own_least), **limits)
        lacking = self.left and not labelled
        if self.private and not isinstance(ids, int):
            return PrivateAlignParty(name, ids, self.parties, holds_labels=labelled, lacking=lacking, **limits)
        return AlignParty(name, ids, every=self.how == "equal" or (self.left and labelled), lacking=lacking)

    def server(self) -> AlignServer | PrivateAlignServer | HiddenAlignServer:
        if self.hidden:
            return HiddenAlignServer(self.parties, self.holder, self.least)
        if self.private:
            return PrivateAlignServer(self.parties, self.least, self.holder, left=self.left)
        return AlignServer(self.parties, "left" if self.left else self.how, self.least, self.holder)  # type: ignore[arg-type]


def common_rows(
    ids: Mapping[str, pd.Index | int], how: How = "equal", holder: str | None = None, least: int = 1
) -> dict[str, Integers]:
    """Find the common rows of tables that are all in this process, by the same exchange.

    Parameters
    ----------
    ids
        By party: the id of each row of its table, or the number of rows if they have no ids.
    holder
        The party whose rows are all kept with ``"left"``; None is the first.
    least
        Minimum number of common rows; with ``"left"``, of those that each party shares with the holder.

    Returns
    -------
    For each party the positions of the common rows, in order; −1 for rows that it lacks.
    """
    for name, index in ids.items():
        if not isinstance(index, int):
            check_ids(index, name)
    server = AlignServer(list(ids), how, least, holder)
    InProcess([server, *(AlignParty(name, index, lacking=how == "left") for name, index in ids.items())]).run()
    if server.problem:
        raise named_problem(ids, how, server.problem)
    return {name: server.places[name] for name in ids}


def named_problem(ids: Mapping[str, pd.Index | int], how: How, problem: str) -> DataError:
    """Return why rows cannot be aligned, with some of the ids, which are all in this process."""
    known = {name: pd.DataFrame(index=index) for name, index in ids.items() if not isinstance(index, int)}
    try:
        align(list(known.values()), list(known), "inner" if how == "left" else how) if known else None
    except DataError as error:
        return error
    return DataError(problem)


def rows_by_id(ids: pd.Index, sent: SentIds, owner: str) -> Integers:
    """Find the common rows of a party in a copy of its table, in any row order.

    Refuse a copy with other ids: its labels would belong to other people.

    Parameters
    ----------
    ids
        One id for each row of the copy.
    sent
        The ids that the party itself sent.
    owner
        The party's name, for the error.
    """
    kind, sums = id_sums(ids)
    advice = f"give the server the table that {owner} trains on"
    if kind != sent.kind:
        raise DataError(
            f"the ids of the server's copy of {owner}'s table are {kind}, those of {owner} are {sent.kind}; {advice}"
        )
    places = find_sums(sums, sent.sums)
    missing = int((places < 0).sum())
    extra = len(sums) - (len(places) - missing)
    if missing or extra:
        raise DataError(
            f"the server's copy of {owner}'s table has other rows than {owner}: it lacks {missing:,} of {owner}'s "
            f"{len(sent.sums):,} ids and has {extra:,} ids that {owner} lacks; {advice}"
        )
    return places[sent.places]


# -- tables that are all in one place: the caller learns who is in which table

Table = TypeVar("Table", pd.DataFrame, pd.Series, pd.DataFrame | pd.Series)


def align(frames: Sequence[Table], names: Sequence[str], how: Literal["equal", "inner"] = "equal") -> list[Table]:
    """Return the tables with the same index, in the order of the first one.

    Parameters
    ----------
    frames : tables indexed by id.
    names : the party each table belongs to, for error messages.
    how : ``"equal"`` requires the same ids everywhere, ``"inner"`` keeps the ids all parties have.
    """
    if not isinstance(how, str) or how not in ("equal", "inner"):
        raise InputError(f"how is 'equal' or 'inner', not {quoted(how)}")
    try:
        frames, names = list(frames), list(names)
    except TypeError as error:
        raise InputError(f"a list of tables and a list of names are needed ({error})") from error
    if not frames or len(frames) != len(names):
        raise InputError(f"{len(frames)} tables came with {len(names)} names; each table needs one")
    for frame, name in zip(frames, names, strict=True):
        if not isinstance(frame, pd.DataFrame | pd.Series) or not isinstance(name, str):
            raise InputError(
                f"a DataFrame or Series and a name are needed, not {type(frame).__name__} and {quoted(name)}"
            )
        check_ids(frame.index, name)
        check_unique(frame.index, name)
    check_same_kind([frame.index for frame in frames], names)
    if how == "equal":
        _check_same_ids([frame.index for frame in frames], names)
    common = frames[0].index
    for frame in frames[1:]:
        # get_indexer is about twenty times as fast as isin on indexes of text.
        common = common[frame.index.get_indexer(common) >= 0]
    if common.empty:
        raise DataError(f"no id is common to {', '.join(names)}; check that they use the same kind of id")
    return [frame if frame.index.equals(common) else frame.loc[common] for frame in frames]


def check_ids(index: pd.Index, name: str) -> None:
    """Refuse rows without an id, and ids of mixed kinds."""
    if isinstance(index, pd.MultiIndex):
        raise DataError(f"{name}: the index has {index.nlevels} levels; make one id column of them")
    if missing := int(np.count_nonzero(index.isna())):
        raise DataError(f"{name}: {missing:,} of {len(index):,} rows have no id")
    try:
        id_kind(index)
    except DataError as error:
        raise DataError(
            f"{name}: {error}, such as {_some(index)}; make all of them text, or all whole numbers"
        ) from error


def check_unique(index: pd.Index, name: str) -> None:
    """Refuse ids that occur more than once."""
    if index.has_duplicates:
        repeated = index[index.duplicated()].unique()
        raise DataError(
            f"{name}: {len(repeated):,} ids occur more than once, such as {_some(repeated)}; "
            "there must be one row for each id"
        )


def check_same_kind(indexes: Sequence[pd.Index], names: Sequence[str]) -> None:
    """Refuse ids that would never match, such as text and whole numbers."""
    kinds = [id_kind(index) for index in indexes]
    if len({kind for kind, index in zip(kinds, indexes, strict=True) if len(index)}) > 1:
        told = ", ".join(
            f"{name} has {kind} (such as {_some(index[:1])})"
            for name, kind, index in zip(names, kinds, indexes, strict=True)
        )
        raise DataError(f"the ids are of different kinds and would never match: {told}; convert them to one kind")


def _check_same_ids(indexes: Sequence[pd.Index], names: Sequence[str]) -> None:
    first, first_name = indexes[0], names[0]
    problems = []
    for index, name in zip(indexes[1:], names[1:], strict=True):
        for lacking, lacks, has, owner in ((index, name, first, first_name), (first, first_name, index, name)):
            absent = has[lacking.get_indexer(has) < 0]
            if len(absent):
                problems.append(f"{lacks} lacks {len(absent):,} of {owner}'s {len(has):,} ids, such as {_some(absent)}")
    if problems:
        raise DataError(f'{"; ".join(problems)}. how="inner" keeps the common ids')


def _some(ids: Iterable[Any]) -> str:
    return listed((getattr(one, "item", lambda one=one: one)() for one in ids), most=3)
