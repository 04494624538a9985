"""Check a job before training: report what its tables hold, and everything that is wrong."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from evenhand.constraints.groups import groups_frame
from evenhand.constraints.kinds import as_list
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.numerals import Decimal
from evenhand.data.tables.party_tables import PartyTable
from evenhand.data.tables.readers import TableSource, is_libsvm, read_table
from evenhand.errors import ColumnWarning, EvenhandError, InputError, MissingExtraError
from evenhand.jobs.folder import JobFile
from evenhand.jobs.horizontal.file import DataSection, HorizontalJobFile
from evenhand.jobs.horizontal.rows import client_pictures, open_frame
from evenhand.jobs.horizontal.rows import table_source as table_source_of_client
from evenhand.jobs.horizontal.runs import HorizontalTables, check_epsilon, open_horizontal_tables
from evenhand.jobs.parsing import problems_of
from evenhand.jobs.proposals import proposals
from evenhand.jobs.quality import QualityRows, check_measurable
from evenhand.jobs.schema import to_constraint
from evenhand.jobs.tables import Classes, Labels, NumericTargets, common_labels, hold_out, label_column, naming, tell
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, table_source
from evenhand.jobs.vertical.learners import check_learner
from evenhand.jobs.vertical.rows import encoded_rows, held_labels, open_party, party_learner
from evenhand.jobs.vertical.runs import VerticalTables, align_parties, load_vertical_tables
from evenhand.printing import printable
from evenhand.protocol.solver import Split
from evenhand.report.checkup import Checkup, ColumnFound, GroupFound, TableFound
from evenhand.solvers.registry import find, solver_name

T = TypeVar("T")


def check_job_file(job: JobFile, base: Path) -> Checkup:
    """Read everything that training would read; if that fails, check each part on its own. Propose missing keys."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ColumnWarning)
        found = _checked(job, base)
    # Parts are read again on their own if the whole cannot be: say everything once.
    for one in dict.fromkeys((str(warning.message), warning.category) for warning in caught):
        warnings.warn(*one, stacklevel=2)
    found = replace(found, proposed=_proposed(job, base))
    split: Split = "horizontal" if isinstance(job, HorizontalJobFile) else "vertical"
    trained = job.to_job()
    if not find(split, solver_name(trained)).takes_confidence:
        return found
    return replace(found, constraints=as_list(trained.constraints))


def _checked(job: JobFile, base: Path) -> Checkup:
    problems = Problems()
    with problems.noted():
        _require_extras(job)
    if isinstance(job, HorizontalJobFile):
        rows = problems.of(lambda: open_horizontal_tables(job, base))
        if rows is not None:
            with problems.noted():
                rows.together.to_training()
        if rows is None or not rows.encoded:
            return _parts_of_clients(job, base, problems)
        with problems.noted():
            check_measurable(rows.labelled())
        with problems.noted():
            check_epsilon(job, rows.learned)
        return _clients(rows, problems)
    tables = problems.of(lambda: load_vertical_tables(job, base))
    if tables is None:
        return _parts_of_parties(job, base, problems)
    with problems.noted():
        check_measurable(tables.labelled())
    return _parties(tables, problems)


def _proposed(job: JobFile, base: Path) -> dict[str, list[str]]:
    """Return the lines that each section of the job file lacks, by the section's heading."""
    if isinstance(job, HorizontalJobFile):
        data = job.data
        frames = [_raw(table_source_of_client(client, data, base)) for client in job.client]
        if job.has_images or any(one is None for one in frames):
            return {}
        whole = pd.concat([one for one in frames if one is not None], ignore_index=True)
        lines = _lines(whole, data, data.id, data.label.column, data.sensitive, job.client[0].decimal, by_name=True)
        return {"[data]": lines} if lines else {}
    found = {}
    for party in job.party:
        frame = _raw(table_source(party, base))
        if frame is not None:
            label = None if party.label is None else party.label.column
            lines = _lines(frame, party, party.id, label, party.sensitive, party.decimal)
            if lines:
                found[f"[[party]] {party.name}"] = lines
    return found


def _raw(source: TableSource) -> pd.DataFrame | None:
    """Return a table as it is, with the id as a column; None if it cannot be read."""
    if source.table is not None and is_libsvm(source.table):
        return None
    try:
        return read_table(replace(source, id=None, types={}))
    except EvenhandError:
        return None


def _lines(
    frame: pd.DataFrame,
    section: PartySection | DataSection,
    id: str | None,
    label: str | None,
    sensitive: Sequence[str],
    decimal: Decimal,
    *,
    by_name: bool = False,
) -> list[str]:
    beside = {id, label, *sensitive, getattr(section, "weight", None)}
    features = section.columns or [str(name) for name in frame.columns if name not in beside]
    found = proposals(
        frame,
        id=id,
        features=features,
        label=label,
        sensitive=sensitive,
        decimal=decimal,
        said=section.model_fields_set,
        types=section.types,
        grouping=section.grouping,
        by_name=by_name,
    )
    return [f"{one.line()}   # {printable(one.why)}".replace("\n", " ") for one in found]


class Problems(list[str]):
    """Return all problems, each once."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except EvenhandError as error:
            self.extend(one for one in problems_of(error) if one not in self)

    def of(self, what: Callable[[], T]) -> T | None:
        """Return the result of a call; on an error, record the problem and return None."""
        found: list[T] = []
        with self.noted():
            found.append(what())
        return next(iter(found), None)


def _require_extras(job: JobFile) -> None:
    """Refuse a job if its solver needs an extra that is not installed."""
    trained = job.to_job()
    needs = {"lightgbm": "trees"} if trained.model == "trees" else {}
    if isinstance(job, VerticalJobFile):
        named = [check_learner(one.model, "model")[0] for one in job.party if one.model is not None]
        needs |= {"torch": "torch"} if "mlp" in named else {}
        needs |= {"lightgbm": "trees"} if "trees" in named else {}
    averaging = isinstance(job, HorizontalJobFile) and trained.solver not in ("sqp", "prox-al")
    if trained.model in ("mlp", "resnet18") or averaging:
        needs["torch"] = "torch"
    for module, extra in needs.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingExtraError(f"solver {trained.solver!r} with model {trained.model!r}", extra) from error


# -- the tables as training would use them


def _parties(tables: VerticalTables, problems: Problems) -> Checkup:
    test = int(tables.test.sum())
    found = [TableFound(name, rows, tables.there[name], test) for name, rows in tables.sizes.items()]
    columns = [
        column for name, encoder in tables.encoders.items() for column in _columns(name, encoder, tables.matrices[name])
    ]
    held = tables.held
    if isinstance(held.names, NumericTargets):
        return Checkup(problems, found, columns)
    return Checkup(problems, found, columns, _groups(held, ~tables.test), _names(held.names))


def _clients(rows: HorizontalTables, problems: Problems) -> Checkup:
    found = [TableFound(name, one.n_rows, one.n_rows, int(one.test.sum())) for name, one in rows.clients.items()]
    train = rows.parts()["train"]
    columns = []
    if rows.encoder is not None:
        features = rows.pooled({name: one.features for name, one in rows.clients.items()})
        columns = _columns("all clients", rows.encoder, features[train])
    if isinstance(rows.labels, NumericTargets):
        return Checkup(problems, found, columns)
    labelled = rows.labelled()["train"]
    groups = _groups(labelled, np.ones(labelled.n_rows, dtype=bool))
    return Checkup(problems, found, columns, groups, _names(rows.labels))


def _columns(owner: str, encoder: PartyEncoder, matrix: Any) -> list[ColumnFound]:
    """Return how each raw column is encoded; missing values are counted if they become features."""
    if encoder.sparse_columns is not None:
        return [ColumnFound(owner, "(numbered)", "number", encoder.sparse_columns, 0)]
    missing, widths = encoder.missing_features, encoder.widths
    kinds = encoder.kinds
    return [ColumnFound(owner, name, kinds[name], widths[name], _sum(matrix, missing.get(name))) for name in widths]


def _sum(matrix: Any, place: int | None) -> int:
    return 0 if place is None else int(matrix[:, [place]].sum())


def _names(labels: Labels | Classes) -> tuple[str, ...]:
    if isinstance(labels, Classes):
        return tuple(map(str, labels.classes))
    return str(labels.positive), str(labels.negative)


def _groups(rows: QualityRows, train: Any) -> list[GroupFound]:
    if rows.groups is None:
        return []
    frame, labels = groups_frame(rows.groups, rows.n_rows)[train], rows.labels[train]
    wanted = range(len(rows.names.classes)) if isinstance(rows.names, Classes) else (1, -1)
    found = []
    for attribute in frame.columns:
        for group in sorted(frame[attribute].unique(), key=str):
            inside = (frame[attribute] == group).to_numpy()
            counts = tuple(int((labels[inside] == one).sum()) for one in wanted)
            found.append(GroupFound(str(attribute), str(group), counts))
    return found


# -- each part on its own


def _parts_of_parties(job: VerticalJobFile, base: Path, problems: Problems) -> Checkup:
    opened: dict[str, PartyTable] = {}
    for party in job.party:
        with problems.noted():
            opened[party.name] = open_party(party, base)
    sizes = {name: len(table.known) for name, table in opened.items()}
    aligned: Mapping[str, PartyTable] | None = None
    if len(opened) == len(job.party):
        aligned = problems.of(lambda: align_parties(opened, job.job.ids, job.label_party.name))
        if aligned is None and job.job.ids == "equal":
            # The number of common rows tells how many ids = "inner" would keep.
            aligned = Problems().of(lambda: align_parties(opened, "inner"))
    used = None if aligned is None else len(aligned[job.label_party.name].known)
    for party in job.party:
        if party.name not in opened:
            continue
        table = (opened if aligned is None else aligned)[party.name]
        test = problems.of(lambda table=table: hold_out(table.known.index, job.job))  # type: ignore[misc]
        if test is None:
            continue
        with problems.noted(), naming(f"party {party.name!r}"):
            trained = job.to_job()
            encoder, _ = encoded_rows(table, ~test, job.job, party, trained, party_learner(party, trained))
            tell(f"party {party.name!r}", encoder.remarks)
        if party.label is not None:
            with problems.noted(), naming(f"party {party.name!r}"):
                held_labels(table, party, test, job.to_job())
    return Checkup(problems, [TableFound(name, rows, used, None) for name, rows in sizes.items()])


def _parts_of_clients(job: HorizontalJobFile, base: Path, problems: Problems) -> Checkup:
    sizes, labels = {}, dict[str, pd.Series]()
    for client in job.client:
        owner = f"client {client.name!r}"
        frame = problems.of(lambda client=client, owner=owner: open_frame(client, job.data, base, owner))  # type: ignore[misc]
        if frame is None:
            continue
        sizes[client.name] = len(frame)
        with problems.noted(), naming(owner):
            labels[owner] = label_column(frame, job.data.label, list(map(str, frame.columns)))
        with problems.noted(), naming(owner):
            if job.has_images:
                client_pictures(client, frame, job, base)
            else:
                _encode_alone(job, frame)
    if labels:
        with problems.noted():
            common_labels(labels, job.data.label, job.to_job(), over=" over all clients")
    return Checkup(problems, [TableFound(name, rows, rows, None) for name, rows in sizes.items()])


def _encode_alone(job: HorizontalJobFile, frame: pd.DataFrame) -> None:
    """Check that a client's columns exist and can be features."""
    data = job.data
    beside = data.beside
    for name in [*(data.columns or []), *data.sensitive]:
        if name not in frame.columns:
            raise InputError(f"there is no column {name!r}")
    left = [str(name) for name in frame.columns if name not in (*beside, *data.types)]
    features = data.columns or left
    PartyEncoder(scale=data.scale, **vars(data.to_rules())).partial_fit(frame[features])


def default_bounds(job: JobFile) -> list[str]:
    """Return a remark for each bound that the job file leaves at its default."""
    said = []
    for given, constraint in [(one, to_constraint(one)) for one in job.job.constraint]:
        for name in ("epsilon", "limit"):
            if name not in given and (value := getattr(constraint, name, None)) is not None:
                said.append(f"constraint {constraint.kind}: {name} is {value:g}, its default")
    return said
