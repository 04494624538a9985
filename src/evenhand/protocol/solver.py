"""The entry of a solver in the registry, the same for both splits; see `docs/add-a-solver.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

from evenhand.constraints.kinds import Constraint
from evenhand.constraints.scope import Scope
from evenhand.protocol.job import Job, ModelName, Protection
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.roles import Role

Split = Literal["vertical", "horizontal"]
ServerRole = TypeVar("ServerRole", bound=Role, covariant=True)
OtherRole = TypeVar("OtherRole", bound=Role, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Solver(Generic[ServerRole, OtherRole]):
    """A solver: how its roles are built, what its messages are, what it takes and where it runs.

    A role is built from the terms and from its owner's data. No constructor sees another participant's data.

    Attributes
    ----------
    name, split
        A job chooses a solver by both.
    options
        A dataclass that checks itself.
    server
        Builds the server's role from the terms and the server's data.
    participant
        Builds the role of a party or client from the terms, its name and its data.
    compiled
        Vertical only: builds one role that does the work of all parties in a compiled loop and counts the messages.
        None where there is no such loop.
    batched
        Horizontal only: builds all clients of one process together. The results equal those of clients built one by one
        to the bit. None where batching gains nothing.
    vocabulary
        The kinds of messages that its roles send. Protection layers add their own.
    runtimes
        What can run it: "messages" (any runtime that delivers messages, in process or NVIDIA FLARE), "flower",
        "threads" and "interleaved" (its compiled loop).
    models, losses
        The models and losses that it trains.
    curves
        Whether numbers are curves by default, rather than standardised.
    many_classes
        Whether it trains with more than two classes.
    takes_class_rates
        Horizontal only: whether constraints can then be on rates, and among the rows of a class.
    takes_constraints, default_constraints
        Whether it trains under constraints, and under which where the job names none.
    takes_confidence
        Whether a constraint can hold for new people with a given confidence.
    scopes
        Where its constraints can hold: over all rows ("global"), over each client's ("local"), or "both".
    bounds_means
        Whether constraints can bound mean losses and mean predictions of targets that are numbers.
    takes_weights
        Whether rows can have sample weights, in the loss and in constraints.
    takes_monotone
        Whether scores can be made to rise, or fall, with a column.
    takes_server_rows
        Whether the server may have rows of its own.
    protections
        The levels of protection that it runs with.
    masked_by_default
        Whether ``"auto"`` is ``"masked"`` where there are passive parties to sum over, because it costs next to
        nothing.
    takes_label_privacy
        Whether it can train on randomised responses. None of its messages then depends on labels in another way.
    takes_noise
        Whether clients can add noise to their updates.
    agrees_on_keys
        Whether parties send each other masked messages. They then agree on keys first.
    needs_groups
        Whether it compares groups although it takes no constraint.
    weighs_rows
        Whether a client must know from the start the total number of rows, and that in each slice of the shared
        inequalities.
    exact
        Whether it ends at the optimum, rather than near it or at the optimum of a smaller problem.
    tol
        Its stopping tolerance where the job gives none.
    fixed_rounds, default_rounds
        Whether it trains for exactly as many rounds as the job says, and the most rounds where the job says nothing.
    from_job
        Options that follow from the job's own fields where its options say nothing.
    """

    name: str
    split: Split
    options: type[Any]
    server: Callable[[Any, Any], ServerRole]
    participant: Callable[[Any, str, Any], OtherRole]
    vocabulary: Vocabulary
    models: tuple[ModelName, ...]
    curves: bool = False
    compiled: Callable[[Any, Any, Mapping[str, Any]], ServerRole] | None = None
    batched: Callable[[Any, Mapping[str, Any]], Sequence[OtherRole]] | None = None
    runtimes: tuple[str, ...] = ("messages", "flower")
    losses: tuple[str, ...] = ("logistic",)
    many_classes: bool = False
    takes_class_rates: bool = False
    takes_constraints: bool = True
    default_constraints: tuple[Constraint, ...] = ()
    takes_confidence: bool = False
    scopes: tuple[Scope, ...] = ("global",)
    bounds_means: bool = False
    takes_weights: bool = False
    takes_monotone: bool = False
    takes_server_rows: bool = False
    protections: tuple[Protection, ...] = ("none",)
    masked_by_default: bool = False
    takes_label_privacy: bool = False
    takes_noise: bool = False
    agrees_on_keys: bool = False
    needs_groups: bool = False
    weighs_rows: bool = False
    exact: bool = True
    tol: float = 1e-4
    fixed_rounds: bool = False
    default_rounds: int = 100
    from_job: Callable[[Job], Mapping[str, Any]] | None = None

    def settings(self, job: Job) -> Any:
        """Return the options of a job for this solver, checked."""
        return job.settings(self.options, None if self.from_job is None else self.from_job(job))


@dataclass(frozen=True)
class Certificate:
    """Optimality conditions, measured at the returned model and multipliers.

    Attributes
    ----------
    stationarity
        Norm of the gradient of the full Lagrangian in all parties' weights, regularisers included.
    violation
        Largest violation of a constraint on the training rows; zero if all hold.
    complementarity
        Complementary slackness: the largest multiplier × slack.
    objective
        Mean training loss plus regularisers.
    rounds
        Communication rounds used.
    converged
        Whether the solver's stopping rule was met before the round limit.
    bound
        Upper bound on (F − F*) / F, the relative distance of the objective from the constrained optimum. None if no
        bound holds or it was not measured.
    estimate
        Estimate of that distance, seldom below it and often much nearer than the bound; `subspace` stops by it. Also
        stated where no bound holds: for rates, and where constraints give a row negative weight.
    unmet
        Which part of the stopping rule was not met, where the numbers above do not tell. None if they do.
    """

    stationarity: float
    violation: float
    complementarity: float
    objective: float
    rounds: int
    converged: bool
    bound: float | None = None
    estimate: float | None = None
    unmet: str | None = None

    def as_dict(self) -> dict[str, float | int | bool | str | None]:
        return asdict(self)
