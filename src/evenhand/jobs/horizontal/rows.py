"""One participant's rows in a horizontal job: read the table, hold out test rows, encode with the agreed encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Booleans, Matrix
from evenhand.constraints import groups_frame
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.data.images import open_images
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import SeenTable
from evenhand.data.tables.raw import with_numbers
from evenhand.data.tables.readers import TableSource, is_csv, read_table
from evenhand.data.tables.reference import Reference
from evenhand.data.tables.suspicions import suspicions_in
from evenhand.data.tables.twins import twins
from evenhand.errors import DataError
from evenhand.horizontal.problem import ClientRows, HorizontalServerData, ModelStart
from evenhand.jobs.horizontal.file import ClientSection, DataSection, HorizontalJobFile
from evenhand.jobs.schema import TableSection, located
from evenhand.jobs.tables import (
    Classes,
    Labels,
    NumericTargets,
    complete_rows,
    hold_out,
    known_labels,
    label_column,
    naming,
    tell,
    two_labels,
    weight_column,
)
from evenhand.models.pictures import Pictures
from evenhand.printing import listed, quoted
from evenhand.protocol.agree import AgreeClient, AgreeServer, Summary
from evenhand.training.horizontal_steps import agree_on_encoder, combine_encoders
from evenhand.training.together import Steps

SERVER_ROWS: Final = "rows of the server"


@dataclass(frozen=True, eq=False)
class EncodedRows(LabelledRows):
    """One holder's labelled rows with encoded features.

    Attributes
    ----------
    test
        Which rows are held out.
    categorical
        Which columns hold category codes, for trees; None for other models.
    """

    features: Matrix | Pictures = field(kw_only=True)
    test: Booleans = field(kw_only=True)
    categorical: tuple[int, ...] | None = field(default=None, kw_only=True)

    def training_rows(self, name: str) -> ClientRows:
        train = ~self.test
        groups = None if self.groups is None else self.groups[train].reset_index(drop=True)
        missing = self.categorical is not None
        own = self.features.take(train) if isinstance(self.features, Pictures) else self.features[train]
        weights = None if self.sample_weight is None else self.sample_weight[train]
        return ClientRows(name, own, self.labels[train], groups, missing, self.categorical or (), weights)


class ClientTable:
    """One holder's table: read it, choose test rows, encode it, and return the training rows.

    Attributes
    ----------
    name, owner
        Name of the holder, and the name that error messages use.
    seen
        State of the table when it was read.
    rows, training
        The encoded rows, and those to train on; None until all clients have agreed on the encoder.
    reference
        What the client keeps of its training columns, to notice new rows that are unlike them.
    """

    def __init__(self, section: TableSection, name: str, owner: str, job: HorizontalJobFile, base: Path) -> None:
        self.name, self.owner = name, owner
        self._section, self._job, self._base = section, job, base
        self._trees = job.to_job().model == "trees"
        self.columns: list[str] = []
        self.rows: EncodedRows | None = None
        self.training: ClientRows | None = None
        self.reference = Reference()

    def look(self) -> None:
        """Record the state of the table before reading it."""
        with naming(self.owner):
            self.seen = SeenTable.of(located(self._section, self._base))

    def open(self) -> None:
        """Read the table."""
        data = self._job.data
        self.frame = open_frame(self._section, data, self._base, self.owner)
        if data.incomplete == "drop":
            self.frame = self.frame[complete_rows(self.frame, data.beside, self.owner)]

    def take(self, columns: list[str]) -> None:
        """Select the feature columns, which must exist; convert text that holds numbers."""
        data = self._job.data
        with naming(self.owner):
            self.frame = with_lacking(self.frame, columns, data, self.owner)
            _require(columns or data.beside, self.frame)
        self.columns = columns
        self.frame = numbers_read(self.frame, self._section, columns, data, self.owner)

    def hold_out(self) -> None:
        """Choose the test rows; the server's own rows are all for training."""
        server = self.name == SERVER_ROWS
        test = np.zeros(len(self.frame), dtype=bool)
        self.test = test if server else client_test_rows(self.frame.index, self.name, self._job)

    def label_values(self) -> pd.Series:
        """Return the label of each row, as the table has it."""
        with naming(self.owner):
            return label_column(self.frame, self._job.data.label, list(self.frame.columns))

    def agree_on_labels(self) -> Steps[Labels | NumericTargets]:
        """Send the labels that occur here, unless the job gives both; return the two labels of all clients.

        Nothing is sent of targets that are numbers.
        """
        known = known_labels(self._job.data.label, self._job.to_job())
        if isinstance(known, NumericTargets):
            with naming(self.owner):
                known.signs(self.label_values())
            return known
        found, label = self.label_values().unique().tolist(), self._job.data.label
        if None not in (given := (label.negative, label.positive)):
            # What is sent does not depend on the rows.
            if strange := [one for one in found if one not in given]:
                raise DataError(f"{self.owner}: unknown label {quoted(strange[0])}; it is not among {listed(given)}")
            found = list(given)
        # The order of rows would tell the label of the first.
        told = AgreeClient(self.name, {"labels": sorted(found, key=str)})
        yield told
        return Labels(**(told.agreed or {}))

    def agree_on_encoder(self) -> Steps[PartyEncoder]:
        """Send a summary of the columns in the training rows; return the shared encoder."""
        with naming(self.owner):
            learned = learned_encoder(self.frame, self.test, self.columns, self._job.data, self._trees)
        return (yield from agree_on_encoder(self.name, learned, self.frame.loc[~self.test, list(self.columns)]))

    def agree_on_given_encoder(self) -> Steps[PartyEncoder]:
        """Return the encoder that the job names, if all clients have the same one."""
        given, path = given_encoder(self._job, self._base, self.columns), _encoder_path(self._job, self._base)
        yield AgreeClient(self.name, {"encoder": hashlib.sha256(path.read_bytes()).hexdigest()})
        return given

    def encode(self, encoder: PartyEncoder | None, labels: Labels | Classes | NumericTargets) -> ClientRows:
        """Encode all rows, or open the pictures if there is no encoder; return the training rows."""
        data = self._job.data
        with naming(self.owner):
            if (groups := sensitive_groups(self.frame, data)) is not None:
                tell(self.owner, twins(((name, self.frame[name]) for name in self.columns), groups))
            if encoder is not None:
                columns = ((name, self.frame[name]) for name in self.columns)
                self.reference = Reference.of(columns, ~self.test)
                self.rows = encoded_rows(encoder, self.frame, labels, data, self.test, self._trees)
                if data.weight is not None:
                    people = weight_column(self.frame, data.weight, list(self.frame.columns))
                    if not people[~self.test].any():
                        raise DataError(f"weight column {data.weight!r} is zero in all training rows")
                    self.rows = replace(self.rows, sample_weight=people)
            else:
                assert isinstance(self._section, ClientSection)
                self.rows = EncodedRows(
                    labels.signs(self.frame[data.label.column]),
                    sensitive_groups(self.frame, data),
                    features=client_pictures(self._section, self.frame, self._job, self._base),
                    test=self.test,
                )
        del self.frame
        self.training = self.rows.training_rows(self.name)
        return self.training


class ServerSide:
    """The server's steps before training: combine the clients' labels and column summaries.

    Parameters
    ----------
    labels
        The labels, if they are known; None lets clients agree on two.
    table
        The server's own rows, if it has any.
    start
        Returns the start of training; called once the rows are encoded.
    simulated
        Whether all clients are in this process, and read the same encoder file.

    Attributes
    ----------
    encoder
        The shared encoder. None for pictures, before clients agree, and at a server without rows if the encoder is
        given.
    """

    def __init__(
        self,
        job: HorizontalJobFile,
        names: Sequence[str],
        labels: Labels | Classes | NumericTargets | None = None,
        encoder: PartyEncoder | None = None,
        table: ClientTable | None = None,
        start: Callable[[], ModelStart | None] = lambda: None,
        *,
        simulated: bool = False,
    ) -> None:
        self._job, self._names, self._table, self._start = job, sorted(names), table, start
        self._simulated = simulated
        self.labels, self.encoder = labels, encoder

    @property
    def asks_for_test_rows(self) -> bool:
        """Whether the job file asks for held-out rows."""
        return self._job.job.asks_for_test_rows

    @property
    def learned(self) -> bool:
        """Whether the encoder has statistics of the clients' training rows."""
        found = self.encoder
        if self._job.data.encoder is not None or found is None:
            return False
        return found.scale or bool(found.categorical) or found.feature_names_out != found.columns_in

    def steps(self) -> Steps[HorizontalServerData]:
        """Agree on labels and on an encoder if they are not known; return the server's own data."""
        data = self._job.data
        if self.labels is None:
            self.labels = known_labels(data.label, self._job.to_job())
        if self.labels is None:
            found = AgreeServer(self._names, self._two_labels)
            yield found
            self.labels = Labels(**(found.agreed or {}))
        if data.encoder is None and not self._job.has_images:
            rules, as_is = vars(data.to_rules()), self._job.to_job().model == "trees"
            self.encoder = yield from combine_encoders(self._names, data.scale, as_is, rules)
            if self._simulated:
                tell("all clients", self.encoder.remarks)
        elif data.encoder is not None and not self._simulated:
            yield AgreeServer(self._names, _same_encoder)
        rows = None if self._table is None else self._table.encode(self.encoder, self.labels)
        device = getattr(self._job.to_model(), "device", "cpu") if self._simulated else "cpu"
        return HorizontalServerData(rows, start=self._start(), device=device)

    def _two_labels(self, told: Mapping[str, Summary]) -> Summary:
        # Whoever reads the error may not learn which client has which label.
        found = [label for one in told.values() for label in one["labels"]]
        return two_labels(
            {"": pd.Series(found, dtype=object)}, self._job.data.label, over=" over all clients"
        )._asdict()


def _same_encoder(told: Mapping[str, Summary]) -> Summary:
    if len({one.get("encoder") for one in told.values()}) > 1:
        raise DataError("data.encoder: the clients' files differ; give all clients the same encoder")
    return {}


def _encoder_path(job: HorizontalJobFile, base: Path) -> Path:
    assert job.data.encoder is not None
    return base / Path(job.data.encoder).expanduser()


def given_encoder(job: HorizontalJobFile, base: Path, columns: Sequence[str]) -> PartyEncoder:
    """Read the encoder that the job names; refuse one for other columns."""
    path = _encoder_path(job, base)
    try:
        encoder = PartyEncoder.from_json(path.read_bytes())
    except (OSError, DataError) as error:
        raise DataError(f"data.encoder: {path} holds no encoder: {error}") from error
    if encoder.sparse_columns is not None:
        raise DataError(f"data.encoder: {path} is for {encoder.sparse_columns:,} numbered columns, not for named ones")
    if sorted(encoder.columns_in) != sorted(columns):
        raise DataError(f"data.encoder: {path} is for the columns {encoder.columns_in}, the job has {list(columns)}")
    return encoder


def open_frame(
    section: TableSection,
    data: DataSection,
    base: Path,
    owner: str,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return a client's table, with these columns only if they are given."""
    with naming(owner):
        return read_table(replace(table_source(section, data, base), columns=columns))


def table_source(section: TableSection, data: DataSection, base: Path) -> TableSource:
    """Return the location of a client's table, and how it is read."""
    return located(section, base, data.id, types=data.types, duplicates=data.duplicates)


def numbers_read(
    frame: pd.DataFrame, section: TableSection, columns: Sequence[str], data: DataSection, owner: str
) -> pd.DataFrame:
    """Return a client's table, with text features that hold numbers converted to numbers."""
    frame = with_numbers(frame, columns, data.types, owner, typed=not is_csv(section.table))
    tell(owner, (one.said for one in suspicions_in(frame, columns, data.types).values()))
    return frame


def client_pictures(client: ClientSection, frame: pd.DataFrame, job: HorizontalJobFile, base: Path) -> Pictures:
    """Return a client's pictures, one for each row of its table."""
    assert client.images is not None
    files, data = None, job.data
    if data.file is not None:
        _require([data.file], frame)
        files = [str(one) for one in frame[data.file]]
    images = open_images(base / Path(client.images).expanduser(), files, data.size)
    if len(images) != len(frame):
        raise DataError(f"{client.images} has {len(images):,} pictures, but the table has {len(frame):,} rows")
    return Pictures(images, crop=getattr(job.to_model(), "crop", None))


def encoded_rows(
    encoder: PartyEncoder,
    frame: pd.DataFrame,
    labels: Labels | Classes | NumericTargets,
    data: DataSection,
    test: Booleans,
    trees: bool,
) -> EncodedRows:
    """Return a participant's rows in the form for training."""
    sensitive = sensitive_groups(frame, data)
    signs = labels.signs(frame[data.label.column])
    categorical = encoder.categorical if trees else None
    return EncodedRows(signs, sensitive, features=encoded(encoder, frame), test=test, categorical=categorical)


def sensitive_groups(frame: pd.DataFrame, data: DataSection) -> pd.DataFrame | None:
    """Return each row's groups; a client need not have all groups that are merged."""
    if not data.sensitive:
        return None
    return groups_frame(data.grouping.groups(frame[data.sensitive], trained={}), len(frame))


def encoded(encoder: PartyEncoder, frame: pd.DataFrame) -> Matrix:
    """Return encoded columns; sparse ones stay sparse."""
    matrix = encoder.transform(frame)
    return matrix.astype(np.float64, copy=False) if sp.issparse(matrix) else np.asarray(matrix, dtype=np.float64)


def with_lacking(frame: pd.DataFrame, columns: Sequence[str], data: DataSection, owner: str) -> pd.DataFrame:
    """Add feature columns that a client lacks, or has no value in, as missing values, if the job allows that."""
    if data.lacking_columns == "refuse":
        return frame
    lacks = [name for name in columns if name not in frame.columns or frame[name].isna().all()]
    if not lacks:
        return frame
    if len(lacks) == len(columns):
        raise DataError(f"the table has none of the feature columns ({listed(columns)})")
    tell(owner, [f"the table lacks {listed(lacks)}, which are missing in all its rows"])
    return frame.assign(**dict.fromkeys(lacks, np.nan))


def feature_columns(frames: Mapping[str, pd.DataFrame], data: DataSection) -> list[str]:
    """Return the feature columns, which every client must have unless the job takes those that it lacks as missing."""
    first, beside = next(iter(frames)), data.beside
    columns = data.columns
    if columns is None:
        left_out = [*beside, *(name for name, kind in data.types.items() if kind == "leave out")]
        whose = [frames[first]] if data.lacking_columns == "refuse" else frames.values()
        columns = list(dict.fromkeys(str(name) for frame in whose for name in frame.columns if name not in left_out))
        if not columns:
            raise DataError(f"client {first!r}: no feature columns are left beside id, label and sensitive ones")
    for key in ("types", "missing", "numbers"):
        given = getattr(data, key)
        for name in given if isinstance(given, Mapping) else ():
            if not any(name in frame.columns for frame in frames.values()):
                raise DataError(f"data.{key} names {name!r}, which is not a column; there is {listed(frames[first])}")
    for name, frame in frames.items():
        with naming(f"client {name!r}"):
            _require([*columns, *beside] if data.lacking_columns == "refuse" else beside, frame)
            more = [str(one) for one in frame.columns if one not in (*columns, *beside, *data.types)]
            if data.columns is None and more:
                raise DataError(
                    f"column {more[0]!r} is not in the table of client {first!r}; list the features to "
                    "train on with columns in [data]"
                )
    return columns


def _require(columns: Sequence[str], frame: pd.DataFrame) -> None:
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"there is no column {name!r}; the table has {listed(frame.columns)}")


def client_test_rows(ids: pd.Index, name: str, job: HorizontalJobFile) -> Booleans:
    """Return a client's test rows, by a hash of the id, or of the client's name and the row's number."""
    known = ids if job.data.id is not None else [f"{name} {number}" for number in range(len(ids))]
    with naming(f"client {name!r}"):
        return hold_out(known, job.job, none_is_fine=True)


def learned_encoder(
    frame: pd.DataFrame, test: Booleans, columns: Sequence[str], data: DataSection, as_is: bool
) -> PartyEncoder:
    """Return the summary of one client's columns, from its training rows."""
    encoder = PartyEncoder(scale=data.scale, as_is=as_is, **vars(data.to_rules()))
    return encoder.partial_fit(frame.loc[~test, list(columns)])
