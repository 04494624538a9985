"""Choose the cut across clients from counts of scores in bins, which the server adds up.

The server sends the trained model and the edges of bins; clients count their training rows of each label in each bin.
The rule of the terms chooses an edge by the summed counts. The second look has finer bins around that edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.thresholds import ANY_SHARE, BEYOND, Band, Threshold, as_band
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
    {"round": Field("i8"), "model": Field("u1", (None,)), "edges": Field("f8", (EDGES,))},
    direction=SERVER_TO_CLIENTS,
    reveals="The trained model (in the first look), and edges of bins of scores. Later edges tell nearly the cut.",
)
BINNED = Schema(
    "scores in bins",
    {"round": Field("i8"), "counts": Field("i8", (2, EDGES + 1))},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "How many of the client's training rows of each label have a score in each bin. Few rows in a bin nearly tell "
        "their scores. Only the sum over clients is used, so it can be masked. Sent only where a rule chooses the cut."
    ),
    adds=Adds(alike=("round",)),
)
COMMON_CUT = Schema(
    "common cut",
    {"cut": Field("f8"), "band": Field("f8", (2,))},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The score at which rows are selected, which the rule of the terms has chosen from the summed counts, and "
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
    model
        The trained model as bytes, which clients can read.

    Attributes
    ----------
    cut, band
        The chosen cut, and bounds of the share of rows above it.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers, "looks": int, "edges": Array, "cut": float, "band": Band}

    def __init__(self, clients: Sequence[str], rule: Threshold, model: bytes) -> None:
        super().__init__(SERVER, {})
        self.clients = tuple(clients)
        self._rule, self._model = rule, np.frombuffer(model, dtype=np.uint8)
        self.answers = Answers()
        self.looks = 0
        self.edges: Array = _FIRST
        self.cut, self.band = 0.0, ANY_SHARE

    @property
    def certificate(self) -> Certificate | None:
        return None

    def outcome(self) -> Outcome:
        raise NotImplementedError("counting trains no model")

    def start(self) -> Sends:
        return self._ask()

    def _ask(self) -> Sends:
        model = self._model if self.looks == 0 else self._model[:0]
        self.looks += 1
        return LOOK.messages(SERVER, self.clients, round=self.looks, model=model, edges=self.edges)

    def handle(self, message: Message) -> Sends:
        if self.done or message.kind != BINNED.kind or message.integer("round") != self.looks:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender} at this point")
        self.answers.add(message)
        if not self.answers.complete([BINNED.kind], self.clients):
            return ()
        counts: Integers = np.sum([body["counts"] for body in self.answers.of(BINNED.kind).values()], axis=0)
        self.answers.clear()
        if (counts < 0).any() or not counts.sum(axis=1).all():
            raise ProtocolError("the clients' counts of scores do not have both labels; the cut cannot be chosen")
        self.cut, low, high = self._rule.choose_edge(self.edges, *counts)
        if self.looks < LOOKS:
            self.edges = np.linspace(low, high, EDGES)
            return self._ask()
        above = self.edges >= self.cut
        share = float(counts[:, 1:][:, above].sum() / counts.sum())
        self.band, self.done = self._rule.band(share, int(counts.sum())), True
        return COMMON_CUT.messages(SERVER, self.clients, cut=self.cut, band=np.array(self.band))


class CountingClient(HorizontalClient):
    """Count the scores of the client's own training rows in bins.

    Parameters
    ----------
    rows
        The client's training rows.
    scores
        Returns their scores by a model, from its bytes.

    Attributes
    ----------
    cut, band
        The cut that the server has chosen, and bounds of the share of rows above it.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"scores": Array, "cut": float, "band": Band, "looks": int, "edges": Array}

    def __init__(self, rows: ClientRows, scores: Callable[[bytes], Array]) -> None:
        super().__init__(rows.name, {})
        self._labels, self._score = rows.labels, scores
        self.scores: Array = np.zeros(0)
        self.edges: Array = np.zeros(0)
        self.looks = 0
        self.cut, self.band = 0.0, ANY_SHARE

    def handle(self, message: Message) -> Sends:
        if self.done:
            raise ProtocolError(f"{self.name} has the cut already; it takes no {message.kind!r}")
        if message.kind == COMMON_CUT.kind and self.looks == LOOKS:
            self._check_cut(message.number("cut"))
            self.cut, self.band, self.done = message.number("cut"), as_band(message["band"]), True
            return ()
        if message.kind != LOOK.kind or not message.integer("round") == self.looks + 1 <= LOOKS:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point: it counts scores {LOOKS} times")
        if (len(message["model"]) > 0) != (self.looks == 0):
            raise ProtocolError(f"{self.name} takes a model in the first look at scores, and in no other")
        edges = message["edges"]
        if (np.diff(edges) <= 0.0).any():
            raise ProtocolError(f"{self.name} was sent edges of bins that do not rise; they are refused")
        if not _close(edges, _FIRST if self.looks == 0 else _finer(edges)):
            raise ProtocolError(
                f"{self.name} was sent edges of bins that are not those of look {self.looks + 1}; they are refused"
            )
        if len(message["model"]):
            self.scores = self._score(message["model"].tobytes())
        self.looks, self.edges = self.looks + 1, edges
        places = np.searchsorted(edges, self.scores)
        counts = [np.bincount(places[part], minlength=EDGES + 1) for part in (self._labels <= 0, self._labels > 0)]
        return [BINNED.message(self.name, SERVER, round=message.integer("round"), counts=np.array(counts))]

    def _check_cut(self, cut: float) -> None:
        """Refuse a cut that is no edge of the last look: no counts can have chosen it."""
        if not np.isclose(cut, [-BEYOND, *self.edges, BEYOND], rtol=ROUNDED, atol=ROUNDED).any():
            raise ProtocolError(f"{self.name} was sent the cut {cut:.6g}, which is no edge of the last look; refused")


def _finer(edges: Array) -> Array:
    """Return the edges of the second look that begin and end as these do: around one edge of the first look."""
    low, high = (int(np.argmin(np.abs(_CUTS - end))) for end in (edges[0], edges[-1]))
    # Beside the lowest and the highest cut there is one gap only.
    outermost = high - low == 1 and (low == 0 or high == len(_CUTS) - 1)
    return np.linspace(_CUTS[low], _CUTS[high], EDGES) if high - low == 2 or outermost else np.full(EDGES, np.nan)


def _close(edges: Array, others: Array) -> bool:
    return bool(np.isclose(edges, others, rtol=ROUNDED, atol=ROUNDED).all())
