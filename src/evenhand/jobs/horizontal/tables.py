"""From clients' tables to rows ready for training: read, hold out test rows, agree on an encoding, encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans
from evenhand.constraints import groups_frame
from evenhand.data.images.files import open_images
from evenhand.data.tables.as_types import with_numbers
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.readers import is_csv, read_table
from evenhand.data.tables.unchanged import SeenTable
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.jobs.horizontal.file import ClientSection, DataSection, HorizontalJobFile, ServerSection
from evenhand.jobs.labels import Classes, Labels, common_labels, label_column
from evenhand.jobs.quality import QualityRows
from evenhand.jobs.schema import LabelSection, TableSection, located
from evenhand.jobs.tables import hold_out, naming, parts_of, tell
from evenhand.models.pictures import Pictures
from evenhand.printing import listed
from evenhand.solvers.agreeing import draft_terms
from evenhand.training.preparing import Preparation

SERVER_ROWS: Final = "rows of the server"


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """One holder's rows, encoded.

    Attributes
    ----------
    signs
        ±1, +1 for the positive label; of three classes or more each row's place among them.
    sensitive
        One column for each sensitive attribute; None where the job names none.
    test
        Which rows are held out.
    categorical
        Where trees take columns as they are, which of them hold codes; None for other models.
    """

    features: Array | Pictures
    signs: Array
    sensitive: pd.DataFrame | None
    test: Booleans
    categorical: tuple[int, ...] | None = None

    def training_rows(self, name: str) -> ClientRows:
        train = ~self.test
        groups = None if self.sensitive is None else self.sensitive[train].reset_index(drop=True)
        gaps = self.categorical is not None
        own = self.features.take(train) if isinstance(self.features, Pictures) else self.features[train]
        return ClientRows(name, own, self.signs[train], groups, gaps, self.categorical or ())


@dataclass(frozen=True, eq=False)
class HorizontalTables:
    """Encoded tables of all clients, with training and test rows apart.

    Attributes
    ----------
    encoder
        The one that all share; None of pictures, which need none.
    learned
        Whether it was learned from the clients' training rows, rather than given.
    server
        Rows of the server's own; None where it has none.
    seen
        What each table was when it was read, by whose it is.
    """

    clients: Mapping[str, EncodedRows]
    server: EncodedRows | None
    encoder: PartyEncoder | None
    learned: bool
    labels: Labels | Classes
    seen: Mapping[str, SeenTable]
    preparation: Preparation

    def labelled(self) -> dict[str, QualityRows]:
        """Everybody's ``"train"`` rows and ``"test"`` rows, if there are any, to measure quality on."""
        frames = [one.sensitive for one in self.clients.values() if one.sensitive is not None]
        everybody = QualityRows(
            self.labels,
            self.pooled({name: one.signs for name, one in self.clients.items()}),
            pd.concat(frames, ignore_index=True) if frames else None,
        )
        return {part: everybody.some(rows) for part, rows in self.parts().items()}

    def parts(self) -> dict[str, Booleans]:
        """Which of everybody's rows are of which part."""
        return parts_of(self.pooled({name: one.test for name, one in self.clients.items()}))

    def pooled(self, of_clients: Mapping[str, Any]) -> Any:
        """What every client has of its rows, one after the other."""
        return np.concatenate([of_clients[name] for name in self.clients])


def load_horizontal_tables(job: HorizontalJobFile, base: Path) -> HorizontalTables:
    """Read and check everything a job needs, before anything is trained or written."""
    data = job.data
    seen = _look(job, base)
    frames = {client.name: open_frame(client, data, base, f"client {client.name!r}") for client in job.client}
    columns = [] if job.has_images else feature_columns(frames, data)
    if job.has_images:
        for name, frame in frames.items():
            with naming(f"client {name!r}"):
                _require([data.label.column, *data.sensitive], frame)
    frames = {
        client.name: numbers_read(frames[client.name], client, columns, data, f"client {client.name!r}")
        for client in job.client
    }
    server = open_frame(job.server, data, base, "[server]") if job.server.has_rows else None
    if server is not None:
        with naming("[server]"):
            _require(columns, server)
            server = numbers_read(server, job.server, columns, data, "[server]")
    everybody = frames if server is None else {**frames, SERVER_ROWS: server}
    labels = _labels(everybody, data.label)
    tests = {name: client_test_rows(frame.index, name, job) for name, frame in frames.items()}
    preparation = Preparation()
    preparation.enrol(
        draft_terms(
            job.to_job(),
            list(frames),
            scope=job.to_scope(),
            protected=job.privacy is not None,
            two_classes=job.n_classes is None,
            server_rows=server is not None,
        )
    )
    trees = job.to_job().model == "trees"
    encoder, learned = None, False
    if not job.has_images:
        encoder, learned = _encoder(frames, tests, columns, data, base, preparation, as_is=trees)
    images = {client.name: client for client in job.client if client.images is not None}

    def encode(name: str, frame: pd.DataFrame, test: Booleans) -> EncodedRows:
        with naming(f"client {name!r}"):
            if encoder is not None:
                return encoded_rows(encoder, frame, labels, data, test, trees)
            return EncodedRows(
                client_pictures(images[name], frame, data, base),
                labels.signs(frame[data.label.column]),
                groups_frame(frame[data.sensitive], len(frame)) if data.sensitive else None,
                test,
            )

    return HorizontalTables(
        {name: encode(name, frame, tests[name]) for name, frame in frames.items()},
        None if server is None else encode(SERVER_ROWS, server, np.zeros(len(server), dtype=bool)),
        encoder,
        learned,
        labels,
        seen,
        preparation,
    )


def _look(job: HorizontalJobFile, base: Path) -> dict[str, SeenTable]:
    sections: dict[str, ClientSection | ServerSection] = {f"client {client.name!r}": client for client in job.client}
    if job.server.has_rows:
        sections["[server]"] = job.server
    seen = {}
    for owner, section in sections.items():
        with naming(owner):
            seen[owner] = SeenTable.of(located(section, base))
    return seen


def open_frame(
    section: TableSection,
    data: DataSection,
    base: Path,
    owner: str,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """A client's table; with `columns`, these and no others."""
    with naming(owner):
        return read_table(replace(located(section, base, data.id, types=data.types), columns=columns))


def numbers_read(
    frame: pd.DataFrame, section: TableSection, columns: Sequence[str], data: DataSection, owner: str
) -> pd.DataFrame:
    """A client's table in which features of text that stand for numbers are numbers."""
    return with_numbers(frame, columns, data.types, owner, typed=not is_csv(section.table))


def client_pictures(client: ClientSection, frame: pd.DataFrame, data: DataSection, base: Path) -> Pictures:
    """A client's pictures, a row of its table each."""
    assert client.images is not None
    files = None
    if data.file is not None:
        _require([data.file], frame)
        files = [str(one) for one in frame[data.file]]
    images = open_images(base / Path(client.images).expanduser(), files, data.size)
    if len(images) != len(frame):
        raise DataError(f"there are {len(images):,} pictures in {client.images} and {len(frame):,} rows in the table")
    return Pictures(images, crop=data.crop)


def encoded_rows(
    encoder: PartyEncoder, frame: pd.DataFrame, labels: Labels | Classes, data: DataSection, test: Booleans, trees: bool
) -> EncodedRows:
    """A holder's rows as training has them."""
    sensitive = groups_frame(frame[data.sensitive], len(frame)) if data.sensitive else None
    signs = labels.signs(frame[data.label.column])
    return EncodedRows(encoded(encoder, frame), signs, sensitive, test, encoder.categorical if trees else None)


def encoded(encoder: PartyEncoder, frame: pd.DataFrame) -> Array:
    matrix = encoder.transform(frame)
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


def feature_columns(frames: Mapping[str, pd.DataFrame], data: DataSection) -> list[str]:
    """The feature columns, which every client must have."""
    first, beside = next(iter(frames)), [data.label.column, *data.sensitive]
    columns = data.columns
    if columns is None:
        left_out = [*beside, *(name for name, kind in data.types.items() if kind == "leave out")]
        columns = [str(name) for name in frames[first].columns if name not in left_out]
        if not columns:
            raise DataError(f"client {first!r}: no feature columns are left beside id, label and sensitive ones")
    for name, frame in frames.items():
        with naming(f"client {name!r}"):
            _require([*columns, *beside], frame)
            more = [str(one) for one in frame.columns if one not in (*columns, *beside, *data.types)]
            if data.columns is None and more:
                raise DataError(
                    f"column {more[0]!r} is not in the table of client {first!r}; say with columns in [data] which "
                    "ones to train on"
                )
    return columns


def _require(columns: Sequence[str], frame: pd.DataFrame) -> None:
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"there is no column {name!r}; there is {listed(frame.columns)}")


def _labels(frames: Mapping[str, pd.DataFrame], label: LabelSection) -> Labels | Classes:
    """The labels of all clients together; a client may lack some of them."""
    columns = []
    for name, frame in frames.items():
        with naming(f"client {name!r}"):
            columns.append(label_column(frame, label, list(frame.columns)))
    return common_labels(columns, label, over=" over all clients")


def client_test_rows(ids: pd.Index, name: str, job: HorizontalJobFile) -> Booleans:
    """A client's test rows, by a hash of the id, or of the client's name and the row's number."""
    known = ids if job.data.id is not None else [f"{name} {number}" for number in range(len(ids))]
    with naming(f"client {name!r}"):
        return hold_out(known, job.job.test_fraction, job.job.seed, none_is_fine=True)


def _encoder(
    frames: Mapping[str, pd.DataFrame],
    tests: Mapping[str, Booleans],
    columns: Sequence[str],
    data: DataSection,
    base: Path,
    preparation: Preparation,
    as_is: bool,
) -> tuple[PartyEncoder, bool]:
    """The encoder given, or one from what clients share of their training rows, and whether it was learned."""
    if data.encoder is not None:
        return agreed_encoder(base / Path(data.encoder).expanduser(), columns), False
    found = {}
    # In the order of names, so that the order of clients in the file changes nothing.
    for name in sorted(frames):
        with naming(f"client {name!r}"):
            found[name] = learned_encoder(frames[name], tests[name], columns, data, as_is)
    encoder = preparation.encoder(found, data.scale, as_is)
    tell("all clients", encoder.remarks)
    return encoder, encoder.scale or bool(encoder.categorical) or encoder.feature_names_out != encoder.columns_in


def learned_encoder(
    frame: pd.DataFrame, test: Booleans, columns: Sequence[str], data: DataSection, as_is: bool
) -> PartyEncoder:
    """What one client's training rows say of its columns."""
    encoder = PartyEncoder(scale=data.scale, as_is=as_is, **vars(data.to_rules()))
    return encoder.partial_fit(frame.loc[~test, list(columns)])


def agreed_encoder(path: Path, columns: Sequence[str]) -> PartyEncoder:
    try:
        encoder = PartyEncoder.from_json(path.read_bytes())
    except (OSError, DataError) as error:
        raise DataError(f"data.encoder: {path} holds no encoder: {error}") from error
    if encoder.sparse_columns is not None:
        raise DataError(f"data.encoder: {path} is for {encoder.sparse_columns:,} numbered columns, not for named ones")
    if sorted(encoder.columns_in) != sorted(columns):
        raise DataError(f"data.encoder: {path} is for the columns {encoder.columns_in}, the job has {list(columns)}")
    return encoder
