"""What the servers of programs have in common: inequalities of all holders in one numbering, history, the answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import ProtocolError
from evenhand.horizontal.roles import HorizontalServer, Outcome
from evenhand.models.linear import SharedLinear
from evenhand.programs.optimality import SHARED, Residual, SolveStatus
from evenhand.programs.program import Program
from evenhand.programs.regularisers import Regulariser
from evenhand.protocol.asking import Answers
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.protocol.solver import Certificate


@dataclass(frozen=True, eq=False)
class ServerPart:
    """The server's part of a program, and the bounds of all other parts.

    Attributes
    ----------
    clients
        Bounds of each client's own inequalities, by name.
    program
        The server's own program, if it has one.
    shared
        Bounds of the shared inequalities, of which all clients have summands.
    regulariser
        h.
    start
        w⁰.
    row_names
        Names of all inequalities, for the history. If empty, the history has no columns for them.
    """

    clients: Mapping[str, Bounds]
    program: Program | None
    shared: Bounds
    regulariser: Regulariser
    start: Array
    row_names: Sequence[str] = ()


class ProgramServer(HorizontalServer):
    """Server with h, the bounds of all inequalities, and its own inequalities if it has any.

    Inequalities are numbered in this order: the clients' own, by client name; the server's; the shared ones.

    Attributes
    ----------
    places
        Positions of each holder's inequalities in this numbering.
    rounds
        Communication rounds with all clients so far.
    outer
        Outer iterations: updates of the multipliers, or quadratic programs.
    residual
        Residual of the optimality conditions at the last evaluated (w, μ).
    status
        How the run ended; None while it runs.
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
        """w, the weights of the model."""

    @abstractmethod
    def tables(self) -> dict[str, Array]:
        """Return λ⁺ and λ⁻ of the inequalities with multipliers that the server knows, by holder."""

    def outcome(self) -> Outcome:
        weights = self.answer
        return Outcome(SharedLinear(weights), weights, np.zeros(0, dtype=np.float32), self.tables())

    def check(self, message: Message) -> None:
        """Refuse unknown senders and wrong sizes; clients differ in their numbers of own inequalities."""
        if message.sender not in self.clients:
            raise ProtocolError(f"{message.sender!r} is not a client of this run; its message is refused")
        self.vocabulary.check(message, {**self.sizes, **self.sizes_of(message.sender)})

    def sizes_of(self, client: str) -> dict[str, int]:
        """Return the sizes of fields that differ between clients."""
        return {"own": self.clients[client].n_rows}

    def row_report(self, values: Array, exact: Array | None = None) -> dict[str, float]:
        """Return the value of each inequality, with exact values and multipliers if the server knows them."""
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
