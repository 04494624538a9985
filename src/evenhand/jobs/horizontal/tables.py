"""Load the tables of a horizontal job, with all clients in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Booleans
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import SeenTable
from evenhand.horizontal.problem import ClientData, ClientRows, ModelStart
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.horizontal.rows import (
    SERVER_ROWS,
    ClientTable,
    EncodedRows,
    ServerSide,
    feature_columns,
    given_encoder,
)
from evenhand.jobs.quality import QualityRows
from evenhand.jobs.tables import Classes, Labels, common_labels, parts_of
from evenhand.protocol.roles import SERVER
from evenhand.protocol.transcript import Transcript
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.training.horizontal_steps import HorizontalTraining, client_steps, server_steps, start_from
from evenhand.training.together import Steps, Together


@dataclass(frozen=True, eq=False)
class HorizontalTables:
    """All clients' tables, and the steps of all participants up to training.

    Attributes
    ----------
    tables
        Each client's table, in the order of the job.
    server_table
        The server's own rows, or None.
    together
        Steps of all participants; training continues them.
    """

    tables: Mapping[str, ClientTable]
    server_table: ClientTable | None
    side: ServerSide
    labels: Labels | Classes
    together: Together[HorizontalTraining]

    @property
    def clients(self) -> dict[str, EncodedRows]:
        """Each client's encoded rows."""
        found = {}
        for name, table in self.tables.items():
            assert table.rows is not None
            found[name] = table.rows
        return found

    @property
    def encoder(self) -> PartyEncoder | None:
        """The shared encoder; None for pictures, which need none."""
        return self.side.encoder

    @property
    def learned(self) -> bool:
        """Whether the encoder was learned from the clients' training rows, rather than given."""
        return self.side.learned

    @property
    def encoded(self) -> bool:
        """Whether all participants' rows are encoded."""
        return all(table.rows is not None for table in self.tables.values())

    @property
    def seen(self) -> dict[str, SeenTable]:
        """The state of each table when it was read, by owner."""
        everybody = [*self.tables.values(), *([] if self.server_table is None else [self.server_table])]
        return {one.owner: one.seen for one in everybody}

    @property
    def training(self) -> dict[str, ClientRows]:
        """Each client's training rows, in the order of names; those that are not encoded yet are left out."""
        found = {name: self.tables[name].training for name in sorted(self.tables)}
        return {name: rows for name, rows in found.items() if rows is not None}

    def labelled(self) -> dict[str, QualityRows]:
        """All clients' ``"train"`` and ``"test"`` rows, without empty parts, to measure quality on."""
        frames = [one.groups for one in self.clients.values() if one.groups is not None]
        everybody = QualityRows(
            self.pooled({name: one.labels for name, one in self.clients.items()}),
            pd.concat(frames, ignore_index=True) if frames else None,
            names=self.labels,
        )
        return {part: everybody.some(rows) for part, rows in self.parts().items()}

    def parts(self) -> dict[str, Booleans]:
        """Masks of all clients' rows, by part."""
        return parts_of(self.pooled({name: one.test for name, one in self.clients.items()}))

    def pooled(self, of_clients: Mapping[str, Any]) -> Any:
        """Concatenate an array over all clients' rows."""
        return np.concatenate([of_clients[name] for name in self.tables])


def load_horizontal_tables(
    job: HorizontalJobFile, base: Path, transcript: Transcript | None = None
) -> HorizontalTables:
    """Read and check everything a job needs, and agree on the terms; train and write nothing.

    Parameters
    ----------
    transcript
        Records the messages; None creates a new one.
    """
    tables = open_horizontal_tables(job, base, transcript)
    tables.together.to_training()
    return tables


def open_horizontal_tables(
    job: HorizontalJobFile, base: Path, transcript: Transcript | None = None
) -> HorizontalTables:
    """Read all tables, before clients agree on terms."""
    data, trained = job.data, job.to_job()
    tables = {one.name: ClientTable(one, one.name, f"client {one.name!r}", job, base) for one in job.client}
    server = ClientTable(job.server, SERVER_ROWS, "[server]", job, base) if job.server.has_rows else None
    everybody = [*tables.values(), *([] if server is None else [server])]
    for one in everybody:
        one.look()
    for one in everybody:
        one.open()
    columns = [] if job.has_images else feature_columns({name: one.frame for name, one in tables.items()}, data)
    for one in everybody:
        one.take(columns)
    labels = common_labels([one.label_values() for one in everybody], data.label, over=" over all clients")
    for one in everybody:
        one.hold_out()
    given = None if data.encoder is None or job.has_images else given_encoder(job, base, columns)
    draft = draft_terms(
        trained,
        list(tables),
        scope=job.to_scope(),
        noise=job.to_noise(),
        two_classes=job.n_classes is None,
        server_rows=server is not None,
    )
    known = KnownBefore(data.groups, job.n_classes, simulated=True)

    def begins() -> ModelStart | None:
        if job.job.start is None:
            return None
        shape = tuple(next(iter(found.clients.values())).features.shape[1:])
        return start_from(base / Path(job.job.start).expanduser(), trained, shape, job.n_classes)

    side = ServerSide(job, list(tables), labels, given, server, begins, simulated=True)
    steps: dict[str, Steps[Any]] = {
        SERVER: server_steps(
            draft, known, side.steps(), everybody=lambda: found.training, warns=bool(trained.constraints)
        )
    }
    for name in sorted(tables):
        steps[name] = client_steps(name, draft, known, _own(tables[name], labels, given, job))
    found = HorizontalTables(tables, server, side, labels, Together(steps, transcript))
    return found


def _own(
    table: ClientTable, labels: Labels | Classes, given: PartyEncoder | None, job: HorizontalJobFile
) -> Steps[ClientData]:
    """Run a client's steps up to its encoded rows."""
    encoder = given
    if encoder is None and not job.has_images:
        encoder = yield from table.agree_on_encoder()
    device = getattr(job.to_model(), "device", "cpu")
    return ClientData(table.encode(encoder, labels), update_noise=job.to_protection(), device=device)
