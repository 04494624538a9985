"""Horizontal jobs: load the tables of all participants in one process, train, and write the run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans
from evenhand.constraints.kinds import Constraint
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import SeenTable, require_unchanged
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientData, ClientRows, ModelStart
from evenhand.jobs.cuts import run_cut
from evenhand.jobs.folder import FinishedRun, check_place, job_content, record_in
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.horizontal.rows import (
    SERVER_ROWS,
    ClientTable,
    EncodedRows,
    ServerSide,
    feature_columns,
    given_encoder,
)
from evenhand.jobs.quality import (
    QualityRows,
    check_measurable,
    explained,
    measurable,
    not_shown,
    quality,
    right_decisions,
)
from evenhand.jobs.results import later_shortfalls, run_result
from evenhand.jobs.tables import Classes, Labels, NumericTargets, common_labels, parts_of
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.transcript import Transcript
from evenhand.solvers.agreeing import KnownBefore, draft_terms
from evenhand.solvers.statement import disclosure
from evenhand.training.horizontal import HorizontalRun, start_from, train_together
from evenhand.training.horizontal_steps import HorizontalTraining, client_steps, server_steps
from evenhand.training.protection import client_privacy
from evenhand.training.shared_model import model_state, scorer
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
    labels: Labels | Classes | NumericTargets
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
            sample_weight=self._weights(),
            names=self.labels,
        )
        found = {part: everybody.some(rows) for part, rows in self.parts().items()}
        return measurable(found, self.side.asks_for_test_rows)

    def _weights(self) -> Array | None:
        weights = {name: one.sample_weight for name, one in self.clients.items()}
        return None if any(one is None for one in weights.values()) else self.pooled(weights)

    def parts(self) -> dict[str, Booleans]:
        """Masks of all clients' rows, by part."""
        return parts_of(self.pooled({name: one.test for name, one in self.clients.items()}))

    def not_shown(self) -> list[str]:
        """Return a remark if nothing will be shown for new people, unless the job file asks for that."""
        sizes = {name: one.n_rows for name, one in self.clients.items()}
        test = self.pooled({name: one.test for name, one in self.clients.items()})
        return not_shown(sizes, test, self.labelled(), self.side.asks_for_test_rows)

    def pooled(self, of_clients: Mapping[str, Any]) -> Any:
        """Concatenate an array or a sparse matrix over all clients' rows."""
        parts = [of_clients[name] for name in self.tables]
        return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


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
    found_labels = {one.owner: one.label_values() for one in everybody}
    labels = common_labels(found_labels, data.label, trained, over=" over all clients")
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
    table: ClientTable, labels: Labels | Classes | NumericTargets, given: PartyEncoder | None, job: HorizontalJobFile
) -> Steps[ClientData]:
    """Run a client's steps up to its encoded rows."""
    encoder = given
    if encoder is None and not job.has_images:
        encoder = yield from table.agree_on_encoder()
    device = getattr(job.to_model(), "device", "cpu")
    return ClientData(table.encode(encoder, labels), update_noise=job.to_protection(), device=device)


FinishedHorizontalRun: TypeAlias = FinishedRun[HorizontalRun]


def run_horizontal_job(
    job: HorizontalJobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    on_round: Callable[[Report], None] | None = None,
    checkpoint_seconds: float = 10.0,
    tables: HorizontalTables | None = None,
) -> FinishedHorizontalRun:
    """Train a job and write a run folder; the parameters are those of `run_vertical_job`."""
    check_place(out, resume)
    tables = load_horizontal_tables(job, base) if tables is None else tables
    check_measurable(tables.labelled())
    check_epsilon(job, tables.learned)
    with record_in(out, job_content(job), base, resume) as folder:
        run = train_together(
            tables.together,
            clock=job.to_clock(),
            folder=folder,
            checkpoint_seconds=checkpoint_seconds,
            on_round=on_round,
        )
        require_unchanged(tables.seen)
        state = model_state(run.terms, run.model, run.weights, run.statistics)
        if tables.encoder is not None:
            folder.write_model("encoder", tables.encoder.to_state())
            for name, table in tables.tables.items():
                folder.write_client(name, "reference", table.reference.to_state())
        folder.write_model("weights", state)
        result = _result(job, run, tables, scorer(state))
        folder.finish(result)
    return FinishedHorizontalRun(run, folder, result)


# -- quality


def check_epsilon(job: HorizontalJobFile, columns_learned: bool) -> None:
    """Refuse a requested ε that could not be stated at the end of the run."""
    if job.privacy is None or job.privacy.epsilon is None:
        return
    if others := job.uncovered(columns_learned):
        raise DataError(
            f"privacy.epsilon = {job.privacy.epsilon:g} cannot be guaranteed, because no noise is added to "
            f"{', '.join(others)}. "
            "Agree on these beforehand (data.encoder, data.groups, data.label.negative), leave them out, or set "
            "privacy.noise_multiplier to train without a guarantee"
        )


def _result(
    job: HorizontalJobFile,
    run: HorizontalRun,
    tables: HorizontalTables,
    score: Callable[[Any], Array],
) -> dict[str, Any]:
    of_clients = {name: score(rows.features) for name, rows in tables.clients.items()}
    everybody, labelled = tables.pooled(of_clients), tables.labelled()
    scores = {part: everybody[rows] for part, rows in tables.parts().items()}
    cut, groups = run_cut(run.terms), labelled["train"].groups
    result: dict[str, Any] = {
        "disclosure": clients_disclosure(job),
        **run_result(
            job.to_job(), run.certificate, run.proofs, tables.labels, scores["train"], run.transcript, cut, groups
        ),
        "solver": job.to_job().solver,
        **({"statistics": dict(run.record)} if run.record else {}),
        **quality(labelled, scores, constraints=constraints_over_all(job), cut=cut),
        "clients": {
            name: _of_client(
                rows,
                QualityRows(rows.labels, sample_weight=rows.sample_weight, names=tables.labels),
                of_clients[name],
                cut.of_rows(rows.groups),
            )
            for name, rows in tables.clients.items()
        },
    }
    result["shortfalls"] += later_shortfalls(job.to_job(), result)
    if job.privacy is not None:
        result["privacy"] = stated_privacy(job, list(tables.clients), run.transcript, tables.learned)
    return result


def clients_disclosure(job: HorizontalJobFile) -> str:
    """Return in one line what the messages of the job's run disclose."""
    return disclosure(job.to_job(), {one.name: "client" for one in job.client}, noisy=job.privacy is not None)


def stated_privacy(
    job: HorizontalJobFile,
    clients: Sequence[str],
    transcript: Transcript,
    columns_learned: bool,
    *,
    secret_noise: bool = False,
) -> dict[str, Any]:
    """Return the privacy statement of each client."""
    assert job.privacy is not None
    delta, others = job.privacy.delta, job.uncovered(columns_learned)
    stated = client_privacy(clients, job.to_protection(), transcript, delta, learned=others, secret_noise=secret_noise)
    return {name: one.as_dict() for name, one in stated.items()}


def constraints_over_all(job: HorizontalJobFile) -> tuple[Constraint, ...]:
    """Return the constraints over all clients' rows together, with their bounds."""
    where = job.to_scope()
    return () if where.scope == "local" else where.constraints_of(SERVER, job.to_job().asked)


def _of_client(rows: EncodedRows, labelled: QualityRows, scores: Array, cut: float | Array) -> dict[str, Any]:
    """Return a client's number of rows, and the model's accuracy or share of deviance explained on them."""
    parts = {"train": ~rows.test, "test": rows.test}
    if isinstance(labelled.names, NumericTargets):
        return {
            name: {"rows": int(inside.sum()), "D2": explained(labelled.some(inside), scores[inside])}
            for name, inside in parts.items()
            if inside.any()
        }
    right = right_decisions(labelled, scores, cut)
    return {
        name: {"rows": int(inside.sum()), "accuracy": float(right[inside].mean())}
        for name, inside in parts.items()
        if inside.any()
    }
