"""Build the roles of averaging solvers, plain FedAvg among them; torch is imported when they are built."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.errors import InputError, MissingExtraError
from evenhand.horizontal.averaging.formulation import Formulation, Unconstrained
from evenhand.horizontal.averaging.messages import FEDAVG
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.averaging.rounds import AveragingClient, AveragingServer
from evenhand.horizontal.averaging.server import message_sizes, regulariser
from evenhand.horizontal.problem import ClientData, HorizontalServerData, ModelStart, noise_shares
from evenhand.horizontal.summaries import SliceMeans
from evenhand.privacy.mechanism import described
from evenhand.privacy.record_level import RecordGaussian
from evenhand.protocol.messages import Vocabulary
from evenhand.protocol.solver import Solver
from evenhand.protocol.terms import HorizontalTerms


def averaging_solver(
    name: str,
    options: type[AveragingOptions],
    *,
    formulation: type[Formulation] = Unconstrained,
    server: type[AveragingServer] = AveragingServer,
    client: type[AveragingClient] = AveragingClient,
    sums: tuple[type[AveragingServer], type[AveragingClient]] | None = None,
    vocabulary: Vocabulary = FEDAVG,
    **can: Any,
) -> Solver[AveragingServer, AveragingClient]:
    """Return the registry entry of an averaging solver, from its options, formulation, server and client classes.

    Parameters
    ----------
    sums
        Server and client of runs in which the server learns only sums. None if the usual classes work there too.
    can
        Other fields of `Solver`.
    """
    builder = _Builder(options, formulation, (server, client), sums or (server, client))
    return Solver(
        name=name,
        split="horizontal",
        options=options,
        server=builder.server,
        participant=builder.client,
        batched=builder.batched,
        vocabulary=vocabulary,
        models=("linear", "mlp", "resnet18", "module"),
        many_classes=True,
        protections=("none", "masked"),
        takes_noise=True,
        fixed_rounds=True,
        tol=1e-3,
        **can,
    )


class _Builder:
    def __init__(
        self,
        options: type[AveragingOptions],
        formulation: type[Formulation],
        usual: tuple[type[AveragingServer], type[AveragingClient]],
        sums: tuple[type[AveragingServer], type[AveragingClient]],
    ) -> None:
        self._options = options
        self._formulation = formulation
        self._usual, self._sums = usual, sums

    def server(self, terms: HorizontalTerms, own: HorizontalServerData) -> AveragingServer:
        means = SliceMeans(terms)
        formulation = self._formulation(means.bounds)
        network = _network(terms, own.network, own.device)
        start = _start(own.start, network, formulation)
        options = self._read(terms)
        server, _ = self._sums if terms.only_sums else self._usual
        return server(terms, means, formulation, network, start, options=options, report_every=_every(terms, options))

    def client(self, terms: HorizontalTerms, name: str, own: ClientData) -> AveragingClient:
        return self.batched(terms, {name: own})[0]

    def batched(self, terms: HorizontalTerms, owns: Mapping[str, ClientData]) -> list[AveragingClient]:
        """Build the clients of one process; the first one's copy of the network serves all of them."""
        for name, own in owns.items():
            if own.rows.name != name:
                raise InputError(f"client {name!r} was given the rows of {own.rows.name!r}; give each client its own")
            if noise_shares(own.update_noise) > 1 and not terms.only_sums:
                raise InputError(f"client {name!r} would send only its share of the noise; set protection='masked'")
            asked, given = terms.noise_of(name), described(own.update_noise)
            if bool(asked) != bool(given) or any(asked.get(key) != value for key, value in given.items()):
                raise InputError(
                    f"client {name!r} adds the noise {given or 'none'}, but the terms say {dict(asked) or 'none'}; "
                    "build the terms with noise=noise_terms(update_noise)"
                )
        means = SliceMeans(terms)
        formulation = self._formulation(means.bounds)
        first = next(iter(owns.values()))
        network = _network(terms, first.network, first.device)
        options, job = self._read(terms), terms.job
        batched = importlib.import_module("evenhand.horizontal.averaging.batched")
        rows = [own.rows for own in owns.values()]
        together = batched.BatchedClients(rows, means, formulation, network, options, job.seed, regulariser(terms))
        sizes = message_sizes(means, formulation, network)

        def learner(own: ClientData) -> Any:
            if not isinstance(own.update_noise, RecordGaussian):
                return batched.BatchedLearner(together, own.rows.name)
            if options.batches != "shuffled":
                raise InputError(
                    f"batches is {options.batches!r}, but noise on records draws every row with the same chance; "
                    "choose batches 'shuffled'"
                )
            record_level = importlib.import_module("evenhand.horizontal.averaging.record_level")
            return record_level.RecordLearner(together, own.rows.name, means, own.update_noise, own.secret)

        _, client = self._sums if terms.only_sums else self._usual
        return [
            client(
                name,
                sizes,
                learner(own),
                options=options,
                formulation=formulation,
                seed=job.seed,
                max_rounds=job.max_rounds,
                report_every=_every(terms, options),
                # The learner adds record-level noise during training.
                update_noise=None if isinstance(own.update_noise, RecordGaussian) else own.update_noise,
                secret=own.secret,
            )
            for name, own in owns.items()
        ]

    def _read(self, terms: HorizontalTerms) -> AveragingOptions:
        return terms.job.settings(self._options).resolved(terms)


def _every(terms: HorizontalTerms, options: AveragingOptions) -> int:
    if options.report_every is not None:
        return options.report_every
    # Noise on updates does not cover measurements.
    return 0 if terms.protected else 1


def _network(terms: HorizontalTerms, own: Any, device: str) -> Any:
    """Return the initial network, equal for all participants: named in the terms, or given as code."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError("Training with averaging solvers", "torch") from error
    from evenhand.models.networks import make_network

    if terms.job.model == "module" and own is None:
        raise InputError("the terms train a user's own module, but no module was given; pass it as network")
    wanted = own if terms.job.model == "module" else terms.job.model
    return make_network(wanted, terms.shape, terms.classes, terms.job.hidden, terms.job.seed, device)


def _start(start: ModelStart | None, network: Any, formulation: Formulation) -> ModelStart:
    own = ModelStart(network.weights, network.statistics, np.zeros(len(formulation.multipliers)))
    if start is None:
        return own
    if not start.multipliers.size:
        start = replace(start, multipliers=own.multipliers)
    for name in ("weights", "statistics", "multipliers"):
        given, needed = getattr(start, name), getattr(own, name)
        if given.shape != needed.shape:
            raise InputError(f"the start has {given.size} {name}, but the model needs {needed.size}")
    return start


@dataclass(frozen=True)
class FedAvg(AveragingOptions):
    """FedAvg: clients run local SGD on the mean loss, and the server averages their weights.

    It is the baseline of the FairFedAvgALM paper and takes no constraint. Parameters are those of `AveragingOptions`.
    """


SOLVER = averaging_solver("fedavg", FedAvg, takes_constraints=False)
