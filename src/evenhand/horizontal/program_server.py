"""What the servers of programs have in common: inequalities of all holders in one numbering, history, the answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix
from evenhand.constraints.kinds import NeymanPearson
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.slices import Bounds, bounds_of
from evenhand.errors import DataError, InputError, ProtocolError
from evenhand.horizontal.problem import ClientRows, HorizontalServerData
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer, Outcome
from evenhand.models.linear import SharedLinear
from evenhand.programs.optimality import SHARED, Residual, SolveStatus
from evenhand.programs.program import Program
from evenhand.programs.slices import ObjectiveWeights, SliceProgram, sample_program
from evenhand.protocol.asking import Answers
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.protocol.solver import Certificate, Solver
from evenhand.protocol.terms import HorizontalTerms


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
    start
        w⁰.
    row_names
        Names of all inequalities, for the history. If empty, the history has no columns for them.
    classes
        Number of classes; None for two.
    """

    clients: Mapping[str, Bounds]
    program: Program | None
    shared: Bounds
    start: Array
    row_names: Sequence[str] = ()
    classes: int | None = None


class ProgramServer(HorizontalServer):
    """Server with the bounds of all inequalities, and its own inequalities if it has any.

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
        self.program, self.shared = own.program, own.shared
        self.row_names = tuple(own.row_names)
        self.classes = own.classes
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
        unmet = self.unmet() or self.shortfall() or None
        return self.residual.certificate(self.rounds, self.status is SolveStatus.CONVERGED, unmet)

    def unmet(self) -> str | None:
        """Say which part of the stopping rule is not met, where stationarity and violation do not tell."""
        return None

    @property
    @abstractmethod
    def answer(self) -> Array:
        """w, the weights of the model."""

    @abstractmethod
    def tables(self) -> dict[str, Array]:
        """Return λ⁺ and λ⁻ of the inequalities with multipliers that the server knows, by holder."""

    def outcome(self) -> Outcome:
        weights = self.answer
        return Outcome(SharedLinear(weights, self.classes), weights, np.zeros(0, dtype=np.float32), self.tables())

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


def client_program(terms: HorizontalTerms, name: str, rows: ClientRows, objective: ObjectiveWeights) -> SliceProgram:
    """Return a client's program.

    It has the client's share of the objective, the client's own inequalities, and its summands of the shared
    inequalities.
    """
    regulariser = np.full(terms.shape[0] + 1, terms.regulariser)
    # The last column is the intercept, which is not penalised.
    regulariser[-1] = 0.0
    return sample_program(
        _sample(terms, rows),
        terms.own_inequalities(name),
        terms.shared_inequalities,
        each=_row_weights(terms, name, rows, objective),
        counts=terms.slice_counts if terms.weights is None else terms.weights[1],
        # The clients' regularisers add up to that of the whole problem.
        regulariser=regulariser / len(terms.names),
        loss=terms.job.loss_function,
        classes=terms.classes,
    )


def _row_weights(terms: HorizontalTerms, name: str, rows: ClientRows, objective: ObjectiveWeights) -> float | Array:
    """Return the weight of each of the client's rows in the objective."""
    labels, weights = rows.labels, rows.weight_of_rows
    if objective == "rows":
        return 1.0 / terms.n_rows if terms.weights is None else weights / terms.weights[0]
    counted: Array = np.full(len(labels), True)
    if objective == "other-class":
        (bounded,) = {one.label for one in terms.job.constraints if isinstance(one, NeymanPearson)}
        counted = labels != bounded
        if not counted.any():
            raise DataError(
                f"client {name!r} has no rows of the class without a bound, and objective='other-class' averages "
                "them at each client; choose 'rows' or 'clients'"
            )
    found: Array = counted * weights / (len(terms.names) * (counted @ weights))
    return found


def server_program(terms: HorizontalTerms, rows: ClientRows | None) -> SliceProgram | None:
    """Return a program with the server's own inequalities (proximal AL Eq. 32), or None if it has no data."""
    if rows is None:
        return None
    return sample_program(
        _sample(terms, rows),
        terms.own_inequalities(SERVER),
        loss=terms.job.loss_function,
        classes=terms.classes,
    )


def server_part(terms: HorizontalTerms, own: HorizontalServerData, program: SliceProgram | None) -> ServerPart:
    """Return the server's part of the problem of a linear model; `program` comes from `server_program`."""
    bounds = {name: bounds_of(terms.own_inequalities(name)) for name in terms.names}
    start = first_weights(terms, own)
    return ServerPart(bounds, program, shared_bounds(terms), start, terms.row_names, terms.classes)


def shared_bounds(terms: HorizontalTerms) -> Bounds:
    """Return the bounds of the shared inequalities, of which all clients have summands."""
    return bounds_of(terms.shared_inequalities)


def weights(terms: HorizontalTerms) -> int:
    """Return d, the number of weights: one a column, and the intercept, for each class if there are more than two."""
    return (terms.shape[0] + 1) * (terms.classes or 1)


def first_weights(terms: HorizontalTerms, own: HorizontalServerData) -> Array:
    """Return w⁰: the weights of another run if given, else zeros."""
    size = weights(terms)
    if own.start is None:
        return np.zeros(size)
    if own.start.weights.shape != (size,):
        raise InputError(f"the start has {own.start.weights.size} weights, but the model needs {size}")
    return np.array(own.start.weights, dtype=np.float64)


def program_solver(**given: Any) -> Solver[HorizontalServer, HorizontalClient]:
    """Return the registry entry of a solver of programs; `given` completes the fields that all of them share."""
    return Solver(
        **given,
        split="horizontal",
        tol=1e-3,
        models=("linear",),
        protections=("none", "masked"),
        scopes=("global", "local", "both"),
        takes_server_rows=True,
        weighs_rows=True,
    )


def tolerances(job: Job) -> dict[str, float]:
    """Return the job's tolerance as ε₁ and ε₂, or nothing if it is zero; refuse an objective that lacks its class."""
    bounded = {one.label for one in job.constraints if isinstance(one, NeymanPearson)}
    if job.options.get("objective") == "other-class" and len(bounded) != 1:
        raise InputError(
            "objective is 'other-class', which needs a Neyman-Pearson constraint on one class; choose 'rows' or "
            "'clients'"
        )
    return {"stationarity": job.tol, "feasibility": job.tol} if job.tol > 0 else {}


def _sample(terms: HorizontalTerms, rows: ClientRows) -> FeatureRows:
    rows = rows.agreed(terms.groups)
    ones = np.ones((rows.n_rows, 1))
    if sp.issparse(rows.features):
        features: Matrix = sp.hstack([rows.features, ones], format="csr")
    else:
        features = np.hstack([np.asarray(rows.features, dtype=np.float64), ones])
    classifies = terms.job.loss_function.classifies
    return FeatureRows(features, rows.labels, rows.groups, classifies=classifies, sample_weight=rows.sample_weight)
