"""What the servers of programs have in common: constraint rows of all holders in one numbering, history, the answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.bounds import Bounds
from evenhand.errors import ProtocolError
from evenhand.horizontal.roles import HorizontalServer, Outcome
from evenhand.models.linear import SharedLinear
from evenhand.programs.optimality import SHARED, Residual, SolveStatus
from evenhand.programs.program import Program
from evenhand.programs.regularisers import Regulariser
from evenhand.protocol.answers import Answers
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER


@dataclass(frozen=True, eq=False)
class ServerPart:
    """What the server has of a program, and knows of everybody's.

    Attributes
    ----------
    clients
        Bounds of each client's own constraint rows, by name.
    program
        The server's own, if it has one.
    shared
        Bounds of the constraint rows that all clients have summands of.
    regulariser
        h.
    start
        w⁰.
    row_names
        All constraint rows in words, for the history; where there are none it has no columns for them.
    """

    clients: Mapping[str, Bounds]
    program: Program | None
    shared: Bounds
    regulariser: Regulariser
    start: Array
    row_names: Sequence[str] = ()


class ProgramServer(HorizontalServer):
    """Holds h, bounds of everybody's constraint rows, and constraint rows of its own if it has any.

    Constraint rows of all are numbered: clients' own in the order of names, the server's, then the shared ones.

    Attributes
    ----------
    places
        Where each holder's constraint rows stand in the numbering.
    rounds
        Exchanges of messages with all clients so far.
    outer
        Outer iterations: steps of the multipliers, or quadratic programs.
    residual
        The optimality conditions at the last (w, μ) that was judged.
    status
        How the run ended; None before.
    """

    state_fields: ClassVar = {
        "rounds": int,
        "outer": int,
        "answers": Answers,
        "status": SolveStatus | None,
        "residual": Residual | None,
    }

    def __init__(self, own: ServerPart, sizes: Mapping[str, int]) -> None:
        super().__init__(SERVER, sizes)
        self.clients = {name: own.clients[name] for name in sorted(own.clients)}
        self.program, self.shared, self.regulariser = own.program, own.shared, own.regulariser
        self.row_names = tuple(own.row_names)
        mine = {} if own.program is None else {SERVER: own.program.own}
        holders = {**self.clients, **mine, SHARED: own.shared}
        ends = np.cumsum([0, *(bounds.n_rows for bounds in holders.values())])
        self.places = {name: slice(int(a), int(b)) for name, (a, b) in zip(holders, pairwise(ends), strict=True)}
        self.bounds = Bounds(
            np.concatenate([bounds.lower for bounds in holders.values()]),
            np.concatenate([bounds.upper for bounds in holders.values()]),
        )
        self.answers = Answers()
        self.rounds = self.outer = 0
        self.residual: Residual | None = None
        self.status: SolveStatus | None = None

    @property
    def certificate(self) -> Certificate | None:
        if self.residual is None or self.status is None:
            return None
        return self.residual.certificate(self.rounds, self.status is SolveStatus.CONVERGED)

    @property
    @abstractmethod
    def answer(self) -> Array:
        """w, the model."""

    @abstractmethod
    def tables(self) -> dict[str, Array]:
        """λ⁺ and λ⁻ of the constraint rows whose multipliers the server knows, by holder."""

    def outcome(self) -> Outcome:
        weights = self.answer
        return Outcome(SharedLinear(weights), weights, np.zeros(0, dtype=np.float32), self.tables())

    def check(self, message: Message) -> None:
        """Clients have different numbers of constraint rows of their own."""
        if message.sender not in self.clients:
            raise ProtocolError(f"{message.sender!r} is not a client of this run; its message is refused")
        self.vocabulary.check(message, {**self.sizes, **self.sizes_of(message.sender)})

    def sizes_of(self, client: str) -> dict[str, int]:
        """Sizes of fields that differ from client to client."""
        return {"own": self.clients[client].n_rows}

    def row_report(self, values: Array, exact: Array | None = None) -> dict[str, float]:
        """Each constraint row's value, and its exact one and multipliers where the server knows them."""
        if not self.row_names:
            return {}
        table = np.full((2, len(values)), np.nan)
        for holder, known in self.tables().items():
            table[:, self.places[holder]] = known
        report = {}
        for index, name in enumerate(self.row_names):
            report[f"value[{name}]"] = float(values[index])
            if exact is not None:
                report[f"exact[{name}]"] = float(exact[index])
            if not np.isnan(table[0, index]):
                report[f"upper multiplier[{name}]"] = float(table[0, index])
                report[f"lower multiplier[{name}]"] = float(table[1, index])
        return report
