"""What a file of `horizontal/` must provide to be a solver; see `docs/add-a-solver.md`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.proving import Proof
from evenhand.constraints.scope import Scope
from evenhand.horizontal.problem import ClientData, HorizontalServerData, Single
from evenhand.protocol.certificate import Certificate
from evenhand.protocol.job import Job, ModelName
from evenhand.protocol.roles import Follower, Role
from evenhand.protocol.terms import HorizontalTerms


class HorizontalModel(Protocol):
    """The model all clients share."""

    def predict(self, features: npt.ArrayLike) -> Array:
        """One score a row, positive for label +1; with more than two classes one score a class."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a server ends with.

    Attributes
    ----------
    model
        The trained model.
    weights, statistics
        Its weights and running statistics (of batch normalisation), flat.
    multipliers
        λ⁺ and λ⁻ of constraint rows, (2, rows), by holder: a client's name, ``"server"`` or ``"shared"``. Those that
        only a client knows are with the client.
    raw_multipliers
        As the solver has them itself, for another run to begin with; None where the tables say it all.
    """

    model: HorizontalModel
    weights: Single | Array
    statistics: Single
    multipliers: Mapping[str, Array]
    raw_multipliers: Array | None = None


class HorizontalServer(Role):
    """What every solver's server has once it is done."""

    @property
    @abstractmethod
    def certificate(self) -> Certificate | None:
        """How well the model satisfies the optimality conditions on everybody's rows; None before the end."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """The result of the finished run."""

    def sizes_of(self, client: str) -> dict[str, int]:
        """Sizes of fields that differ from client to client."""
        return {}

    def shortfall(self) -> str:
        """What of the result is not as it was asked for, beyond the certificate, in words; empty if nothing is."""
        return ""

    def proofs(self) -> list[Proof]:
        """What the training rows prove of new people, where a constraint asks for confidence."""
        return []

    def record(self) -> dict[str, Any]:
        """What else is worth keeping of a finished run, as plain values."""
        return {}


class HorizontalClient(Follower):
    """What every solver's client has once it is done."""

    @property
    def least_summed(self) -> int:
        """Of how many clients' answers a sum must be made, where this one helps to take the masks off."""
        return 2

    def own_multipliers(self) -> Array:
        """(2, rows): λ⁺ and λ⁻ of constraint rows that nobody else knows the multipliers of."""
        return np.zeros((2, 0))


@dataclass(frozen=True)
class HorizontalSolver:
    """A solver: the functions that build its roles, and what it can do.

    Nobody's constructor sees another's data: a role is built from the terms and from what its owner has.

    Attributes
    ----------
    options
        A dataclass that checks itself.
    server, client
        Build a role.
    batched
        Builds all clients of one process at once, equal to one by one to the bit; None where nothing is gained by it.
    from_job
        Options that the job's own fields give where its options say nothing.
    models
        Names of the models it trains.
    many_classes
        Whether it trains with more than two classes.
    takes_constraints, default_constraints
        Whether it trains under constraints, and under which where the job names none.
    takes_protection
        Whether clients can protect what they send by noise.
    scopes
        Where its constraints can hold.
    takes_server_rows
        Whether the server may have rows of its own.
    takes_confidence
        Whether it trains towards what holds among new people.
    needs_groups
        Whether it compares groups although it takes no constraint.
    weighs_rows
        Whether a client must know from the start how many rows there are in all, and in each slice of constraint rows
        that all share.
    fixed_rounds
        Whether it trains for as many rounds as the job says, instead of ending when it is done.
    default_rounds
        Most rounds where the user does not say.
    """

    options: type[Any]
    server: Callable[[HorizontalTerms, HorizontalServerData], HorizontalServer]
    client: Callable[[HorizontalTerms, str, ClientData], HorizontalClient]
    batched: Callable[[HorizontalTerms, Mapping[str, ClientData]], Sequence[HorizontalClient]] | None = None
    from_job: Callable[[Job], Mapping[str, Any]] | None = None
    models: tuple[ModelName, ...] = ("linear", "mlp", "resnet18", "module")
    many_classes: bool = True
    takes_constraints: bool = True
    default_constraints: tuple[Constraint, ...] = ()
    takes_protection: bool = True
    scopes: tuple[Scope, ...] = ("global",)
    takes_server_rows: bool = False
    takes_confidence: bool = False
    needs_groups: bool = False
    weighs_rows: bool = False
    fixed_rounds: bool = True
    default_rounds: int = 100

    def settings(self, job: Job) -> Any:
        """Return the options of a job for this solver, checked."""
        return job.settings(self.options, None if self.from_job is None else self.from_job(job))
