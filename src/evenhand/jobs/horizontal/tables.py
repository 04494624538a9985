"""From clients' tables to rows ready for training: read, hold out test rows, agree on an encoding, encode."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans
from evenhand.constraints import groups_frame
from evenhand.data.splits import held_out
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.readers import read_table
from evenhand.errors import ConstraintError, DataError
from evenhand.horizontal.problem import ClientRows
from evenhand.jobs.horizontal.file import ClientSection, DataSection, HorizontalJobFile, ServerSection
from evenhand.jobs.schema import located

# A job file may say "true" in quotes of a column that holds booleans.
_WORDS: Final = {"true": True, "false": False}
SERVER_ROWS: Final = "rows of the server"


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """One holder's rows, encoded.

    Attributes
    ----------
    signs
        ±1, +1 for the positive label.
    sensitive
        One column for each sensitive attribute; None where the job names none.
    test
        Which rows are held out.
    """

    features: Array
    signs: Array
    sensitive: pd.DataFrame | None
    test: Booleans

    def training_rows(self, name: str) -> ClientRows:
        train = ~self.test
        groups = None if self.sensitive is None else self.sensitive[train].reset_index(drop=True)
        return ClientRows(name, self.features[train].astype(np.float32), self.signs[train], groups)


@dataclass(frozen=True, eq=False)
class ClientTables:
    """Encoded tables of all clients, with training and test rows apart.

    Attributes
    ----------
    encoder
        The one that all share.
    learned
        Whether it was learned from the clients' training rows, rather than given.
    server
        Rows of the server's own; None where it has none.
    """

    clients: Mapping[str, EncodedRows]
    server: EncodedRows | None
    encoder: PartyEncoder
    learned: bool
    negative: Any
    positive: Any

    def pooled(self, part: str) -> EncodedRows | None:
        """Everybody's ``"train"`` or ``"test"`` rows, to measure quality on; None where there are none."""
        chosen = [(one, one.test if part == "test" else ~one.test) for one in self.clients.values()]
        if not any(rows.any() for _, rows in chosen):
            return None
        frames = [one.sensitive[rows] for one, rows in chosen if one.sensitive is not None]
        return EncodedRows(
            np.concatenate([one.features[rows] for one, rows in chosen]),
            np.concatenate([one.signs[rows] for one, rows in chosen]),
            pd.concat(frames, ignore_index=True) if frames else None,
            np.concatenate([one.test[rows] for one, rows in chosen]),
        )


def load_clients(job: HorizontalJobFile, base: Path) -> ClientTables:
    """Read and check everything a job needs, before anything is trained or written."""
    data = job.data
    frames = {client.name: open_frame(client, data, base, f"client {client.name!r}") for client in job.client}
    columns = _columns(frames, data)
    server = open_frame(job.server, data, base, "[server]") if job.server.has_rows else None
    if server is not None:
        with naming("[server]"):
            _require(columns, server)
    everybody = frames if server is None else {**frames, SERVER_ROWS: server}
    negative, positive = _two_labels(everybody, data)
    tests = {name: _held_out(frame.index, name, data, job) for name, frame in frames.items()}
    encoder, learned = _encoder(frames, tests, columns, data, base)

    def encode(name: str, frame: pd.DataFrame, test: Booleans) -> EncodedRows:
        with naming(f"client {name!r}"):
            sensitive = groups_frame(frame[data.sensitive], len(frame)) if data.sensitive else None
            signs = np.where(frame[data.label.column].to_numpy() == positive, 1.0, -1.0)
            return EncodedRows(encoded(encoder, frame), signs, sensitive, test)

    return ClientTables(
        {name: encode(name, frame, tests[name]) for name, frame in frames.items()},
        None if server is None else encode(SERVER_ROWS, server, np.zeros(len(server), dtype=bool)),
        encoder,
        learned,
        negative,
        positive,
    )


def open_frame(
    section: ClientSection | ServerSection,
    data: DataSection,
    base: Path,
    owner: str,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """A client's table; with `columns`, these and no others."""
    with naming(owner):
        return read_table(replace(located(section, base, data.id), columns=columns))


def encoded(encoder: PartyEncoder, frame: pd.DataFrame) -> Array:
    matrix = encoder.transform(frame)
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


@contextmanager
def naming(owner: str) -> Iterator[None]:
    """Say whose table an error is about."""
    try:
        yield
    except (DataError, ConstraintError) as error:
        raise type(error)(f"{owner}: {error}") from error


def _columns(frames: Mapping[str, pd.DataFrame], data: DataSection) -> list[str]:
    """The feature columns, which every client must have."""
    first, beside = next(iter(frames)), [data.label.column, *data.sensitive]
    columns = data.columns
    if columns is None:
        columns = [str(name) for name in frames[first].columns if name not in beside]
        if not columns:
            raise DataError(f"client {first!r}: no feature columns are left beside id, label and sensitive ones")
        _refuse_ids(frames, columns)
    for name, frame in frames.items():
        with naming(f"client {name!r}"):
            _require([*columns, *beside], frame)
            more = [str(one) for one in frame.columns if one not in (*columns, *beside)]
            if data.columns is None and more:
                raise DataError(
                    f"column {more[0]!r} is not in the table of client {first!r}; say with columns in [data] which "
                    "ones to train on"
                )
    return columns


def _refuse_ids(frames: Mapping[str, pd.DataFrame], columns: Sequence[str]) -> None:
    """Text that is different in every row of every client says who a row is; as a feature it would only be learned."""
    for column in columns:
        found = [frame[column] for frame in frames.values() if column in frame.columns]
        if all(len(one) > 1 and one.is_unique and not pd.api.types.is_numeric_dtype(one) for one in found):
            raise DataError(
                f"column {column!r} has another value in every row, as an id has; say id = {column!r} in [data], or "
                "name the columns to train on"
            )


def _require(columns: Sequence[str], frame: pd.DataFrame) -> None:
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"there is no column {name!r}; there is {', '.join(map(repr, frame.columns))}")


def _two_labels(frames: Mapping[str, pd.DataFrame], data: DataSection) -> tuple[Any, Any]:
    """The two labels of all clients together, the negative and the positive one; a client may lack one of them."""
    column, positive = data.label.column, data.label.positive
    where = f"label column {column!r}"
    for name, frame in frames.items():
        with naming(f"client {name!r}"):
            if column not in frame.columns:
                raise DataError(f"{where} is not in the table; there is {', '.join(map(repr, frame.columns))}")
            if missing := int(frame[column].isna().sum()):
                raise DataError(f"{where} has {missing} missing values; drop those rows")
    found: set[Any] = set().union(*(frame[column].unique().tolist() for frame in frames.values()))
    if len({type(value) for value in found}) > 1:
        raise DataError(f"{where} holds values of different kinds, such as {list(found)[:3]}; make them one")
    classes = sorted(found)
    if len(classes) != 2:
        raise DataError(
            f"{where} has {len(classes)} different values over all clients ({classes[:5]}); it needs exactly two"
        )
    if not isinstance(classes[0], (str, int, float)):
        raise DataError(f"{where} holds {type(classes[0]).__name__} values; labels are text, numbers, true or false")
    if isinstance(positive, str) and isinstance(classes[0], bool):
        positive = _WORDS.get(positive.lower(), positive)
    positive = classes[1] if positive is None else positive
    if positive not in classes:
        raise DataError(f"{where}: positive is {positive!r}, the values are {classes[0]!r} and {classes[1]!r}")
    # The table's own value: a job file may say 1 where the table holds 1.0 or true.
    place = classes.index(positive)
    return classes[1 - place], classes[place]


def _held_out(ids: pd.Index, name: str, data: DataSection, job: HorizontalJobFile) -> Booleans:
    """A client's test rows, by a hash of the id, or of the client's name and the row's number."""
    fraction = job.job.test_fraction
    if fraction == 0:
        return np.zeros(len(ids), dtype=bool)
    known = ids if data.id is not None else [f"{name} {number}" for number in range(len(ids))]
    test = held_out(known, fraction, job.job.seed)
    if test.all():
        raise DataError(
            f"client {name!r}: test_fraction = {fraction} holds out all of its {len(ids)} rows; change it, or the seed"
        )
    return test


def _encoder(
    frames: Mapping[str, pd.DataFrame],
    tests: Mapping[str, Booleans],
    columns: Sequence[str],
    data: DataSection,
    base: Path,
) -> tuple[PartyEncoder, bool]:
    """The agreed encoder, or one from what clients would share of their training rows, and whether it was learned."""
    if data.encoder is not None:
        return _agreed_encoder(base / Path(data.encoder).expanduser(), columns), False
    encoder = PartyEncoder(scale=data.scale)
    # In the order of names, so that the order of clients in the file changes nothing.
    for name in sorted(frames):
        with naming(f"client {name!r}"):
            encoder.partial_fit(frames[name].loc[~tests[name], list(columns)])
    return encoder, data.scale or encoder.feature_names_out != encoder.columns_in


def _agreed_encoder(path: Path, columns: Sequence[str]) -> PartyEncoder:
    try:
        encoder = PartyEncoder.from_state(json.loads(path.read_bytes()))
    except (OSError, ValueError, DataError) as error:
        raise DataError(f"data.encoder: {path} holds no encoder: {error}") from error
    if sorted(encoder.columns_in) != sorted(columns):
        raise DataError(f"data.encoder: {path} is for the columns {encoder.columns_in}, the job has {list(columns)}")
    return encoder
