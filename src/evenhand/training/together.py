"""The one path of every run: each participant is a generator of steps, and a driver runs the steps.

A participant (the server, a party, a client, a dealer) has access to its own data only. Its generator, the **steps**,
yields one of three things:

- a `Role`: its role in one exchange before or after training (enrol, align, agree, send labels, finish, score). The
  generator continues when the role is done, and reads the result from the role.
- `AgreeOnKeys`: it needs keys that it shares with the others. The value of the ``yield`` expression is its `Session`.
- a `Training`: its training stage. The value of the ``yield`` expression is the participant's result of training:
  a party gets its model, the server gets the solver's server. Where a rule chooses a cut that constraints depend on,
  there are several, and all but the last are `searching`.

The generator returns the participant's final result. Each split defines its steps once (`training/vertical_steps.py`),
on top of *sources* of a participant's own data: a table that a job file names, or a frame in memory. Two drivers run
them:

- `alone` turns the steps of one participant into a sequence of roles, for a separate site (`runtime/site.py`,
  `runtime/stateless_site.py`): NVIDIA FLARE, Flower, threads in tests.
- `Together` runs all participants in this process, for jobs, estimators, `check` and `audit`. It collects all
`Training`
  stages, so that a split can use what is faster in one process: a compiled loop, batched clients, threads, a virtual
  clock.

To add a split: write its steps, subclass `Training`, and call both drivers from the front ends.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from evenhand.errors import ProtocolError, RunError, VersionWarning
from evenhand.privacy.key_exchange import Attempt, KeyParty, KeyServer
from evenhand.protocol.enrol import EnrolParty, EnrolServer, Policy
from evenhand.protocol.identity import Identity, make_identities
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import Terms
from evenhand.protocol.transcript import Transcript
from evenhand.protocol.versions import difference
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.site import Program
from evenhand.training.run import one_blas_thread

Result = TypeVar("Result")
AnyTerms = TypeVar("AnyTerms", bound=Terms)
Stage = TypeVar("Stage", bound="Training")


class Training(ABC):
    """The training stage of one participant: terms and its own data.

    Attributes
    ----------
    name
        The participant's name.
    searching
        Whether another training follows: this one only finds the cut.
    whole
        Whether all participants that began are there; only then can the run resume from this training.
    """

    name: str
    searching: bool = False
    whole: bool = True

    @abstractmethod
    def role(self) -> Role:
        """Build the participant's role from its terms and its own data."""

    @abstractmethod
    def outcome(self, role: Role) -> Any:
        """Return the participant's result of training, once its role is done."""

    @abstractmethod
    def identity(self) -> Iterable[Any]:
        """Yield everything that must be unchanged to resume this training: terms and data."""


@dataclass(frozen=True)
class AgreeOnKeys:
    """A participant's wish to agree on keys with all others; the driver knows its identity.

    Attributes
    ----------
    name
        The participant's name.
    terms
        The terms so far: they name the participants, and their digest is signed with the keys.
    """

    name: str
    terms: Terms

    def role(self, attempt: Attempt) -> KeyParty:
        """Return the participant's role in the exchange."""
        kind = KeyServer if self.name == SERVER else KeyParty
        return kind(attempt, tuple(self.terms.participants), self.terms.digest)


Steps: TypeAlias = Generator[Role | AgreeOnKeys | Training, Any, Result]
"""Steps of a participant: they yield roles and one training stage, and return the participant's result."""
TrainingRunner: TypeAlias = Callable[[Role, Training], Program[None]]
"""Function that runs the role of a training stage at a site, with checkpoints."""


def without_checkpoints(role: Role, _: Training) -> Program[None]:
    """Run a training role without checkpoints."""
    yield role


def without_identity() -> Attempt:
    """Refuse to agree on keys: the site has no identity."""
    raise RunError(
        "this run needs keys that participants sign, and this site has no identity; make one with evenhand identity, "
        "or with new start-up kits, and name its folder in the party's file: identity = ..."
    )


def alone(
    steps: Steps[Result],
    run_training: TrainingRunner = without_checkpoints,
    attempt: Callable[[], Attempt] = without_identity,
) -> Program[Result]:
    """Turn a participant's steps into the sequence of roles that a separate site runs.

    Parameters
    ----------
    run_training
        Runs the training role, for instance with checkpoints.
    attempt
        Begins an attempt: returns the participant's identity and the number of the attempt. Called only if the
        participants agree on keys.
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
                role.quiet = step.searching
                yield from run_training(role, step)
                answer = step.outcome(role)
                del role
            elif isinstance(step, AgreeOnKeys):
                keys = step.role(attempt())
                yield keys
                answer = keys.session
            else:
                yield step
            # A finished role may hold large messages: release it before the next one is created.
            del step


class Together(Generic[Stage]):
    """Run all participants in this process.

    In each exchange, the server's role runs with the roles that use the same vocabulary. Participants that do not take
    part in it wait at their own next step.

    Parameters
    ----------
    steps
        The steps of all participants by name, the server's under `SERVER`.
    transcript
        Records the messages of all exchanges; None creates a new one. Training appends to it.
    """

    def __init__(self, steps: Mapping[str, Steps[Any]], transcript: Transcript | None = None) -> None:
        self.transcript = Transcript() if transcript is None else transcript
        self._steps = dict(steps)
        self._at: dict[str, Role | Training] = {}
        self._ends: dict[str, Any] = {}
        self._identities: dict[str, Identity] = {}
        self._stages: Mapping[str, Stage] | None = None

    def to_training(self) -> Mapping[str, Stage]:
        """Run the exchanges before training, unless they have run; return all training stages."""
        if self._stages is None:
            for name in self._steps:
                self._advance(name)
            self._exchange_to_training()
        assert self._stages is not None
        return self._stages

    def _exchange_to_training(self) -> None:
        while any(isinstance(step, Role) for step in self._at.values()):
            self._exchange()
        self._stages = {name: self._at[name] for name in self._steps}  # type: ignore[misc]

    def to_next_training(self, outcomes: Mapping[str, Any]) -> None:
        """Continue after a training stage that another one follows; `to_training` then returns that one."""
        for name in self._steps:
            self._advance(name, outcomes.get(name))
        self._exchange_to_training()

    def to_the_end(self, outcomes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Continue after training; return the results of all participants.

        Parameters
        ----------
        outcomes
            Each participant's result of training, by name.
        """
        if self._ends:
            raise RunError("these steps have already run to their end; create new ones")
        for name in self._steps:
            self._advance(name, outcomes.get(name))
        while self._at:
            self._exchange()
        return self._ends

    def _exchange(self) -> None:
        """Run the server's next exchange, with the participants that take part in it."""
        server = self._at.get(SERVER)
        if not isinstance(server, Role):
            raise ProtocolError(f"{', '.join(self._at)} wait for an exchange, but the server has finished")
        waiting = {name: self._at[name] for name in self._steps if name in self._at and name != SERVER}
        others = {
            name: step
            for name, step in waiting.items()
            if isinstance(step, Role) and step.vocabulary is server.vocabulary
        }
        with one_blas_thread():
            InProcess([server, *others.values()], transcript=self.transcript).run()
        taking_part = {**others, SERVER: server}
        answers = {name: one.session if isinstance(one, KeyParty) else None for name, one in taking_part.items()}
        del server, others, waiting, taking_part
        # The server comes last: errors of participants about their own data are more precise.
        for name, answer in answers.items():
            self._advance(name, answer)

    def _advance(self, name: str, answer: Any = None) -> None:
        """Advance a participant to its next step, or to its end."""
        self._at.pop(name, None)
        try:
            step = self._steps[name].send(answer)
        except StopIteration as end:
            self._ends[name] = end.value
            return
        if isinstance(step, AgreeOnKeys):
            # Everybody is in this process, so identities need to last no longer than the run.
            self._identities = self._identities or make_identities(self._steps)
            step = step.role(Attempt(self._identities[name]))
        self._at[name] = step


def enrolled(
    name: str, draft: AnyTerms, policy: Policy, on_terms: Callable[[Terms], None] | None = None
) -> Program[AnyTerms]:
    """Decide on the offered terms; return them once all participants have accepted.

    Parameters
    ----------
    draft
        The terms as far as they are known here; an offer of another job is refused.
    on_terms
        Called with the accepted terms.
    """
    role = EnrolParty(name, type(draft), policy, draft)
    yield role
    if role.outcome:
        raise RunError(f"the terms were refused by {role.outcome}")
    _warn_of_version(role.servers_version, "the server")
    assert isinstance(role.terms, type(draft))
    if on_terms is not None:
        on_terms(role.terms)
    return role.terms


def offer(terms: Terms) -> Program[None]:
    """Offer the terms to all participants; refuse to go on if one of them refuses."""
    role = EnrolServer(terms)
    yield role
    if role.refusals:
        told = "; ".join(f"{name}: {reason}" for name, reason in role.refusals.items())
        raise RunError(f"the terms were refused by {told}")
    for name, version in role.versions.items():
        _warn_of_version(version, name)


def _warn_of_version(version: str, whose: str) -> None:
    if said := difference(version, whose):
        warnings.warn(said, VersionWarning, stacklevel=2)
