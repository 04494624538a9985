"""Train horizontally in one process, and the result of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file

from evenhand.arrays import Array
from evenhand.constraints.proving import Proof
from evenhand.errors import DataError, InputError, MissingExtraError
from evenhand.horizontal.problem import ClientData, HorizontalServerData, ModelStart, Single, UpdateNoise
from evenhand.horizontal.roles import HorizontalClient, HorizontalModel, HorizontalServer
from evenhand.privacy.key_exchange import agree_here
from evenhand.programs.optimality import SHARED
from evenhand.protocol.job import Job
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import HorizontalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers import roles as solver_roles
from evenhand.training.horizontal_steps import HorizontalTraining
from evenhand.training.run import Finished, RunSettings, carry_out, certified, warn_of_results
from evenhand.training.together import Together


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
    try:
        from evenhand.models.networks import make_network
    except ImportError as error:
        raise MissingExtraError("Weights of a torch module", "torch") from error
    made = make_network(job.model if network is None else network, shape, classes, job.hidden, job.seed)
    made.load_named(found, str(path))
    return ModelStart(made.weights, made.statistics)


# -- all participants in one process


@dataclass(frozen=True, eq=False)
class HorizontalRun:
    """Result of training.

    Attributes
    ----------
    model
        The model that all clients share; `model.predict(features)` returns scores.
    weights, statistics
        The model's weights and running statistics (of batch normalisation), flattened.
    history
        Averaging solvers have one row for the start and one for each round: objective, constraint values and exact
        rates of the model over the rows of the participating clients (in the last row: of all clients), multipliers,
        bytes sent so far, virtual time. Other solvers have one row for each outer iteration, over all clients' rows.
    certificate
        How well the result satisfies the optimality conditions on all clients' rows.
    transcript
        Every message sent.
    multipliers
        (2, R): λ⁺ and λ⁻ of each inequality.
    raw_multipliers
        The solver's own multipliers, to start another run from.
    row_names
        The R inequalities in words.
    terms
        The terms that all participants agreed on.
    proofs
        Bounds that the training rows prove for new people, if a constraint has a confidence.
    record
        Other results of the solver: for trees, how many there are, and why training stopped.
    """

    model: HorizontalModel
    weights: Single | Array
    statistics: Single
    history: pd.DataFrame
    certificate: Certificate
    transcript: Transcript
    multipliers: Array
    raw_multipliers: Array
    row_names: Sequence[str]
    terms: HorizontalTerms
    proofs: Sequence[Proof] = ()
    record: Mapping[str, Any] = field(default_factory=dict)

    def as_start(self) -> ModelStart:
        """Return the final weights and multipliers, to start another run from."""
        return ModelStart(self.weights, self.statistics, self.raw_multipliers)


def train_together(
    together: Together[HorizontalTraining],
    *,
    clock: VirtualClock | None = None,
    folder: RunFolder | None = None,
    checkpoint_seconds: float = 10.0,
    on_round: Callable[[Report], None] | None = None,
) -> HorizontalRun:
    """Run all participants' remaining steps in this process; the other parameters are those of `RunSettings`."""
    while (stages := together.to_training())[SERVER].searching:
        searched = carry_out(partial(_built, stages), RunSettings(clock, transcript=together.transcript), lambda _: ())
        together.to_next_training({SERVER: searched.server})
        del searched
    terms = stages[SERVER].terms
    finished = carry_out(
        partial(_built, stages),
        RunSettings(clock, folder, checkpoint_seconds, on_round, transcript=together.transcript),
        lambda head: (head.snapshot(), terms.to_plain(), *_own_data(stages)),
    )
    warn_of_results(finished.server)
    ends = together.to_the_end({SERVER: finished.server})
    finished.recorder.flush()
    return _run(ends[SERVER].terms, finished)


def _built(stages: Mapping[str, HorizontalTraining]) -> tuple[HorizontalServer, Sequence[HorizontalClient]]:
    at_clients = {name: one.own for name, one in stages.items() if isinstance(one.own, ClientData)}
    at_server = stages[SERVER].own
    assert isinstance(at_server, HorizontalServerData)
    return build_roles(stages[SERVER].terms, at_server, at_clients)


def _own_data(stages: Mapping[str, HorizontalTraining]) -> Iterator[Any]:
    """Yield all participants' data, for a fingerprint."""
    for name, stage in stages.items():
        yield name
        yield repr(getattr(stage.own, "update_noise", None))
        yield from stage.data()


def build_roles(
    terms: HorizontalTerms, server: HorizontalServerData, clients: Mapping[str, ClientData]
) -> tuple[HorizontalServer, Sequence[HorizontalClient]]:
    """Build all participants' roles in one process. With masked sums, clients without keys agree on them."""
    if terms.only_sums and any(own.session is None for own in clients.values()):
        sessions = agree_here(terms.names, terms.digest)
        clients = {name: replace(own, session=sessions[name]) for name, own in clients.items()}
    return solver_roles.clients_server(terms, server), solver_roles.clients(terms, clients)


def _run(terms: HorizontalTerms, finished: Finished[HorizontalServer, HorizontalClient]) -> HorizontalRun:
    certificate, found = certified(finished.server.certificate), finished.server.outcome()
    # Clients hold the multipliers that the server does not know.
    tables = {client.name: client.own_multipliers() for client in finished.others} | dict(found.multipliers)
    order = [tables[name] for name in (*terms.names, SERVER, SHARED) if name in tables]
    multipliers = np.concatenate([np.zeros((2, 0)), *order], axis=1)
    raw = multipliers[0] - multipliers[1] if found.raw_multipliers is None else found.raw_multipliers
    return HorizontalRun(
        model=found.model,
        weights=found.weights,
        statistics=found.statistics,
        history=pd.DataFrame(finished.history),
        certificate=certificate,
        transcript=finished.transcript,
        multipliers=multipliers,
        raw_multipliers=raw,
        row_names=list(terms.row_names),
        terms=terms,
        proofs=finished.server.proofs(),
        record=finished.server.record(),
    )


def update_noise_of(
    update_noise: UpdateNoise | Mapping[str, UpdateNoise] | None, names: Sequence[str]
) -> dict[str, UpdateNoise]:
    """Return each client's update noise by name; clients without noise are left out."""
    if update_noise is None:
        return {}
    if not isinstance(update_noise, Mapping):
        return dict.fromkeys(names, update_noise)
    if unknown := sorted(update_noise.keys() - set(names)):
        raise InputError(
            f"update_noise names {unknown[0]!r}, which is not a client; the clients are {', '.join(names)}"
        )
    return dict(update_noise)
