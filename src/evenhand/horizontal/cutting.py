"""Choose the cut across clients from counts of scores in bins, which the server adds up.

The server sends the trained model and the edges of bins; clients count their training rows of each label in each bin.
The rule of the terms chooses an edge by the summed counts. The second look has finer bins around that edge. Where each
group has a cut of its own, each has edges and counts, after those of everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.group_cuts import around, equal_rates
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.thresholds import ANY_SHARE, BEYOND, Band, Ranked, Threshold, as_band
from evenhand.errors import ProtocolError
from evenhand.horizontal.problem import ClientRows
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer, Outcome
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS
from evenhand.protocol.messages import Adds, Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.solver import Certificate

EDGES: Final = 511
LOOKS: Final = 2
LARGEST: Final = 16.0
"""Scores beyond this (log-odds) share a bin in the first look."""

_FIRST: Final[Array] = np.linspace(-LARGEST, LARGEST, EDGES)
_CUTS: Final[Array] = np.concatenate([[-BEYOND], _FIRST, [BEYOND]])
ROUNDED: Final = 1e-9
"""Largest relative difference of edges that are computed twice."""

LOOK = Schema(
    "look at scores",
    {
        "round": Field("i8"),
        "model": Field("u1", (None,)),
        "ends": Field("i8", (None,)),
        "edges": Field("f8", ("cuts", EDGES)),
    },
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The trained model, or one for each fold of a client's rows (in the first look), and edges of bins of scores. "
        "Later edges tell nearly the cut."
    ),
)
BINNED = Schema(
    "scores in bins",
    {"round": Field("i8"), "counts": Field("i8", ("cuts", 2, EDGES + 1))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "How many of the client's training rows of each label have a score in each bin; with threshold_by also of each "
        "label and group. Few rows in a bin nearly tell their scores. "
        "Only the sum over clients is used, so it can be masked. Sent only where a rule chooses the cut."
    ),
    adds=Adds(alike=("round",)),
)
COMMON_CUT = Schema(
    "common cut",
    {"cut": Field("f8"), "of_groups": Field("f8", (None,)), "band": Field("f8", (2,))},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The score at which rows are selected, with threshold_by that of each group too, "
        "which the rule of the terms has chosen from the summed counts, and "
        "bounds of the share of rows that is selected."
    ),
)
VOCABULARY = Vocabulary(LOOK, BINNED, COMMON_CUT, title="After a training: choosing the cut across rows")


class CountingServer(HorizontalServer):
    """Ask clients to count scores, and choose the cut.

    Parameters
    ----------
    clients
        Names of the clients.
    rule
        What chooses the cut.
    models
        The trained model as bytes, which clients can read, or the models of all folds.
    closed
        The constraint that cuts by group close; None for one cut.
    groups
        Number of groups with a cut of their own.

    Attributes
    ----------
    cut, band
        The chosen cut, and bounds of the share of rows above it.
    of_groups
        The cut of each group.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "answers": Answers,
        "looks": int,
        "edges": Array,
        "cut": float,
        "band": Band,
        "of_groups": tuple[float, ...],
    }

    def __init__(
        self,
        clients: Sequence[str],
        rule: Threshold,
        models: Sequence[bytes],
        closed: Constraint | None = None,
        groups: int = 0,
    ) -> None:
        super().__init__(SERVER, {"cuts": 1 + groups})
        self.clients = tuple(clients)
        self._rule, self._model = rule, np.frombuffer(b"".join(models), dtype=np.uint8)
        self._ends: Integers = np.cumsum([len(one) for one in models])
        self._closed = closed
        self.answers = Answers()
        self.looks = 0
        self.edges: Array = np.tile(_FIRST, (1 + groups, 1))
        self.cut, self.band = 0.0, ANY_SHARE
        self.of_groups: tuple[float, ...] = ()

    @property
    def certificate(self) -> Certificate | None:
        return None

    def outcome(self) -> Outcome:
        raise NotImplementedError("counting trains no model")

    def start(self) -> Sends:
        return self._ask()

    def _ask(self) -> Sends:
        model, ends = (self._model, self._ends) if self.looks == 0 else (self._model[:0], self._ends[:0])
        self.looks += 1
        return LOOK.messages(SERVER, self.clients, round=self.looks, model=model, ends=ends, edges=self.edges)

    def handle(self, message: Message) -> Sends:
        if self.done or message.kind != BINNED.kind or message.integer("round") != self.looks:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")
        self.answers.add(message)
        if not self.answers.complete([BINNED.kind], self.clients):
            return ()
        counts: Integers = np.sum([body["counts"] for body in self.answers.of(BINNED.kind).values()], axis=0)
        self.answers.clear()
        if (counts < 0).any() or not counts[0].sum(axis=1).all():
            raise ProtocolError("the clients' counts of scores do not have both labels; the cut cannot be chosen")
        found = [Ranked.of_bins(edges, *each) for edges, each in zip(self.edges, counts, strict=True)]
        places = [self._rule.place(found[0])]
        if self._closed is not None:
            places += equal_rates(self._rule, self._closed, found[1:], within=LARGEST if self.looks > 1 else None)
        self.cut, *of_groups = (float(one.cuts[place]) for one, place in zip(found, places, strict=True))
        if self.looks < LOOKS:
            ends = [found[0].around(places[0])]
            for one, place in zip(found[1:], places[1:], strict=True):
                assert self._closed is not None
                ends.append(around(one, place, self._closed))
            self.edges = np.array([np.linspace(low, high, EDGES) for low, high in ends])
            return self._ask()
        self.of_groups = tuple(of_groups)
        share = found[0].selected[places[0]] / found[0].selected[-1]
        self.band, self.done = self._rule.band(float(share), float(found[0].selected[-1])), True
        told = {"cut": self.cut, "of_groups": np.array(self.of_groups), "band": np.array(self.band)}
        return COMMON_CUT.messages(SERVER, self.clients, **told)


class CountingClient(HorizontalClient):
    """Count the scores of the client's own training rows in bins.

    Parameters
    ----------
    rows
        The client's training rows.
    scores
        Returns their scores by models, from their bytes.
    codes
        The group of each row, where groups have cuts of their own.
    groups
        Number of these groups.

    Attributes
    ----------
    cut, band
        The cut that the server has chosen, and bounds of the share of rows above it.
    of_groups
        The cut of each group.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "scores": Array,
        "cut": float,
        "band": Band,
        "of_groups": tuple[float, ...],
        "looks": int,
        "edges": Array,
    }

    def __init__(
        self,
        rows: ClientRows,
        scores: Callable[[Sequence[bytes]], Array],
        codes: Integers | None = None,
        groups: int = 0,
    ) -> None:
        super().__init__(rows.name, {"cuts": 1 + groups})
        self._labels, self._score = rows.labels, scores
        everybody = np.ones(len(rows.labels), dtype=bool)
        self._parts: list[Booleans] = [everybody, *(np.asarray(codes == one) for one in range(groups))]
        self.scores: Array = np.zeros(0)
        self.edges: Array = np.zeros(0)
        self.looks = 0
        self.cut, self.band = 0.0, ANY_SHARE
        self.of_groups: tuple[float, ...] = ()

    def handle(self, message: Message) -> Sends:
        if self.done:
            raise ProtocolError(f"{self.name} has the cut already; it takes no {message.kind!r}")
        if message.kind == COMMON_CUT.kind and self.looks == LOOKS:
            of_groups, groups = tuple(message["of_groups"].tolist()), len(self._parts) - 1
            if len(of_groups) != groups:
                raise ProtocolError(f"{self.name} was sent cuts of {len(of_groups)} groups; there are {groups}")
            for edges, cut in zip(self.edges, (message.number("cut"), *of_groups), strict=True):
                self._check_cut(edges, cut)
            self.band, self.of_groups = as_band(message["band"]), of_groups
            self.cut, self.done = message.number("cut"), True
            return ()
        if message.kind != LOOK.kind or not message.integer("round") == self.looks + 1 <= LOOKS:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point: it counts scores {LOOKS} times")
        if (len(message["model"]) > 0) != (self.looks == 0):
            raise ProtocolError(f"{self.name} takes a model in the first look at scores, and in no other")
        edges = message["edges"]
        if (np.diff(edges, axis=1) <= 0.0).any():
            raise ProtocolError(f"{self.name} was sent edges of bins that do not rise; they are refused")
        expected = [_FIRST if self.looks == 0 else _finer(one, of_group=place > 0) for place, one in enumerate(edges)]
        if not _close(edges, np.array(expected)):
            raise ProtocolError(
                f"{self.name} was sent edges of bins that are not those of look {self.looks + 1}; they are refused"
            )
        if len(message["model"]):
            self.scores = self._score(_parts(message["model"].tobytes(), message["ends"].tolist()))
        self.looks, self.edges = self.looks + 1, edges
        counts = [self._counted(inside, own) for inside, own in zip(self._parts, edges, strict=True)]
        return [BINNED.message(self.name, SERVER, round=message.integer("round"), counts=np.array(counts))]

    def _counted(self, inside: Booleans, edges: Array) -> list[Integers]:
        """Count some rows of each label in bins."""
        places, positive = np.searchsorted(edges, self.scores), self._labels > 0
        return [np.bincount(places[inside & part], minlength=EDGES + 1) for part in (~positive, positive)]

    def _check_cut(self, edges: Array, cut: float) -> None:
        """Refuse a cut that is no edge of the last look: no counts can have chosen it."""
        if not np.isclose(cut, [-BEYOND, *edges, BEYOND], rtol=ROUNDED, atol=ROUNDED).any():
            raise ProtocolError(f"{self.name} was sent the cut {cut:.6g}, which is no edge of the last look; refused")


def _parts(joined: bytes, ends: Sequence[int]) -> list[bytes]:
    """Divide the bytes of several models."""
    starts = [0, *ends[:-1]]
    if not ends or ends[-1] != len(joined) or any(end <= start for start, end in zip(starts, ends, strict=True)):
        raise ProtocolError("the server sent models that cannot be told apart")
    return [joined[start:end] for start, end in zip(starts, ends, strict=True)]


def _finer(edges: Array, *, of_group: bool) -> Array:
    """Return the edges of the second look that begin and end as these do: around one edge of the first look.

    Those of a group may be around several edges, between which no row of the group is.
    """
    low, high = (int(np.argmin(np.abs(_CUTS - end))) for end in (edges[0], edges[-1]))
    # Beside the lowest and the highest cut there is one gap only.
    outermost = high - low == 1 and (low == 0 or high == len(_CUTS) - 1)
    allowed = high - low == 2 or outermost or (of_group and high > low)
    return np.linspace(_CUTS[low], _CUTS[high], EDGES) if allowed else np.full(EDGES, np.nan)


def _close(edges: Array, others: Array) -> bool:
    return bool(np.isclose(edges, others, rtol=ROUNDED, atol=ROUNDED).all())
