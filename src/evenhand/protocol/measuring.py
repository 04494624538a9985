"""Measure the shared model: each client receives it and returns counts of its decisions on its own rows.

This happens after training, so that the result can be shown and every client has the model. No row leaves a client.
Exact counts change with a single record. Clients that protect their updates by noise therefore return none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.protocol.agree import Summary
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import CLIENT_TO_SERVER, SERVER_TO_CLIENTS, Coverage
from evenhand.protocol.messages import TEXT, Field, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Follower, Role, Sends

MODEL = Schema(
    "trained-model",
    {"model": Field("u1", (None,))},
    direction=SERVER_TO_CLIENTS,
    reveals="The trained model, which all clients share.",
)
COUNTS = Schema(
    "counts-by-group",
    {"counts": TEXT},
    direction=CLIENT_TO_SERVER,
    reveals=(
        "To the server: for each combination of label and groups, of training rows and of held-out rows, the "
        "client's number of rows, the number that the model decides positively, and the sums of their losses. A single "
        "record changes them. With noise on updates it is not sent."
    ),
)
RECEIVED = Schema(
    "model-received",
    {},
    direction=CLIENT_TO_SERVER,
    reveals="That the client has the model. With noise on updates it is all that the client says of it.",
    coverage=Coverage(noise_covers=True),
)
MEASURED = Schema(
    "measured",
    {"clients": Field("i8")},
    direction=SERVER_TO_CLIENTS,
    reveals="That the server has all clients' counts.",
)
VOCABULARY = Vocabulary(MODEL, COUNTS, RECEIVED, MEASURED, title="After training: measuring across rows")


class MeasureServer(Role):
    """Send the model and collect the counts of each client.

    Parameters
    ----------
    model
        As bytes, opaque to the protocol.
    counts
        Whether clients return counts.

    Attributes
    ----------
    counts
        The counts by client; empty without counts.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers}

    def __init__(self, clients: Sequence[str], model: bytes, *, counts: bool = True) -> None:
        super().__init__(SERVER, {})
        self.clients = tuple(clients)
        self._model = np.frombuffer(model, dtype=np.uint8)
        self.answers = Answers()
        self._kind = COUNTS.kind if counts else RECEIVED.kind

    def start(self) -> Sends:
        return [MODEL.message(SERVER, name, model=self._model) for name in self.clients]

    def handle(self, message: Message) -> Sends:
        if message.kind != self._kind or message.sender not in self.clients or self.done:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        if message.kind == COUNTS.kind:
            message.json("counts")
        self.answers.add(message)
        if not self.answers.complete([self._kind], self.clients):
            return ()
        self.done = True
        return [MEASURED.message(SERVER, name, clients=len(self.clients)) for name in self.clients]

    @property
    def counts(self) -> Mapping[str, Summary]:
        bodies = self.answers.of(COUNTS.kind)
        return {name: Message(name, SERVER, COUNTS.kind, bodies[name]).json("counts") for name in bodies}


class MeasureClient(Follower):
    """Receive the model and count its decisions on the client's own rows.

    Parameters
    ----------
    measure
        Returns the counts for the model's bytes. None returns no counts, however the server asks.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"model": bytes | None}

    def __init__(self, name: str, measure: Callable[[bytes], Summary] | None) -> None:
        super().__init__(name, {})
        self._measure = measure
        self.model: bytes | None = None

    def handle(self, message: Message) -> Sends:
        if message.kind == MODEL.kind and self.model is None:
            self.model = message["model"].tobytes()
            if self._measure is None:
                return [RECEIVED.message(self.name, SERVER)]
            return [COUNTS.message(self.name, SERVER, counts=as_bytes(self._measure(self.model)))]
        if message.kind == MEASURED.kind and self.model is not None:
            self.done = True
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
