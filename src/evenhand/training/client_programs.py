"""Constraints met with clients' rows as programs: at each client, over everybody, at the server, with their bounds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from evenhand.constraints.binding import constraint_rows
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.scope import ConstraintScope, with_bound
from evenhand.constraints.slices import ConstraintRow
from evenhand.errors import ConstraintError
from evenhand.horizontal.problem import ClientRows
from evenhand.programs.classification import Federated, Sample, constrained
from evenhand.programs.optimality import SERVER, SHARED
from evenhand.protocol.job import Job


class ClientPrograms:
    """The job's constraints, met with rows of data."""

    def __init__(
        self,
        job: Job,
        clients: Sequence[ClientRows],
        server: ClientRows | None,
        groups: Mapping[str, Sequence[Hashable]],
        where: ConstraintScope,
    ) -> None:
        self.job = job
        self.names = [client.name for client in clients]
        self.samples = {client.name: _sample(client) for client in clients}
        self.server = None if server is None else _sample(server)
        self.groups = {name: list(values) for name, values in groups.items()}
        self.where = where
        self.rows = constraint_rows(job.constraints, self.groups)
        if where.scope != "global" and where.lacking == "refuse":
            for name in self.names:
                self._require_slices(name)

    @property
    def holders(self) -> list[str]:
        return [*self.names, SERVER, SHARED]

    def federated(self) -> Federated:
        """The program dealt to clients; a client with a limit of its own has the same rows with another bound."""
        plain = self._with(self.job.constraints)
        limits = self.where.limits or {}
        clients, at_server = list(plain.clients), plain
        for name, limit in limits.items():
            other = self._with([with_bound(constraint, limit) for constraint in self.job.constraints])
            if name == SERVER:
                at_server = other
            else:
                place = self.names.index(name)
                clients[place] = other.clients[place]
        return Federated(clients, at_server.server, at_server.shared)

    def _with(self, constraints: Sequence[Constraint]) -> Federated:
        samples = list(self.samples.values())
        total, columns = sum(len(sample.labels) for sample in samples), samples[0].features.shape[1]
        regulariser = np.full(columns, self.job.regulariser(total))
        # The intercept, which has the last column.
        regulariser[-1] = 0.0
        return constrained(
            samples,
            constraints,
            scope=self.where.scope,
            server=self.server,
            regulariser=regulariser,
            groups=self.groups,
            lacking=self.where.lacking,
        )

    def row_names(self) -> list[str]:
        """In the order of `holders`; a row of one holder says whose it is."""
        names = []
        if self.where.scope != "global":
            for name in self.names:
                names += [f"{name}: {row}" for row in self.rows if self._has(name, row)]
        if self.where.scope != "local":
            names += [str(row) if self.server is None else f"{SERVER}: {row}" for row in self.rows]
        return names

    def _has(self, name: str, row: ConstraintRow) -> bool:
        return all(self.samples[name].inside(part).any() for _, part in row.terms)

    def _require_slices(self, name: str) -> None:
        for row in self.rows:
            if not self._has(name, row):
                empty = next(part for _, part in row.terms if not self.samples[name].inside(part).any())
                raise ConstraintError(
                    f"client {name!r} has no rows in the slice [{empty}], so {row} has no meaning there; use "
                    "scope 'global', or leave such constraints out with lacking 'leave out'"
                )


def _sample(rows: ClientRows) -> Sample:
    features = np.hstack([rows.features.astype(np.float64), np.ones((rows.rows, 1))])
    return Sample(features, rows.labels, rows.groups)
