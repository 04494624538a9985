"""The path of every run: each participant takes its own steps, and somebody runs them.

A participant (the server, a party, a client, a dealer) is a generator, its **steps**. It sees nothing but its own data.
It yields one of two things:

- a `Role`: its role in one exchange before or after training (enrol, align, agree, hand over labels, finish, score).
  The generator goes on when the role is done, and reads what it learned from the role.
- one `Training`: what it brings to the training stage. It gets back what training leaves with it (a party its model,
  the server the solver's server), as the value of the ``yield`` expression.

It returns what the participant has at the end. A split defines its steps once (`training/vertical_steps.py`), from
*sources* of own data: a table that a job file names, or a frame in memory. Two drivers run them:

- `alone` turns the steps of one participant into roles only, for a site of its own (`runtime/site.py`,
  `runtime/visits.py`): NVIDIA FLARE, Flower, threads in tests.
- `Together` runs everybody in this process: jobs, estimators, `check`, `audit`. It gathers everybody's `Training`, so
  that the split can use what is faster in one process (a compiled loop, batched clients, threads, a virtual clock).

To port a split: write its steps, subclass `Training`, and call both drivers from the fronts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from typing import Any, Generic, TypeAlias, TypeVar

from evenhand.errors import ProtocolError, RunError
from evenhand.protocol.enrol import EnrolParty, EnrolServer
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.site import Program
from evenhand.training.run import one_blas_thread

Result = TypeVar("Result")
AnyTerms = TypeVar("AnyTerms", bound=Terms)
Stage = TypeVar("Stage", bound="Training")


class Training(ABC):
    """What one participant brings to the training stage: terms and its own data.

    Attributes
    ----------
    name
        The participant's name.
    """

    name: str

    @abstractmethod
    def role(self) -> Role:
        """Build the participant's role from its terms and its own data."""

    @abstractmethod
    def outcome(self, role: Role) -> Any:
        """Return what the participant continues with once its role is done."""

    @abstractmethod
    def identity(self) -> Iterable[Any]:
        """Return all that makes this training the same as an earlier one, to resume it: terms and data."""


Steps: TypeAlias = Generator[Role | Training, Any, Result]
"""What a participant does: it yields roles and one training stage, and returns what it has at the end."""
Keeper: TypeAlias = Callable[[Role, Iterable[Any]], Program[None]]
"""Runs a training role at a site, with checkpoints; it is given the role and its `Training.identity`."""


def without_checkpoints(role: Role, _: Iterable[Any]) -> Program[None]:
    """Run a training role without checkpoints."""
    yield role


def alone(steps: Steps[Result], keeper: Keeper = without_checkpoints) -> Program[Result]:
    """Turn a participant's steps into the roles that a site of its own runs, one after the other.

    Parameters
    ----------
    keeper
        Runs the training role, for instance with checkpoints.
    """
    answer: Any = None
    with closing(steps):
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = None
            if isinstance(step, Training):
                role = step.role()
                yield from keeper(role, step.identity())
                answer = step.outcome(role)
                del role
            else:
                yield step
            # A finished role may hold large messages: release it before the next one is made.
            del step


class Together(Generic[Stage]):
    """Runs all participants of a run in this process.

    In each exchange the server's role meets the roles of those participants that speak the same vocabulary. The others
    wait at their own next step: not everybody takes part in each exchange.

    Parameters
    ----------
    steps
        Everybody's steps by name, the server's under `SERVER`.
    transcript
        Records the messages of all exchanges; None makes a new one. Training continues it.
    """

    def __init__(self, steps: Mapping[str, Steps[Any]], transcript: Transcript | None = None) -> None:
        self.transcript = Transcript() if transcript is None else transcript
        self._steps = dict(steps)
        self._at: dict[str, Role | Training] = {}
        self._ends: dict[str, Any] = {}
        self._stages: Mapping[str, Stage] | None = None

    def to_training(self) -> Mapping[str, Stage]:
        """Run the exchanges that lead to training, unless that is done; return what everybody brings to it."""
        if self._stages is None:
            for name in self._steps:
                self._advance(name)
            while any(isinstance(step, Role) for step in self._at.values()):
                self._exchange()
            self._stages = {name: self._at[name] for name in self._steps}  # type: ignore[misc]
        return self._stages

    def to_the_end(self, outcomes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Go on from the end of training; return what everybody has at the end.

        Parameters
        ----------
        outcomes
            What training leaves with each participant, by name.
        """
        if self._ends:
            raise RunError("these steps have already run to their end; create new ones")
        for name in self._steps:
            self._advance(name, outcomes.get(name))
        while self._at:
            self._exchange()
        return self._ends

    def _exchange(self) -> None:
        """Run the server's next exchange, with those that take part in it."""
        server = self._at.get(SERVER)
        if not isinstance(server, Role):
            raise ProtocolError(f"{', '.join(self._at)} wait for an exchange with the server, which has none left")
        waiting = {name: self._at[name] for name in self._steps if name in self._at and name != SERVER}
        others = {
            name: step
            for name, step in waiting.items()
            if isinstance(step, Role) and step.vocabulary is server.vocabulary
        }
        with one_blas_thread():
            InProcess([server, *others.values()], transcript=self.transcript).run()
        names = [*others, SERVER]
        del server, others, waiting
        # The server comes last: participants say more precisely what is wrong with their own data.
        for name in names:
            self._advance(name)

    def _advance(self, name: str, answer: Any = None) -> None:
        """Take a participant to its next step, or to its end."""
        self._at.pop(name, None)
        try:
            self._at[name] = self._steps[name].send(answer)
        except StopIteration as end:
            self._ends[name] = end.value


def accepted_terms(role: EnrolParty, kind: type[AnyTerms]) -> AnyTerms:
    """Return the terms that everybody has accepted; it is an error if somebody has refused them."""
    if role.outcome:
        raise RunError(f"the terms were refused by {role.outcome}")
    assert isinstance(role.terms, kind)
    return role.terms


def check_enrolled(role: EnrolServer) -> None:
    """Refuse to go on if a participant has refused the terms."""
    if role.refusals:
        told = "; ".join(f"{name}: {reason}" for name, reason in role.refusals.items())
        raise RunError(f"the terms were refused by {told}")
