"""Score new rows with the finished run of a job, and measure the scores if the rows have labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.constraints.thresholds import WITHOUT_RULE, Cut
from evenhand.data.tables.absence import without_rows
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import FrameTable, PartyTable, open_table, with_one_kind_of_ids
from evenhand.data.tables.raw import numbers_as_fitted
from evenhand.data.tables.readers import TableSource, is_libsvm, read_table
from evenhand.data.tables.reference import Reference
from evenhand.errors import DataError, InputError, RunError
from evenhand.jobs.cuts import told_cut
from evenhand.jobs.folder import own_job, require_password
from evenhand.jobs.horizontal.file import ClientSection, HorizontalJobFile, parse_horizontal
from evenhand.jobs.horizontal.rows import client_pictures, client_test_rows, encoded, open_frame, with_lacking
from evenhand.jobs.horizontal.rows import table_source as client_source
from evenhand.jobs.party_parts import party_encoder, party_model
from evenhand.jobs.quality import QualityRows, quality
from evenhand.jobs.results import scored
from evenhand.jobs.schema import GroupedSection
from evenhand.jobs.tables import (
    Classes,
    Labels,
    NumericTargets,
    absent_rows,
    hold_out,
    labels_of,
    naming,
    not_used,
)
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, parse_vertical, table_source
from evenhand.jobs.vertical.runs import align_parties
from evenhand.models.saved import joint_scores
from evenhand.protocol.align import held_places
from evenhand.protocol.job import MissingParty
from evenhand.protocol.state import State
from evenhand.runtime.folder import RunFolder
from evenhand.training.shared_model import scorer
from evenhand.training.vertical_sources import common_rows

SCORED = "scored"


class NewRows(NamedTuple):
    """Scores of new rows, remarks about the rows, and the quality of the scores if there are labels.

    `measured` has the form of a run's result, with the part ``"scored"``.
    """

    scores: pd.DataFrame
    remarks: list[str]
    measured: dict[str, Any] | None


def read_beside(source: TableSource, label: str, sensitive: list[str]) -> pd.DataFrame | None:
    """Return labels and groups of a table by id, if it has labels; groups only if all sensitive columns exist."""
    frame = read_table(replace(source, types={}))
    if label not in frame.columns:
        return None
    groups = sensitive if all(name in frame.columns for name in sensitive) else []
    return frame[[label, *groups]]


def measured(
    scored: pd.DataFrame, beside: pd.DataFrame | None, label: str, labels: Mapping[str, Any], cut: Cut = WITHOUT_RULE
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the quality of scores on the rows with a label, and remarks about it.

    Of a run's own rows only those count that were held out: on training rows a model looks better than it is.
    """
    if beside is None:
        return None, []
    remarks = []
    if "held_out" in scored:
        apart = scored["held_out"].to_numpy(dtype=bool)
        told = f"measured on the {int(apart.sum()):,} held-out rows only: training rows look better than new ones"
        scored, remarks = scored[apart], [told]
    known = beside[beside.notna().all(axis=1)]
    names = labels_of(labels)
    said = names.classes if isinstance(names, Classes) else names
    if isinstance(names, NumericTargets):
        try:
            names.signs(known[label])
        except DataError as error:
            return None, [f"the tables have targets, but nothing is measured: {error}"]
    elif strange := known[label][~known[label].isin(list(said))].unique().tolist():
        return None, [f"{label!r} has values that the model does not know, such as {strange[0]!r}: nothing is measured"]
    known = known.set_axis(known.index.map(str))
    scores = _scores_of(scored, names)
    there = scores.set_axis(scores.index.map(str))
    there = there[there.index.isin(known.index)]
    known = known.loc[there.index]
    groups = known.drop(columns=label)
    rows = QualityRows(names.signs(known[label]), groups if groups.shape[1] else None, names=names)
    try:
        found = quality({SCORED: rows}, {SCORED: there.to_numpy()}, cut=cut)
    except DataError as error:
        return None, [f"the tables have labels, but nothing is measured: {error}"]
    what = "a label" if groups.shape[1] == 0 else "a label and all groups"
    if len(there) < len(scores):
        of = "held-out rows" if remarks else "rows scored"
        remarks.append(f"{len(there):,} of {len(scores):,} {of} have {what}")
    return found, remarks


def _scores_of(scored: pd.DataFrame, names: Labels | Classes | NumericTargets) -> pd.Series | pd.DataFrame:
    """Return the score of each row, or of three classes and more the logarithm of each probability."""
    if not isinstance(names, Classes):
        return scored["score"]
    chances = scored[[f"probability {name}" for name in names.classes]]
    return chances.clip(lower=np.finfo(float).tiny).apply(np.log)


def file_in_place(source: TableSource, table: Path | None) -> TableSource:
    """Return a table's source, or the given file in its place."""
    return source if table is None else replace(source, table=table.absolute(), database=None, sql=None)


# -- parties, which hold parts of the model


def score_new_parties(
    folder: RunFolder,
    job: VerticalJobFile | None = None,
    tables: Mapping[str, Path] | None = None,
    *,
    base: Path | None = None,
    absent: Collection[str] = (),
) -> NewRows:
    """Score rows with a finished run, and measure the scores if the tables have labels.

    Parameters
    ----------
    absent
        Parties that are away; the run's own job must say ``missing_party = "absent"``.
    job
        A job file that names the parties' tables; None takes the run's own.
    tables
        Files to read instead of a party's table, by party name.
    base
        Folder that relative paths in `job` start from; None takes that of the run's own job.
    """
    labels = folder.labels
    own = own_job(folder, VerticalJobFile, parse_vertical)
    job = own if job is None else job
    names, trained = ([party.name for party in one.party] for one in (job, own))
    if sorted(names) != sorted(trained):
        raise DataError(f"the job's parties are {', '.join(names)}; the run's are {', '.join(trained)}")
    if unknown := sorted((tables or {}).keys() - set(names)):
        raise DataError(f"no party is called {unknown[0]!r}; the run's parties are {', '.join(names)}")
    encoders = {name: party_encoder(folder, name) for name in names}
    base = folder.base if base is None else base
    missing, holder = own.job.missing_party, job.label_party
    check_away(absent, trained, holder.name, missing)
    found = {
        party.name: _new_rows(party, base, encoders[party.name], (tables or {}).get(party.name))
        for party in job.party
        if party.name not in absent
    }
    sizes = {name: len(table.known) for name, table in found.items()}
    found, there = _aligned(found, job, missing)
    ids = found[holder.name].known.index
    models, matrices = {}, {}
    for name in trained:
        here = there.get(name, np.zeros(len(ids), dtype=bool))
        with naming(f"party {name!r}"):
            encoders[name].require_learned(name, here)
            table = found[name].transform(encoders[name]) if here.any() else without_rows(encoders[name].width_out)
            matrices[name] = encoders[name].spread(table, here)
            models[name] = party_model(folder, name, encoders[name])
    try:
        scores = joint_scores(models, matrices).T
    except RunError as error:
        raise RunError(f"{folder.path}: {error}") from error
    assert holder.label is not None
    source = file_in_place(table_source(holder, base), (tables or {}).get(holder.name))
    known_groups, cut = _training_groups(folder.result), told_cut(folder.result)
    groups, ungrouped = _groups_of(source, holder, cut, ids, known_groups)
    table = scored(scores, folder.result, ids, groups)
    if missing == "absent":
        table["parties"] = resting_on({name: there.get(name, np.zeros(len(ids), dtype=bool)) for name in trained})
    if own is job and not tables and _measured_apart(folder.result):
        # The run's own rows: say which of them the model has not seen.
        table["held_out"] = hold_out(ids, job.job)
    counts = {name: int(one.sum()) for name, one in there.items()}
    remarks = absent_rows(counts, len(ids), "scored") if missing == "absent" else not_used(sizes, len(ids), "scored")
    remarks += ungrouped
    for name in found:
        one = found[name]
        said = encoders[name].remarks_on(one.known) if isinstance(one, FrameTable) else []
        said += _reference(folder, folder.read_party(name, "reference"), f"party {name!r}").remarks_on(
            one.feature_columns()
        )
        remarks += [f"party {name!r}: {line}" for line in said]
    beside = None if _is_sparse(source) else read_beside(source, holder.label.column, holder.sensitive)
    if beside is not None and set(holder.sensitive) <= set(beside.columns):
        of_rows = holder.grouping.groups(beside[list(holder.sensitive)], known_groups)
        beside = beside[[holder.label.column]].join(of_rows)
    quality, more = measured(table, beside, holder.label.column, labels, cut)
    return NewRows(table, [*remarks, *more], quality)


def _aligned(
    found: dict[str, PartyTable], job: VerticalJobFile, missing: MissingParty
) -> tuple[dict[str, PartyTable], dict[str, Booleans]]:
    """Return the tables with the rows to score, and which of these rows each party has.

    These are the rows that all parties have, or with ``missing_party = "absent"`` all rows of the label holder.
    """
    if missing == "refuse":
        found = align_parties(found, "inner" if job.job.keeps_all else job.job.ids)
        return found, {name: np.ones(len(one.known), dtype=bool) for name, one in found.items()}
    found = with_one_kind_of_ids(found)
    ids = {name: one.known.index for name, one in found.items()}
    places = common_rows(ids, "left", job.label_party.name, least=0)
    return (
        {name: one.taken(held_places(places[name])) for name, one in found.items()},
        {name: one >= 0 for name, one in places.items()},
    )


def check_away(absent: Collection[str], parties: Sequence[str], holder: str, missing: MissingParty) -> None:
    """Refuse to score without parties, unless the run allows it; the label holder is always needed."""
    if unknown := sorted(set(absent) - set(parties)):
        raise InputError(f"no party is called {unknown[0]!r}; the run's parties are {', '.join(parties)}")
    if holder in absent:
        raise InputError(f"{holder} holds the labels, and the rows to score are its rows; it cannot be absent")
    if absent and missing != "absent":
        raise InputError(
            f"a score without {', '.join(absent)} belongs to another model, for which no constraint was checked; the "
            'job of this run does not allow it (missing_party = "absent" in [job])'
        )


def resting_on(there: Mapping[str, Booleans]) -> list[str]:
    """Name for each row the parties that it rests on."""
    names = np.array(list(there), dtype=object)
    known: dict[tuple[bool, ...], str] = {}
    found = []
    for row in zip(*there.values(), strict=True):
        if (key := tuple(map(bool, row))) not in known:
            known[key] = " + ".join(names[list(key)])
        found.append(known[key])
    return found


def _groups_of(
    source: TableSource, section: GroupedSection, cut: Cut, ids: pd.Index, trained: Mapping[str, set[str]]
) -> tuple[pd.DataFrame | None, list[str]]:
    """Return the group of each row if decisions depend on it, and a remark about rows of no known group."""
    if cut.by is None:
        return None, []
    frame = read_table(replace(source, types={}))
    if cut.by not in frame.columns:
        raise DataError(
            f"the run has a cut for each group of {cut.by!r}, but the table has no such column; add it, for every row"
        )
    found = section.grouping.groups(frame[[cut.by]].dropna(), trained)
    found = found.set_axis(found.index.map(str)).reindex(ids.map(str)).set_axis(ids)
    if unknown := cut.unknown(found):
        return found, [
            f"{unknown:,} of {len(ids):,} rows have no group of {cut.by!r} that the model knows; they get the general "
            f"cut, {cut.score:.3f}"
        ]
    return found, []


def _training_groups(result: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the groups of the training rows by attribute."""
    found: dict[str, set[str]] = {}
    for one in result["groups"]["train"]:
        found.setdefault(one["attribute"], set()).add(one["group"])
    return found


def _is_sparse(source: TableSource) -> bool:
    return source.table is not None and is_libsvm(source.table)


def _reference(folder: RunFolder, state: Mapping[str, Any], owner: str) -> Reference:
    """Read what an owner keeps of its training columns."""
    try:
        return Reference.from_state(state)
    except DataError as error:
        raise RunError(f"{folder.path}: the reference of {owner} cannot be used: {error}") from error


def _new_rows(party: PartySection, base: Path, encoder: PartyEncoder, table: Path | None) -> PartyTable:
    if table is not None:
        party = party.model_copy(update={"table": str(table.absolute()), "database": None, "sql": None})
    with naming(f"party {party.name!r}"):
        require_password(party.database)
        return open_table(table_source(party, base), party.columns, party.sensitive, encoder)


# -- clients, which share the model


def read_model(folder: RunFolder) -> tuple[PartyEncoder | None, Callable[[Any], Array]]:
    """Return the shared encoder (None for pictures), and the function that scores encoded rows."""
    place = folder.path / "model"
    encoder = None
    if (place / "encoder.json").exists():
        try:
            encoder = PartyEncoder.from_state(folder.read_model("encoder"))
        except DataError as error:
            raise RunError(f"{place / 'encoder.json'} cannot be used: {error}") from error
    state = folder.read_model("weights")
    try:
        if encoder is None and "shape" in state:
            return None, scorer(state)
        if encoder is None:
            raise RunError(f"{place / 'encoder.json'} is missing; restore it")
        if state["columns"] != encoder.width_out:
            raise RunError(
                f"{place}: the weights are for {state['columns']} encoded columns, the encoder makes "
                f"{encoder.width_out}; the folder was changed"
            )
        _check_widths(state, encoder.width_out)
        return encoder, scorer(state)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise RunError(f"{place / 'weights.safetensors'} does not hold a model: {error!r}") from error


def _check_widths(state: State, columns: int) -> None:
    """Refuse weights that do not fit the model's size, and invalid layer widths."""
    if state["model"] == "trees":
        return
    size = state["weights"].size
    whole = (columns + 1) * int(state.get("classes", 1))
    fit = size == whole if state["model"] == "linear" else all(0 < width <= size for width in state["hidden"])
    if state["weights"].ndim != 1 or not fit:
        raise ValueError(f"{size} weights for {columns} columns and hidden layers of {state['hidden']}")


def _kept_job(folder: RunFolder) -> HorizontalJobFile:
    """Return the job of a run; for a client's side between organisations, with that client's table only."""
    own = folder.description.get("own")
    if own is None:
        return own_job(folder, HorizontalJobFile, parse_horizontal)
    section = {key: value for key, value in own["party"].items() if key in ClientSection.model_fields}
    return own_job(folder, HorizontalJobFile, parse_horizontal, client=[section])


def _measured_apart(result: Mapping[str, Any]) -> bool:
    """Whether a run has held rows out. A client's own folder does not say, and then the job does."""
    return "test" in result.get("quality", {"test": {}})


def score_new_clients(
    folder: RunFolder,
    job: HorizontalJobFile | None = None,
    tables: Mapping[str, Path] | None = None,
    *,
    base: Path | None = None,
) -> NewRows:
    """Score rows with a finished run, and measure the scores if the tables have labels.

    The index of the scores has the client's name and the row's id, or its number. The parameters are those of
    `score_new_parties`, except that `tables` may name any client, known to the run or not.
    """
    labels, result = folder.labels, folder.result
    cut = told_cut(result)
    encoder, score = read_model(folder)
    of_run = job is None and not tables
    job = _kept_job(folder) if job is None else job
    of_run = of_run and job.job.test_fraction > 0 and _measured_apart(result)
    base = folder.base if base is None else base
    sections = job.client
    if tables and encoder is None:
        raise DataError("this model scores pictures; name the tables and images of new rows in a job file (--job)")
    if tables:
        sections = [ClientSection(name=name, table=str(path.absolute())) for name, path in tables.items()]
    parts: dict[str, pd.DataFrame] = {}
    remarks: list[str] = []
    beside: dict[str, pd.DataFrame] = {}
    for section in sections:
        owner = f"client {section.name!r}"
        with naming(owner):
            require_password(section.database)
        if encoder is None:
            frame = open_frame(section, job.data, base, owner)
            with naming(owner):
                scores = score(client_pictures(section, frame, job, base))
        else:
            lacking = job.data.lacking_columns == "missing"
            frame = open_frame(section, job.data, base, owner, None if lacking else encoder.columns_in)
            if lacking:
                with naming(owner):
                    frame = with_lacking(frame, encoder.columns_in, job.data, owner)[encoder.columns_in]
            frame = numbers_as_fitted(frame, encoder.kinds, section.decimal)
            with naming(owner):
                scores = score(encoded(encoder, frame))
            said = encoder.remarks_on(frame)
            if (kept := folder.read_client(section.name, "reference")) is not None:
                said += _reference(folder, kept, owner).remarks_on((name, frame[name]) for name in encoder.columns_in)
            remarks += [f"{owner}: {line}" for line in said]
        source = client_source(section, job.data, base)
        groups, missing = _groups_of(source, job.data, cut, frame.index, {})
        remarks += [f"{owner}: {line}" for line in missing]
        parts[section.name] = scored(scores, result, frame.index, groups)
        if of_run:
            parts[section.name]["held_out"] = client_test_rows(frame.index, section.name, job)
        found = read_beside(source, job.data.label.column, job.data.sensitive)
        if found is not None:
            if job.data.sensitive and set(job.data.sensitive) <= set(found.columns):
                groups = job.data.grouping.groups(found[job.data.sensitive], trained={})
                found = found[[job.data.label.column]].join(groups)
            beside[section.name] = found
    table = pd.concat(parts, names=["client", job.data.id or "row"])
    known = pd.concat(beside) if beside else None
    quality, more = measured(table, known, job.data.label.column, labels, cut)
    return NewRows(table, [*remarks, *more], quality)
