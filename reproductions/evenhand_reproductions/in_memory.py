"""Train on encoded rows that are all in memory: what the reproductions, benchmarks and tests start from.

`train_vertical` takes the columns of each party, `train_clients` the rows of each client. Both run the participants'
own steps (`evenhand.training`); only alignment and encoding are already done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.binding import compared_groups
from evenhand.constraints.groups import groups_frame
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.scope import EVERYWHERE, ConstraintScope
from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData, ModelStart, UpdateNoise
from evenhand.horizontal.summaries import common_classes, common_shape, summarise
from evenhand.privacy.key_exchange import Session, agree_here
from evenhand.privacy.mechanism import noise_terms
from evenhand.privacy.randomised_response import AnswerKey
from evenhand.protocol.job import Job, RuntimeName
from evenhand.protocol.roles import SERVER, Report, Role
from evenhand.protocol.terms import HorizontalTerms, Part, VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.solvers.roles import vertical_terms
from evenhand.training import horizontal, horizontal_steps, vertical, vertical_steps
from evenhand.training.horizontal import HorizontalRun, update_noise_of
from evenhand.training.horizontal_steps import HorizontalTraining
from evenhand.training.together import Steps, Together
from evenhand.training.vertical import VerticalRun, check_weights
from evenhand.vertical.problem import PartyColumns, PartyData, ServerData, Start, answered

Own = TypeVar("Own", ClientData, HorizontalServerData)


def train_vertical(
    job: Job,
    parties: Sequence[PartyColumns],
    labels: Array,
    sensitive: pd.DataFrame | None = None,
    *,
    runtime: RuntimeName = "auto",
    workers: int | None = None,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
    keep_messages: bool = False,
    start: Start | None = None,
    terms: VerticalTerms | None = None,
    transcript: Transcript | None = None,
    sample_weight: Array | None = None,
    key: AnswerKey | None = None,
) -> VerticalRun:
    """Train across parties in this process.

    Parameters
    ----------
    labels
        ±1 for each row; any numbers with the squared loss.
    sensitive
        One column per sensitive attribute.
    runtime, workers, clock, folder, checkpoint_seconds, on_round
        As in `evenhand.training.vertical.train_together`.
    keep_messages, transcript
        As in `evenhand.training.run.RunSettings`.
    start
        Weights and multipliers to begin with, of an earlier run on the same columns.
    terms
        What the participants have agreed on beforehand; by default it follows from the job and everybody's data.
    sample_weight
        How many people each row stands for, in any unit, for solvers that take it (`Solver.takes_weights`).
    key
        What randomised responses are drawn from, where labels have privacy; None is the job's seed, for simulations.
    """
    key = AnswerKey.from_seed(job.seed) if key is None else key
    holdings = Holdings.of(job, parties, labels, sensitive, start, terms, sample_weight, key)
    steps = holdings.steps(key)
    transcript = Transcript(keep_messages) if transcript is None else transcript
    # Return models in the order of the given parties.
    ordered = {name: steps[name] for name in (SERVER, *(one.name for one in parties))} | steps
    return vertical.train_together(
        Together(ordered, transcript),
        runtime=runtime,
        workers=workers,
        clock=clock,
        folder=folder,
        checkpoint_seconds=checkpoint_seconds,
        on_round=on_round,
    )


@dataclass(frozen=True, eq=False)
class Holdings:
    """The terms of a run, and each participant's data. All of it is in this process, but no role sees all of it."""

    terms: VerticalTerms
    server: ServerData
    parties: Mapping[str, PartyData]
    truth: LabelledRows | None = None
    """True labels and groups, if labels are private and their holder fits its part to the truth at the end."""
    dealer: Session | None = None
    """The dealer's secrets, once keys are agreed."""

    @classmethod
    def of(
        cls,
        job: Job,
        parties: Sequence[PartyColumns],
        labels: Array,
        sensitive: pd.DataFrame | None = None,
        start: Start | None = None,
        terms: VerticalTerms | None = None,
        sample_weight: Array | None = None,
        key: AnswerKey | None = None,
    ) -> Holdings:
        """Split data that is in one place among the participants; derive the terms if none are given."""
        if sample_weight is not None:
            check_weights(job, sample_weight, len(labels))
        if terms is None:
            parts: dict[str, Part] = {one.name: "active" if one.active else "passive" for one in parties}
            _, groups = compared_groups(job.constraints, labels, groups_frame(sensitive, len(labels)))
            terms = vertical_terms(job, parts, len(labels), groups, warm=start is not None)
        truth = LabelledRows(labels, sensitive, sample_weight=sample_weight)
        known = answered(terms, truth, key or AnswerKey.from_seed(job.seed))
        dealt = {
            one.name: PartyData(
                one.matrix,
                None if start is None else start.weights[one.name],
                known if one.active else None,
                one.categorical,
                one.signs,
                learner=one.learner,
            )
            for one in parties
        }
        if len(dealt) != len(parties):
            raise InputError(f"two parties have the same name; the names are {', '.join(one.name for one in parties)}")
        if set(terms.names) != set(dealt):
            raise InputError(f"the terms are for {', '.join(terms.names)}; the parties are {', '.join(dealt)}")
        in_order = {name: dealt[name] for name in terms.names}
        multipliers = None if start is None else start.multipliers
        own = ServerData(
            known.labels, known.groups, multipliers, sample_weight=known.sample_weight, answers=known.answers
        )
        asked = terms.job.label_privacy
        return cls(terms, own, in_order, truth if asked is not None and asked.finish else None)

    def steps(self, key: AnswerKey) -> dict[str, Steps[Any]]:
        """Return all participants' steps from training on; terms and rows are already agreed on."""
        terms, holder = self.terms, self.terms.active[0]
        # The papers' tables count the bytes of training; protected runs count those of keys as well.
        held = self if terms.only_sums else self.with_keys()
        parties: dict[str, Steps[Any]] = {
            name: vertical_steps.train_as_party(terms, name, own, self.truth if name == holder else None)
            for name, own in held.parties.items()
        }
        dealer = {} if terms.dealer is None else {terms.dealer: vertical_steps.train_as_dealer(terms, terms.dealer)}
        return {SERVER: vertical_steps.train_as_server(terms, held.server, key), **parties, **dealer}

    def roles(self) -> tuple[Role, list[Role]]:
        """Build each participant's role from the terms and its data; participants without data come last."""
        held = self.with_keys()
        parties = [solver_roles.party(self.terms, name, own) for name, own in held.parties.items()]
        return solver_roles.server(self.terms, held.server), [*parties, *solver_roles.helpers(self.terms, held.dealer)]

    def with_keys(self) -> Holdings:
        """Return the same with keys that all participants have agreed on, where the terms need them."""
        if not solver_roles.agrees_on_keys(self.terms) or self.server.session is not None:
            return self
        found = agree_here(tuple(self.terms.participants), self.terms.digest)
        parties = {name: replace(own, session=found[name]) for name, own in self.parties.items()}
        dealer = None if self.terms.dealer is None else found[self.terms.dealer]
        return replace(self, server=replace(self.server, session=found[SERVER]), parties=parties, dealer=dealer)


def train_clients(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    model: Any = None,
    scope: ConstraintScope = EVERYWHERE,
    server: ClientRows | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
    update_noise: UpdateNoise | Mapping[str, UpdateNoise] | None = None,
    start: ModelStart | None = None,
    device: str = "cpu",
    terms: HorizontalTerms | None = None,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
    keep_messages: bool = False,
) -> HorizontalRun:
    """Train across clients in this process, by the solver that the job names, on rows that are ready.

    Parameters
    ----------
    model
        None is the job's own; a name is taken in its place. Otherwise a `torch.nn.Module`, which is copied and begins
        with its own weights, or a function that makes one, which is called under the job's seed.
    scope
        Where constraints hold, and with which bounds.
    server
        Rows of the server's own; a global constraint is then over them (proximal AL Eq. 32) and not over the clients'.
    groups
        The values each sensitive attribute may take, agreed beforehand; None takes those that occur.
    classes
        Number of classes, if labels are class indices; None finds out.
    update_noise
        What clients do to their updates before sending them: one protection for all, or one for each by name.
    start
        Weights and multipliers to begin with, of an earlier run.
    device
        Where torch computes, ``"cuda"`` for instance; for averaging solvers and models that are no perceptrons.
    terms
        What has been agreed on already; scope, groups and classes are then those of the terms. None finds the terms
        from everybody's rows, without messages.
    clock, folder, checkpoint_seconds, on_round, keep_messages
        See `evenhand.training.run.RunSettings`. A run that resumes from a checkpoint in its folder ends exactly where
        an uninterrupted one would have.
    """
    names = [one.name for one in clients]
    protections = update_noise_of(update_noise, names)
    network = None if isinstance(model, str) else model
    if model is not None:
        job = replace(job, model="module" if network is not None else model)
    if terms is None:
        terms = horizontal_terms(
            job,
            clients,
            server=server,
            groups=groups,
            classes=classes,
            scope=scope,
            noise=noise_terms(update_noise),
        )
    steps: dict[str, Steps[Any]] = {
        SERVER: horizontal_steps.train_as_server(terms, HorizontalServerData(server, network, start, device))
    }
    for one in clients:
        own = ClientData(one, network, protections.get(one.name), device)
        steps[one.name] = horizontal_steps.train_as_client(terms, one.name, own)
    return horizontal.train_together(
        Together(steps, Transcript(keep_messages)),
        clock=clock,
        folder=folder,
        checkpoint_seconds=checkpoint_seconds,
        on_round=on_round,
    )


def horizontal_terms(
    job: Job,
    clients: Sequence[ClientRows],
    *,
    server: ClientRows | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
    scope: ConstraintScope = EVERYWHERE,
    noise: Mapping[str, Any] | None = None,
) -> HorizontalTerms:
    """Return the terms that these clients agree on by their own steps; `groups` and `classes` as in `KnownBefore`."""
    rows = {one.name: one for one in sorted(clients, key=lambda one: one.name)}
    known = KnownBefore(groups, classes, simulated=True)
    two = True
    if job.solver == "auto":
        summaries = [summarise(one) for one in clients]
        common_shape(summaries)
        two = common_classes(summaries, classes) is None
    names = [one.name for one in clients]
    draft = draft_terms(job, names, scope=scope, noise=noise, two_classes=two, server_rows=server is not None)
    at_server, warns = _ready(HorizontalServerData(server)), bool(job.constraints)
    steps: dict[str, Steps[Any]] = {
        SERVER: horizontal_steps.server_steps(draft, known, at_server, everybody=lambda: rows, warns=warns),
    }
    for name, one in rows.items():
        steps[name] = horizontal_steps.client_steps(name, draft, known, _ready(ClientData(one)))
    together: Together[HorizontalTraining] = Together(steps)
    return together.to_training()[SERVER].terms


def _ready(own: Own) -> Steps[Own]:
    """Return steps that exchange nothing, because the participant has its rows already."""
    yield from ()
    return own
