"""From a setup to the roles of an averaging solver. The only place that asks for torch, and only when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand.constraints.kinds import Constraint
from evenhand.errors import InputError, MissingExtraError
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.averaging.rounds import AveragingClient, AveragingServer
from evenhand.horizontal.averaging.server import message_sizes
from evenhand.horizontal.problem import Start
from evenhand.horizontal.rows import AgreedRows
from evenhand.horizontal.sides import BoundSides, Sides
from evenhand.horizontal.solver import Roles, Setup


def build_averaging(
    setup: Setup,
    options: AveragingOptions,
    constraints: tuple[Constraint, ...] = (),
    *,
    sides: type[Any] = BoundSides,
    server: type[AveragingServer] = AveragingServer,
    client: type[AveragingClient] = AveragingClient,
    sizes: Mapping[str, int] | None = None,
) -> Roles:
    """The server, the clients and the model they train, for a solver's own kinds of server and client."""
    job, agreement = setup.job, setup.agreement
    if job.loss != "logistic":
        raise InputError(f"loss is {job.loss!r}; averaging solvers train with 'logistic' (softmax for class indices)")
    batched, networks = _torch_modules()
    rows = AgreedRows(constraints, agreement)
    multipliers: Sides = sides(rows.bounds)
    wanted = setup.network if setup.network is not None else {"linear": "logistic"}.get(job.model, job.model)
    network = networks.make_network(wanted, agreement.shape, agreement.classes, job.hidden, job.seed)
    start = _start(setup.start, network, multipliers)
    regulariser = 0.0 if job.alpha is None else job.alpha
    together = batched.BatchedClients(setup.clients, rows, multipliers, network, options, job.seed, regulariser)
    rows.check_filled(np.sum(list(together.data.counts.values()), axis=0))
    protect = setup.protect or {}
    every = options.report_every
    if every is None:
        # What measurements say is not covered by a protection of the updates.
        every = 0 if protect else 1
    all_sizes = message_sizes(rows, multipliers, start) | dict(sizes or {})
    names = [holder.name for holder in setup.clients]
    clients = [
        client(
            name,
            all_sizes,
            batched.Member(together, name),
            options=options,
            sides=multipliers,
            seed=job.seed,
            report_every=every,
            protect=protect.get(name),
        )
        for name in names
    ]
    head = server(names, rows, multipliers, start, job, options=options, report_every=every, sizes=sizes)
    return Roles(head, clients, network)


def _torch_modules() -> tuple[Any, Any]:
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError("Training by averaging over clients", "torch") from error
    from evenhand.horizontal.averaging import batched
    from evenhand.models import networks

    return batched, networks


def _start(start: Start | None, network: Any, sides: Sides) -> Start:
    own = Start(network.weights, network.statistics, np.zeros(len(sides)))
    if start is None:
        return own
    for name in ("weights", "statistics", "multipliers"):
        given, needed = getattr(start, name), getattr(own, name)
        if given.shape != needed.shape:
            raise InputError(f"{given.size} {name} to start from, {needed.size} needed")
    return start
