"""Align rows: parties find the rows they have in common by id, and put them in one order.

The server receives a checksum of every id. Anyone who can guess ids can test guesses against the checksums, so the
parties must trust the server with their lists of people. Other parties learn only which of their own rows are common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.errors import DataError, ProtocolError
from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES
from evenhand.protocol.messages import TEXT, Field, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Follower, Role, Sends

How = Literal["equal", "inner", "left"]
BY_PLACE: Final = "places"
"""Kind of ids of a table without ids: rows are identified by position."""
# Allowed types of ids, by pandas' name and ours. Mixtures are refused, because 1, 1.0 and True would be equal but "1"
# would not, and so are types that two parties may write differently, such as intervals or custom objects.
_KINDS: Final = {
    "string": "text",
    "bytes": "bytes",
    "integer": "integers",
    "floating": "decimal numbers",
    "decimal": "decimals",
    "date": "dates",
    "datetime": "moments",
    "datetime64": "moments",
    "empty": "nothing",
}
# Two 64-bit checksums, so that collisions among many millions of ids are negligible.
_KEYS: Final = ("evenhand-id-sum1", "evenhand-id-sum2")
# Number of text ids hashed at a time.
_AT_ONCE: Final = 1 << 16

IDS = Schema(
    "ids",
    {"kind": TEXT, "n_rows": Field("i8"), "sums": Field("i8", (None, 2))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "To the server: the number of rows of the party, the type of its ids (integers, text, dates), and a "
        "hash of each id, or the id itself if it is a number. A server with a list of likely ids learns which "
        "of them the party has. Tables without ids send only their number of rows."
    ),
)
COMMON_ROWS = Schema(
    "common-rows",
    {"places": Field("i8", (None,))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        'Which of the receiver\'s own rows all other parties have too, and their common order. With `ids = "left"`: '
        "how many rows the label holder has, which of them the receiver has, and where in the common order they are."
    ),
)
UNMATCHED = Schema(
    "unmatched",
    {"reason": TEXT, "places": Field("i8", (None,))},
    direction=SERVER_TO_PARTIES,
    reveals="Why rows cannot be aligned, and which of the receiver's own rows some other party does not have.",
)
VOCABULARY = Vocabulary(IDS, COMMON_ROWS, UNMATCHED, title="Before training: aligning rows")


class Lack(NamedTuple):
    """A party that lacks rows of another, by their positions there."""

    who: str
    owner: str
    places: Integers


class SentIds(NamedTuple):
    """The ids that a party sent, and which of its rows are common to all.

    Attributes
    ----------
    kind
        Type of the ids, as `id_kind` returns it.
    sums
        (n, 2): two numbers for each id of the party's table, as `id_sums` makes them.
    places
        Positions of the common rows, in order.
    """

    kind: str
    sums: Integers
    places: Integers


class AlignServer(Role):
    """Find the rows that all parties have, in the order of the first party with ids.

    Parameters
    ----------
    how
        ``"equal"`` requires the same ids everywhere, ``"inner"`` keeps the ids that all parties have, ``"left"`` keeps
        all ids of the label holder, in its order.
    least
        Minimum number of common rows, or with ``"left"`` of rows that each party shares with the label holder; with
        fewer, no party is told any.
    holder
        The label holder, whose rows ``"left"`` keeps.

    Attributes
    ----------
    problem
        Why rows cannot be aligned; empty if they can.
    lacks
        Which party lacks rows of which other.
    places
        For each party the positions of the common rows, in order, −1 for rows of the label holder that the party lacks;
        empty if there was a problem.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"kinds": dict[str, str], "sums": dict[str, Integers]}

    def __init__(self, parties: Sequence[str], how: How, least: int = 1, holder: str | None = None) -> None:
        super().__init__(SERVER, {})
        self.parties = tuple(parties)
        self.how = how
        self.least = least
        self.holder = self.parties[0] if holder is None else holder
        self.kinds: dict[str, str] = {}
        self.sums: dict[str, Integers] = {}
        self.problem = ""
        self.lacks: list[Lack] = []
        self.places: dict[str, Integers] = {}

    def handle(self, message: Message) -> Sends:
        if message.kind != IDS.kind or message.sender not in self.parties or message.sender in self.sums:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        kind, n_rows, sums = message.text("kind"), message.integer("n_rows"), message["sums"]
        if n_rows < 0 or len(sums) != (0 if kind == BY_PLACE else n_rows):
            raise ProtocolError(f"{message.sender} says it has {n_rows} rows and sends {len(sums)} ids; it is refused")
        if kind == BY_PLACE:
            sums = np.stack([np.arange(n_rows), np.zeros(n_rows, dtype=np.int64)], axis=1)
        self._keep(message.sender, kind, sums)
        if len(self.sums) < len(self.parties):
            return ()
        self.done = True
        self.effort += float(sum(len(sums) for sums in self.sums.values()))
        return self._answer()

    def sent_by(self, name: str) -> SentIds:
        """Return the ids of a party once rows are aligned."""
        return SentIds(self.kinds[name], self.sums[name], self.places[name])

    def _keep(self, name: str, kind: str, sums: Integers) -> None:
        """Share one array between parties with the same ids in the same order, to save memory."""
        same = next((known for known in self.sums.values() if np.array_equal(known, sums)), sums)
        self.kinds[name], self.sums[name] = kind, same

    def _answer(self) -> Sends:
        known = [name for name in self.parties if self.kinds[name] != BY_PLACE]
        by_place = [name for name in self.parties if self.kinds[name] == BY_PLACE]
        kinds = {self.kinds[name] for name in known if len(self.sums[name])}
        if repeating := self._repeating(known):
            self.problem = f"{repeating} has an id more than once"
        elif self.how == "left" and known and self.holder not in known:
            self.problem = f"{self.holder} has no ids by which rows of {', '.join(known)} can be found"
        elif len(kinds) > 1:
            told = ", ".join(f"{self.kinds[name]} at {name}" for name in known)
            self.problem = f"ids are of different kinds and would never match: {told}"
        if self.problem:
            return self._unmatched()
        places = self._places(known)
        if not self.problem:
            count = len(next(iter(places.values()))) if places else len(self.sums[self.parties[0]])
            for name in by_place:
                if len(self.sums[name]) != count:
                    other = next(one for one in self.parties if one != name)
                    self.problem = f"{name} has {len(self.sums[name])} rows, {other} has {count}, and no ids to go by"
                places[name] = np.arange(count)
            self.problem = self.problem or self._too_few(places, count)
        if self.problem:
            return self._unmatched()
        self.places = places
        return [COMMON_ROWS.message(SERVER, name, places=places[name]) for name in self.parties]

    def _too_few(self, places: Mapping[str, Integers], count: int) -> str:
        if self.how != "left":
            return too_few(count, self.least)
        return too_few_shared(places, self.holder, self.least)

    def _repeating(self, known: Sequence[str]) -> str | None:
        """Return the parties with duplicate ids."""
        once: list[Integers] = []
        for name in known:
            if any(self.sums[name] is one for one in once):
                continue
            if _repeats(self.sums[name][:, 0]):
                return name
            once.append(self.sums[name])
        return None

    def _places(self, known: Sequence[str]) -> dict[str, Integers]:
        """Return the positions of the common rows in the table of each party with ids."""
        if not known:
            return {}
        first = known[0]
        found: dict[str, Integers] = {}
        for name in known:
            like = next((one for one in found if self.sums[one] is self.sums[name]), None)
            found[name] = find_sums(self.sums[name], self.sums[first]) if like is None else found[like]
        if self.how == "equal":
            for name in known:
                size = len(self.sums[name])
                self._note_lack(name, first, np.flatnonzero(found[name] < 0))
                if (found[name] >= 0).sum() < size:
                    self._note_lack(first, name, np.setdiff1d(np.arange(size), found[name]))
            if self.lacks:
                self.problem = "; ".join(
                    f"{one.who} lacks {len(one.places):,} of {one.owner}'s {len(self.sums[one.owner]):,} ids"
                    for one in self.lacks
                )
        common = np.ones(len(self.sums[first]), dtype=bool)
        for places in found.values():
            common &= places >= 0
        if self.how == "left" and not (common.all() and len({len(self.sums[name]) for name in known}) == 1):
            return {name: find_sums(self.sums[name], self.sums[self.holder]) for name in known}
        return found if common.all() else {name: places[common] for name, places in found.items()}

    def _note_lack(self, who: str, owner: str, places: Integers) -> None:
        if len(places):
            self.lacks.append(Lack(who, owner, places))

    def _unmatched(self) -> Sends:
        reason = as_bytes(self.problem)
        sends = []
        for name in self.parties:
            mine = [one.places for one in self.lacks if one.owner == name]
            places = np.unique(np.concatenate(mine)) if mine else np.zeros(0, dtype=np.int64)
            sends.append(UNMATCHED.message(SERVER, name, reason=reason, places=places))
        return sends

    def restored(self) -> None:
        given, self.sums = self.sums, {}
        for name, sums in given.items():
            self._keep(name, self.kinds[name], sums)
        self.problem, self.lacks = "", []
        if self.done:
            self._answer()


class AlignParty(Follower):
    """Send checksums of the party's ids, and receive the positions of the common rows.

    Parameters
    ----------
    ids
        One id for each row, or the number of rows if they have none.
    every
        Whether all rows are common by the job (``ids = "equal"``, or at the label holder ``"left"``); a selection of
        them is then refused.
    lacking
        Whether the common rows may include some that the party lacks (``ids = "left"``).

    Attributes
    ----------
    places
        Positions of the rows to take, in order, −1 for rows that the party lacks; None if there was a problem.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"places": Integers | None, "problem": str, "unmatched": Integers}

    def __init__(self, name: str, ids: pd.Index | int, *, every: bool = False, lacking: bool = False) -> None:
        super().__init__(name, {})
        self._ids = ids
        self._every, self._lacking = every, lacking
        self.n_rows = ids if isinstance(ids, int) else len(ids)
        self.places: Integers | None = None
        self.problem = ""
        self.unmatched: Integers = np.zeros(0, dtype=np.int64)

    def start(self) -> Sends:
        kind, sums = (BY_PLACE, np.zeros((0, 2))) if isinstance(self._ids, int) else id_sums(self._ids)
        self.effort += float(self.n_rows)
        return [IDS.message(self.name, SERVER, kind=as_bytes(kind), n_rows=self.n_rows, sums=sums)]

    def handle(self, message: Message) -> Sends:
        if self.done or message.kind not in (COMMON_ROWS.kind, UNMATCHED.kind):
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        places = message["places"]
        check_places(self.name, held_places(places) if self._lacking else places, self.n_rows)
        if message.kind == COMMON_ROWS.kind:
            if self._every and len(places) < self.n_rows:
                raise ProtocolError(
                    f"{self.name} is told to take {len(places):,} of its {self.n_rows:,} rows, and the job says that "
                    "all parties have the same rows; the message is refused"
                )
            self.places = places
        else:
            self.problem, self.unmatched = message.text("reason"), places
        self.done = True
        return ()


def find_sums(own: Integers, wanted: Integers) -> Integers:
    """Return the position of each wanted id among a table's own ids, by checksum; −1 if it is missing."""
    if own is wanted:
        return np.arange(len(own))
    places = np.asarray(pd.Index(own[:, 0]).get_indexer(pd.Index(wanted[:, 0])), dtype=np.int64)
    # Rows that agree in one checksum only are different people.
    strangers = own[places, 1] != wanted[:, 1] if len(own) else places < 0
    places[strangers] = -1
    return places


def check_places(name: str, places: Integers, n_rows: int) -> None:
    """Refuse positions outside a party's table, and rows that are named twice.

    A row that counts many times would pass for many people, and a sum over these rows would reveal it.
    """
    if len(places) and not (places.min() >= 0 and places.max() < n_rows):
        raise ProtocolError(f"{name} has {n_rows} rows and is told of others; the message is refused")
    named = np.zeros(n_rows, dtype=bool)
    named[places] = True
    if (distinct := int(named.sum())) < len(places):
        raise ProtocolError(
            f"{name} is told {len(places):,} rows, which are only {distinct:,} different ones; the message is refused"
        )


def held_places(places: Integers) -> Integers:
    """Return the positions of rows that a party has, without the −1 of those that it lacks."""
    return np.delete(places, np.flatnonzero(places == -1))


def too_few_shared(places: Mapping[str, Integers], holder: str, least: int) -> str:
    """Return which parties have too few of the label holder's rows, without counts; empty if all have enough."""
    shared = {name: len(held_places(one)) for name, one in places.items()}
    few = [name for name, count in shared.items() if count < least]
    if not few:
        return ""
    what = f"fewer than {least:,} ids" if least > 1 else "no id"
    return f"{what} of {holder} {'are' if least > 1 else 'is'} at {', '.join(few)}"


def too_few(count: int, least: int) -> str:
    """Return why there are too few common rows, without the count; empty if there are enough."""
    if count == 0:
        return "no id is common to all"
    return f"fewer than {least:,} ids are common to all" if count < least else ""


def id_kind(ids: pd.Index) -> str:
    """Return the type of ids; refuse mixtures and types that parties may write differently."""
    values = ids.categories if isinstance(ids, pd.CategoricalIndex) else ids
    inferred = pd.api.types.infer_dtype(values, skipna=False)
    if inferred not in _KINDS:
        raise DataError(f"the ids are {inferred} values")
    kind = _KINDS[inferred]
    return kind if kind != "moments" else _kind_of_moments(values)


def _kind_of_moments(values: pd.Index) -> str:
    """Refuse timestamps with and without a time zone, which cannot be compared."""
    if values.dtype == object:
        zoned = {getattr(one, "tzinfo", None) is not None for one in values}
    else:
        zoned = {isinstance(values.dtype, pd.DatetimeTZDtype)}
    if len(zoned) > 1:
        raise DataError("the ids are moments with and without a time zone")
    return "moments with a time zone" if True in zoned else "moments"


def id_sums(ids: pd.Index) -> tuple[str, Integers]:
    """Return the type of ids and two numbers for each: integers and timestamps as they are, checksums of all else."""
    kind = id_kind(ids)
    sums = np.zeros((len(ids), 2), dtype=np.int64)
    if kind == "integers" or kind.startswith("moments"):
        try:
            if kind != "integers":
                sums[:, 0] = pd.DatetimeIndex(pd.to_datetime(ids, utc=True)).tz_localize(None).as_unit("ns").asi8
            else:
                sums[:, 0] = ids.to_numpy()
        except (OverflowError, ValueError, TypeError) as error:
            raise DataError(f"the ids are {kind} that do not fit 64 bits ({error}); make text of them") from error
        return kind, sums
    for start in range(0, len(ids), _AT_ONCE):
        # As Python objects, text takes several times its memory.
        some = ids[start : start + _AT_ONCE]
        text = some.to_numpy(dtype=object) if kind == "text" else np.array([id_text(one) for one in some], dtype=object)
        try:
            for place, key in enumerate(_KEYS):
                hashed = pd.util.hash_array(text, hash_key=key, categorize=False)
                sums[start : start + _AT_ONCE, place] = hashed.view(np.int64)
        except UnicodeEncodeError as error:
            raise DataError(f"an id cannot be written as UTF-8 ({error.reason}); correct it in the table") from error
    return kind, sums


def _repeats(numbers: Integers) -> bool:
    """Return whether a number occurs twice; increasing ids need no lookup table."""
    return not bool((numbers[1:] > numbers[:-1]).all()) and bool(pd.Index(numbers).has_duplicates)


def id_text(value: Any) -> str:
    """Return one text for equal values."""
    if isinstance(value, bytes):
        return value.hex()
    return repr(float(value)) if isinstance(value, float) else str(value)
