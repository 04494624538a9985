"""Vertical jobs over tables, from start to run folder, and from run folder to scores of new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from evenhand.arrays import Array
from evenhand.constraints.proving import Proof
from evenhand.data.compressed import is_libsvm
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import FrameTable, PartyTable, open_table, require_unchanged
from evenhand.data.tables.readers import TableSource
from evenhand.errors import DataError, RunError
from evenhand.jobs.folder import FinishedRun, own_job, require_password, run_folder
from evenhand.jobs.new_rows import NewRows, file_in_place, measured, read_beside
from evenhand.jobs.quality import QualityRows, check_measurable, quality, scored
from evenhand.jobs.tables import naming, not_used
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, parse_vertical, table_source
from evenhand.jobs.vertical.tables import VerticalTables, align_parties, load_vertical_tables
from evenhand.models.base import Scorer
from evenhand.models.saved import from_state, joint_scores, state_is_of_trees, to_state
from evenhand.models.trees import TreesModel
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report
from evenhand.protocol.solver import Certificate
from evenhand.protocol.state import State
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.run_location import check_place
from evenhand.training.run import shortfalls
from evenhand.training.vertical import VerticalRun, train_together

FinishedVerticalRun: TypeAlias = FinishedRun[VerticalRun]


def run_vertical_job(
    job: VerticalJobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    on_round: Callable[[Report], None] | None = None,
    checkpoint_seconds: float = 10.0,
    tables: VerticalTables | None = None,
) -> FinishedVerticalRun:
    """Train a job and write a run folder.

    Parameters
    ----------
    base
        Folder that relative paths in the job start from.
    resume
        Resume the run in `out` if there is one; otherwise an existing folder is an error.
    tables
        The job's tables, if they have been loaded already.
    """
    check_place(out, resume)
    tables = load_vertical_tables(job, base) if tables is None else tables
    check_measurable(tables.labelled())
    with run_folder(job, base, out, resume) as folder:
        run = train_together(
            tables.together,
            runtime=job.job.runtime,
            clock=job.to_clock(),
            folder=folder,
            checkpoint_seconds=checkpoint_seconds,
            on_round=on_round,
        )
        require_unchanged(tables.seen)
        for name, model in run.models.items():
            write_party(folder, name, tables.encoders[name], model)
        result = _result(run, tables)
        if run.label_privacy is not None:
            result["privacy"] = {tables.holder: run.label_privacy.as_dict()}
        folder.finish(result)
    return FinishedVerticalRun(run, folder, result)


def write_party(folder: RunFolder, name: str, encoder: PartyEncoder, model: Scorer) -> None:
    """Write a party's part of the model to the party's own folder."""
    folder.write_party(name, "encoder", encoder.to_state())
    folder.write_party(name, "weights", to_state(model))
    if isinstance(model, TreesModel):
        folder.write_trees(name, "trees", model.text)
        if model.splits:
            folder.write_trees(name, "splits", model.splits_text)


def _result(run: VerticalRun, tables: VerticalTables) -> dict[str, Any]:
    scores = joint_scores(run.models, tables.matrices)
    of_parts = {name: scores[rows] for name, rows in tables.parts().items()}
    told = ServersWord(run.certificate, run.proofs, run.statistics)
    return vertical_result(tables.terms.job, told, of_parts, tables.labelled(), run.transcript)


class ServersWord(NamedTuple):
    """Results that the server reports at the end of a run."""

    certificate: Certificate
    proofs: Sequence[Proof]
    statistics: Mapping[str, Any]


def vertical_result(
    job: Job,
    told: ServersWord,
    scores: Mapping[str, Array],
    rows: Mapping[str, QualityRows],
    transcript: Transcript,
) -> dict[str, Any]:
    """Return the content of `result.json` for a vertical run; scores and rows are by part of the data."""
    labels = rows["train"].names
    return {
        "certificate": told.certificate.as_dict(),
        "proofs": [{**asdict(proof), "holds": proof.holds} for proof in told.proofs],
        "shortfalls": shortfalls(told.certificate, job.tol, job.max_rounds, labels.named(scores["train"])),
        **quality(rows, scores, constraints=job.constraints),
        "bytes": transcript.total_bytes,
        "messages": transcript.total_messages,
        "statistics": dict(told.statistics),
        "labels": labels._asdict(),
    }


def score_new_parties(
    folder: RunFolder,
    job: VerticalJobFile | None = None,
    tables: Mapping[str, Path] | None = None,
    *,
    base: Path | None = None,
) -> NewRows:
    """Score rows with a finished run, and measure the scores if the tables have labels.

    Parameters
    ----------
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
    found = {
        party.name: _new_rows(party, base, encoders[party.name], (tables or {}).get(party.name)) for party in job.party
    }
    sizes = {name: len(table.known) for name, table in found.items()}
    found = align_parties(found, job.job.ids)
    ids = found[names[0]].known.index
    models, matrices = {}, {}
    for name in trained:
        with naming(f"party {name!r}"):
            matrices[name] = found[name].transform(encoders[name])
            models[name] = party_model(folder, name, encoders[name])
    try:
        scores = joint_scores(models, matrices)
    except RunError as error:
        raise RunError(f"{folder.path}: {error}") from error
    table = scored(scores, labels, ids)
    remarks = not_used(sizes, len(ids), "scored")
    for name in trained:
        if isinstance(one := found[name], FrameTable):
            remarks += [f"party {name!r}: {said}" for said in encoders[name].remarks_on(one.known)]
    holder = job.label_party
    assert holder.label is not None
    source = file_in_place(table_source(holder, base), (tables or {}).get(holder.name))
    beside = None if _is_sparse(source) else read_beside(source, holder.label.column, holder.sensitive)
    quality, more = measured(table, beside, holder.label.column, labels)
    return NewRows(table, [*remarks, *more], quality)


def _is_sparse(source: TableSource) -> bool:
    return source.table is not None and is_libsvm(source.table)


def party_encoder(folder: RunFolder, name: str) -> PartyEncoder:
    """Return a party's encoder from a finished run."""
    state = folder.read_party(name, "encoder")
    try:
        return PartyEncoder.from_state(state)
    except DataError as error:
        raise RunError(f"{folder.path}: the encoder of party {name!r} cannot be used: {error}") from error


def party_model(folder: RunFolder, name: str, encoder: PartyEncoder) -> Scorer:
    """Return a party's model from a finished run; refuse a model that does not fit the party's encoder."""
    state = folder.read_party(name, "weights")
    try:
        model = from_state(state, *(_texts(folder, name, state) if state_is_of_trees(state) else ()))
    except RunError as error:
        raise RunError(f"{folder.path}: party {name!r}: {error}") from error
    if state["columns"] != encoder.width_out:
        raise RunError(
            f"{folder.path}: party {name!r} has weights for {state['columns']} encoded columns, its encoder makes "
            f"{encoder.width_out}; the folder was changed"
        )
    return model


def _texts(folder: RunFolder, name: str, state: State) -> tuple[str, str]:
    """Return the texts of a party's trees, and of its splits in trees across parties if it has any."""
    return folder.read_trees(name, "trees"), folder.read_trees(name, "splits") if state.get("splits") else ""


def _new_rows(party: PartySection, base: Path, encoder: PartyEncoder, table: Path | None) -> PartyTable:
    if table is not None:
        party = party.model_copy(update={"table": str(table.absolute()), "database": None, "sql": None})
    with naming(f"party {party.name!r}"):
        require_password(party.database)
        return open_table(table_source(party, base), party.columns, party.sensitive, encoder)
