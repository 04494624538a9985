"""The steps of every participant of a horizontal run: server and clients, from enrolling to the trained model.

Each participant takes the draft terms, and the steps that prepare its own rows. `training/together.py` runs them.

    server                                  client
    offer the draft terms                   accept or refuse
    combine summaries of columns            summarise its columns, encode its rows
    combine summaries of rows               summarise and count its rows (`solvers/agreeing.py`)
    offer the terms                         accept or refuse
    agree on keys (masked sums)             agree on keys
    train                                   train
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, MissingExtraError
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData, ModelStart
from evenhand.horizontal.roles import HorizontalClient, HorizontalServer
from evenhand.models.pictures import Pictures
from evenhand.protocol.agree import AgreeClient, AgreeServer, Summary
from evenhand.protocol.enrol import Policy, anything
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import HorizontalTerms, Terms
from evenhand.solvers import roles
from evenhand.solvers.agreeing import KnownBefore, combine, held_values, say
from evenhand.training.together import AgreeOnKeys, Steps, Training, enrolled, offer

# -- the training stage


@dataclass(frozen=True, eq=False)
class HorizontalTraining(Training):
    """The training stage of one participant of a horizontal run."""

    terms: HorizontalTerms
    name: str
    own: HorizontalServerData | ClientData

    def role(self) -> HorizontalServer | HorizontalClient:
        if isinstance(self.own, ClientData):
            return roles.client(self.terms, self.name, self.own)
        return roles.clients_server(self.terms, self.own)

    def outcome(self, role: Role) -> Role:
        """Return the role itself; the server's role has the model."""
        return role

    def identity(self) -> Iterator[object]:
        yield self.terms.to_plain()
        yield from self.data()

    def data(self) -> Iterator[object]:
        """Yield the participant's own rows, for a fingerprint."""
        rows = self.own.rows
        if rows is None:
            return
        shown = rows.features
        # Hash a few pictures at a time: all of them may not fit into memory.
        yield from itertools.chain([shown.crop], shown.blocks()) if isinstance(shown, Pictures) else [shown]
        yield from (rows.labels, rows.groups)


class TrainedAcrossClients(NamedTuple):
    """Result of the server after training."""

    terms: HorizontalTerms
    server: HorizontalServer


def train_as_client(terms: HorizontalTerms, name: str, own: ClientData) -> Steps[HorizontalTerms]:
    """Train as a client; return the terms."""
    if terms.only_sums and own.session is None:
        own = replace(own, session=(yield AgreeOnKeys(name, terms)))
    yield HorizontalTraining(terms, name, own)
    return terms


def train_as_server(terms: HorizontalTerms, own: HorizontalServerData) -> Steps[TrainedAcrossClients]:
    """Train as the server; return it with the model."""
    if terms.only_sums:
        yield AgreeOnKeys(SERVER, terms)
    server: HorizontalServer = yield HorizontalTraining(terms, SERVER, own)
    return TrainedAcrossClients(terms, server)


# -- from the draft terms to the trained model


def client_steps(
    name: str,
    draft: HorizontalTerms,
    known: KnownBefore,
    own: Steps[ClientData],
    *,
    policy: Policy = anything,
    on_terms: Callable[[Terms], None] | None = None,
) -> Steps[HorizontalTerms]:
    """Run the steps of a client.

    Parameters
    ----------
    draft
        The terms as far as they follow from the job alone; an offer of another job is refused.
    own
        Steps that prepare the client's rows; they may agree with other clients on labels and on an encoder.
    policy
        The client's own rule on terms.
    on_terms
        Called with terms that the policy has accepted, before anything about the client's rows is sent.
    """
    accepted = yield from enrolled(name, draft, policy, on_terms)
    data = yield from own
    saying, agreed = say(accepted, known, data.rows), None
    while True:
        try:
            said = saying.send(agreed)  # type: ignore[arg-type]
        except StopIteration:
            break
        exchange = AgreeClient(name, said)
        yield exchange
        agreed = exchange.agreed
    terms = yield from enrolled(name, accepted, policy)
    terms = replace(terms, groups=held_values(terms.groups, [data.rows]))
    return (yield from train_as_client(terms, name, data))


def server_steps(
    draft: HorizontalTerms,
    known: KnownBefore,
    own: Steps[HorizontalServerData],
    *,
    everybody: Callable[[], Mapping[str, ClientRows]] = dict,
    warns: bool = True,
) -> Steps[TrainedAcrossClients]:
    """Run the steps of the server.

    Parameters
    ----------
    own
        Steps that combine the clients' labels and column summaries, and prepare the server's own rows if it has any.
    everybody, warns
        In a simulation, a function that returns all clients' rows; see `agreeing.combine`.
    """
    yield from offer(draft)
    data = yield from own
    combining, agreed = combine(draft, known, data.rows, everybody(), warns=warns), None
    while True:
        try:
            together = combining.send(agreed)  # type: ignore[arg-type]
        except StopIteration as end:
            terms: HorizontalTerms = end.value
            break
        exchange = AgreeServer(draft.names, together)
        yield exchange
        agreed = exchange.agreed
    yield from offer(terms)
    return (yield from train_as_server(terms, data))


# -- how columns are encoded


def agree_on_encoder(name: str, learned: PartyEncoder) -> Steps[PartyEncoder]:
    """Send a summary of a client's columns in its training rows; return the shared encoder."""
    shared = AgreeClient(name, learned.to_summary())
    yield shared
    return PartyEncoder.from_state(dict(shared.agreed or {}))


def combine_encoders(names: Sequence[str], scale: bool, as_is: bool, rules: Mapping[str, Any]) -> Steps[PartyEncoder]:
    """Make one encoder from all clients' summaries of their columns; return it with its remarks."""
    made: list[PartyEncoder] = []

    def together(told: Mapping[str, Summary]) -> Summary:
        made.append(PartyEncoder.from_summaries(told, scale=scale, as_is=as_is, **rules))
        return made[-1].to_state()

    exchange = AgreeServer(names, together)
    yield exchange
    shared = PartyEncoder.from_state(dict(exchange.agreed or {}))
    shared.remarks = made[-1].remarks
    return shared


def start_from(path: Path, job: Job, shape: tuple[int, ...], classes: int | None, network: Any = None) -> ModelStart:
    """Return the start of a run from weights in a safetensors file.

    The file holds the weights of an earlier run, or those of a torch module by the names of its parameters.

    Parameters
    ----------
    shape, classes
        Shape of a row as the model sees it; number of classes, or None for two.
    network
        The module, or a function that makes one, if the job's model is ``"module"``.
    """
    try:
        found = load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} is not a safetensors file with weights to start from: {error}") from error
    if found.keys() <= {"weights", "statistics"} and "weights" in found:
        return ModelStart(found["weights"], found.get("statistics", np.zeros(0, dtype=np.float32)))
    return _named(path, found, job.model if network is None else network, shape, classes, job)


def _named(
    path: Path,
    found: Mapping[str, npt.NDArray[Any]],
    model: Any,
    shape: tuple[int, ...],
    classes: int | None,
    job: Job,
) -> ModelStart:
    try:
        from evenhand.models.networks import make_network
    except ImportError as error:
        raise MissingExtraError("Weights of a torch module", "torch") from error
    network = make_network(model, shape, classes, job.hidden, job.seed)
    network.load_named(found, str(path))
    return ModelStart(network.weights, network.statistics)
