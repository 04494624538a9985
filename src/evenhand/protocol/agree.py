"""Agree on properties of the data: each client sends a summary, the server combines them and returns the result.

Clients agree in this way on columns and their encoding, on classes and groups, and on the number of rows in each slice.
Active parties other than the label holder get labels and groups from the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.thresholds import ANY_SHARE, Band, as_band
from evenhand.errors import ProtocolError
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS, Coverage, Direction
from evenhand.protocol.messages import TEXT, Field, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Follower, Role, Sends

Summary: TypeAlias = Mapping[str, Any]
"""Plain values by name, as in JSON."""

SUMMARY = Schema(
    "summary",
    {"summary": TEXT},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "A summary of the client's data. If nothing was agreed beforehand: for each numeric column and date "
        "the number of values, mean, sum of squared deviations and range, and with curves or bins then also the "
        "number of values between some 300 edges, which tell the values of few rows nearly; for each other column "
        "its levels (with max_levels also their counts); for each column whether values are missing and whether all "
        "differ; and the labels and groups that occur. If a constraint crosses attributes, also which "
        "combinations occur with which labels. For solvers that weight all rows alike from the first round "
        "on, also the number of rows, in total and in each slice of the constraints; where rows have weights, "
        "their totals too. Only sums over clients are used."
    ),
    coverage=Coverage(noise_covers=True),
)
AGREED = Schema(
    "agreed",
    {"agreed": TEXT},
    direction=SERVER_TO_CLIENTS,
    reveals=(
        "The agreement, to every client: the encoding of columns (means and deviations over all clients' "
        "rows, all levels), the classes and groups, the combinations that are compared, and the number of "
        "rows in total and in each slice."
    ),
)
LABELS = Schema(
    "labels",
    {"labels": Field("f8", ("rows",)), "groups": Field("i8", ("attributes", "rows"))},
    direction=Direction("server", "active party"),
    reveals=(
        "All labels and all groups, to a party that the terms name as active. If a constraint holds by pattern of "
        "presence, also which other parties have each row; rare patterns are one."
    ),
)
CUT = Schema(
    "cut",
    {"cut": Field("f8"), "band": Field("f8", (2,))},
    direction=Direction("server", "active party"),
    reveals=(
        "The score at which rows are selected, which the rule of the terms has chosen from the labels and the scores "
        "of earlier models, and bounds of the share that is selected, to parties that have the labels. Sent only where "
        "a rule chooses the cut before the last training."
    ),
)
VOCABULARY = Vocabulary(SUMMARY, AGREED, LABELS, CUT, title="Before training: agreeing")


class AgreeServer(Role):
    """Combine the summaries of all participants.

    Parameters
    ----------
    combine
        Makes one summary from all of them, by name. It raises an error if they do not fit together.

    Attributes
    ----------
    agreed
        The combined summary.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers, "agreed": Any}

    def __init__(self, clients: Sequence[str], combine: Callable[[Mapping[str, Summary]], Summary]) -> None:
        super().__init__(SERVER, {})
        self.clients = tuple(clients)
        self._combine = combine
        self.answers = Answers()
        self.agreed: Summary | None = None

    def handle(self, message: Message) -> Sends:
        if message.kind != SUMMARY.kind or message.sender not in self.clients or self.agreed is not None:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        message.json("summary")
        self.answers.add(message)
        if not self.answers.complete([SUMMARY.kind], self.clients):
            return ()
        bodies = self.answers.of(SUMMARY.kind)
        summaries = {name: Message(name, SERVER, SUMMARY.kind, bodies[name]).json("summary") for name in self.clients}
        self.agreed, self.done = self._combine(summaries), True
        text = as_bytes(self.agreed)
        return [AGREED.message(SERVER, name, agreed=text) for name in self.clients]


class AgreeClient(Follower):
    """Send the client's summary and receive the combined one."""

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"agreed": Any}

    def __init__(self, name: str, summary: Summary) -> None:
        super().__init__(name, {})
        self._summary = summary
        self.agreed: Summary | None = None

    def start(self) -> Sends:
        return [SUMMARY.message(self.name, SERVER, summary=as_bytes(self._summary))]

    def handle(self, message: Message) -> Sends:
        if message.kind != AGREED.kind or self.agreed is not None:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        self.agreed, self.done = message.json("agreed"), True
        return ()


class LabelServer(Role):
    """Send labels and groups to the other active parties."""

    vocabulary = VOCABULARY

    def __init__(self, active: Sequence[str], labels: Array, codes: Mapping[str, Integers]) -> None:
        super().__init__(SERVER, {})
        self.active = tuple(active)
        self._labels = labels
        self._codes = np.array(list(codes.values()), dtype=np.int64).reshape(len(codes), len(labels))
        self.done = True

    def start(self) -> Sends:
        return [LABELS.message(SERVER, name, labels=self._labels, groups=self._codes) for name in self.active]

    def handle(self, message: Message) -> Sends:
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")


class LabelParty(Follower):
    """Receive labels and groups.

    Attributes
    ----------
    labels, codes
        Labels and group codes of each row; a code is a position among the agreed values.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"labels": Array | None, "codes": dict[str, Integers]}

    def __init__(self, name: str, n_rows: int, groups: Sequence[str]) -> None:
        super().__init__(name, {"rows": n_rows, "attributes": len(groups)})
        self._attributes = tuple(groups)
        self.labels: Array | None = None
        self.codes: dict[str, Integers] = {}

    def handle(self, message: Message) -> Sends:
        if message.kind != LABELS.kind or self.done:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        self.labels = message["labels"]
        self.codes = dict(zip(self._attributes, message["groups"], strict=True))
        self.done = True
        return ()


class CutServer(Role):
    """Send the cut to the parties that have the labels."""

    vocabulary = VOCABULARY

    def __init__(self, active: Sequence[str], cut: float, band: Band) -> None:
        super().__init__(SERVER, {})
        self.active = tuple(active)
        self._cut, self._band = cut, np.array(band)
        self.done = True

    def start(self) -> Sends:
        return [CUT.message(SERVER, name, cut=self._cut, band=self._band) for name in self.active]

    def handle(self, message: Message) -> Sends:
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")


class CutParty(Follower):
    """Receive the cut.

    Attributes
    ----------
    cut
        The score above which a row is selected.
    band
        Bounds of the share of rows that is.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"cut": float, "band": Band}

    def __init__(self, name: str) -> None:
        super().__init__(name, {})
        self.cut = 0.0
        self.band = ANY_SHARE

    def handle(self, message: Message) -> Sends:
        if message.kind != CUT.kind or self.done:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        self.cut, self.band, self.done = message.number("cut"), as_band(message["band"]), True
        return ()
