"""Jobs over tables, from start to run folder, and from run folder to scores of new rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit

from evenhand.arrays import Array, Booleans
from evenhand.data.tables.addresses import redact
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import PartyTable, open_table
from evenhand.errors import DataError, EvenhandError, RunError
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, parse_job, table_source
from evenhand.jobs.vertical.tables import VerticalTables, align_parties, load_tables, naming
from evenhand.metrics import intervals, summary
from evenhand.models.saved import from_state, to_state
from evenhand.protocol.roles import Report
from evenhand.runtime.folder import RunFolder, check_free
from evenhand.training.vertical import VerticalRun, train_vertical

# An address whose password is named, not written: it may be kept, and serves to score rows later.
_PASSWORD_NAMED: Final = re.compile(r"[^:]*://[^:/?#@]*:\$\{\w+\}@[^@]*")


@dataclass(frozen=True, eq=False)
class FinishedVerticalRun:
    """A run and its folder; `result` is what `result.json` holds."""

    run: VerticalRun
    folder: RunFolder
    result: dict[str, Any]


def run_job(
    job: VerticalJobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    on_round: Callable[[Report], None] | None = None,
    checkpoint_seconds: float = 10.0,
    tables: VerticalTables | None = None,
) -> FinishedVerticalRun:
    """Train as a job file says and leave a run folder.

    Parameters
    ----------
    base
        Folder that relative paths in the job start from.
    resume
        Go on with the run in `out` if it holds one; otherwise an existing folder is an error.
    federation
        The job's tables, if they have been loaded already.
    """
    check_folder(out, resume)
    tables = load_tables(job, base) if tables is None else tables
    _check_measurable(tables)
    fresh = not (out / "run.toml").exists()
    folder = _folder(job, base, out, resume)
    train = ~tables.test
    try:
        run = train_vertical(
            job.to_job(),
            tables.training_columns(),
            tables.signs[train],
            None if tables.sensitive is None else tables.sensitive[train],
            runtime=job.job.runtime,
            clock=job.to_clock(),
            folder=folder,
            checkpoint_seconds=checkpoint_seconds,
            on_round=on_round,
        )
    except EvenhandError:
        # A run that was refused before it recorded anything leaves nothing behind.
        if fresh and not folder.read_lines("metrics.jsonl"):
            folder.remove()
        raise
    for name, model in run.models.items():
        folder.write_party(name, "encoder", tables.encoders[name].to_state())
        folder.write_party(name, "weights", to_state(model))
    result = _result(run, tables)
    folder.finish(result)
    return FinishedVerticalRun(run, folder, result)


def check_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that a run cannot be recorded in; worth asking before tables are read."""
    if not (resume and (out / "run.toml").is_file()):
        check_free(out, "resume it, or choose another folder")
        return
    folder = RunFolder.open(out)
    if folder.finished:
        raise RunError(f"the run in {out} has finished; there is nothing to resume")
    begun, present = folder.description.get("evenhand"), version("evenhand")
    if begun != present:
        # A resumed run ends where an uninterrupted one would have, to the last bit; no two versions promise that.
        raise RunError(
            f"the run in {out} was begun by evenhand {begun} and cannot be resumed by {present}; start it anew in "
            "another folder"
        )


def _folder(job: VerticalJobFile, base: Path, out: Path, resume: bool) -> RunFolder:
    content = job.model_dump(exclude_unset=True)
    for party in content["party"]:
        without_passwords(party)
    return begin_folder(content, base, out, resume)


def without_passwords(section: dict[str, Any]) -> None:
    """Take a password that is written out of a section's database address."""
    if "database" in section and not _PASSWORD_NAMED.fullmatch(section["database"]):
        section["database"] = redact(section["database"])


def begin_folder(content: dict[str, Any], base: Path, out: Path, resume: bool) -> RunFolder:
    """The folder of a new run, or of one that goes on; `content` is the job file's, without passwords."""
    description = {"evenhand": version("evenhand"), "base": str(base.resolve()), **content}
    if not (resume and (out / "run.toml").is_file()):
        return RunFolder.create(out, description)
    folder = RunFolder.open(out)
    if not folder.describes(content):
        raise RunError(f"the run in {out} was begun with another job file; start a new run in another folder")
    return folder


def _check_measurable(tables: VerticalTables) -> None:
    """Find out before training, not after it, that the quality on some rows would have no value."""
    for name, rows in _parts(tables).items():
        try:
            _quality(tables, np.zeros(len(rows)), rows)
        except DataError as error:
            raise DataError(f"{name} rows: {error}") from error


def _result(run: VerticalRun, tables: VerticalTables) -> dict[str, Any]:
    scores = np.sum([run.models[name].predict(matrix) for name, matrix in tables.matrices.items()], axis=0)
    quality = {name: _quality(tables, scores, rows) for name, rows in _parts(tables).items()}
    return {
        "certificate": run.certificate.as_dict(),
        "quality": quality,
        "intervals": {name: _intervals(tables, scores, rows) for name, rows in _parts(tables).items()},
        "bytes": run.transcript.total_bytes,
        "messages": run.transcript.total_messages,
        "statistics": dict(run.statistics),
        "labels": {"negative": tables.negative, "positive": tables.positive},
    }


def _parts(tables: VerticalTables) -> dict[str, Booleans]:
    parts = {"train": ~tables.test, "test": tables.test}
    return {name: rows for name, rows in parts.items() if rows.any()}


def _quality(tables: VerticalTables, scores: Array, rows: Booleans) -> dict[str, float]:
    """Accuracy and, where sensitive attributes are named, fairness metrics of some rows."""
    signs = tables.signs[rows]
    if tables.sensitive is None:
        return {"accuracy": float(np.mean((scores[rows] > 0) == (signs > 0)))}
    return summary(_named(tables, signs), scores[rows], **_groups(tables, rows))


def _intervals(tables: VerticalTables, scores: Array, rows: Booleans) -> dict[str, list[float]]:
    """95 % bootstrap intervals of the same metrics, low and high; none without sensitive attributes."""
    if tables.sensitive is None:
        return {}
    found = intervals(_named(tables, tables.signs[rows]), scores[rows], **_groups(tables, rows))
    return {str(name): [float(low), float(high)] for name, low, high in found[["low", "high"]].itertuples()}


def _named(tables: VerticalTables, signs: Array) -> list[Any]:
    """Labels by their own names, which error messages then use."""
    return [tables.positive if sign > 0 else tables.negative for sign in signs]


def _groups(tables: VerticalTables, rows: Booleans) -> dict[str, Any]:
    assert tables.sensitive is not None
    return {"sensitive_features": tables.sensitive[rows], "positive": tables.positive}


def score_rows(
    folder: RunFolder,
    job: VerticalJobFile | None = None,
    tables: Mapping[str, Path] | None = None,
    *,
    base: Path | None = None,
) -> pd.DataFrame:
    """Score rows with a finished run: each party's table through its own encoder and weights, summed by id.

    Parameters
    ----------
    job
        A job file whose parties say where their tables are; None takes the run's own.
    tables
        Files to read in place of a party's table, by the party's name.
    base
        Folder that relative paths in `job` start from; None is that of the run's own job.
    """
    labels = folder.result["labels"]
    job = _own_job(folder) if job is None else job
    names = [party.name for party in job.party]
    trained = [party["name"] for party in folder.description["party"]]
    if sorted(names) != sorted(trained):
        raise DataError(f"the job's parties are {', '.join(names)}; the run's are {', '.join(trained)}")
    if unknown := sorted((tables or {}).keys() - set(names)):
        raise DataError(f"no party is called {unknown[0]!r}; the run's parties are {', '.join(names)}")
    encoders = {name: _encoder(folder, name) for name in names}
    base = Path(folder.description["base"]) if base is None else base
    opened = [_new_rows(party, base, encoders[party.name], (tables or {}).get(party.name)) for party in job.party]
    opened = align_parties(opened, names, job.job.ids)
    ids = opened[0].known.index
    scores = np.zeros(len(ids))
    for name, table in zip(names, opened, strict=True):
        with naming(name):
            scores += _party_scores(folder, name, encoders[name], table)
    predicted = [labels["positive"] if score > 0 else labels["negative"] for score in scores]
    columns = {"score": scores, "probability": expit(scores), "prediction": predicted}
    return pd.DataFrame(columns, index=ids)


def _own_job(folder: RunFolder) -> VerticalJobFile:
    content = {key: value for key, value in folder.description.items() if key in VerticalJobFile.model_fields}
    return parse_job(content, str(folder.path / "run.toml"))


def _encoder(folder: RunFolder, name: str) -> PartyEncoder:
    state = folder.read_party(name, "encoder")
    try:
        return PartyEncoder.from_state(state)
    except DataError as error:
        raise RunError(f"{folder.path}: the encoder of party {name!r} cannot be used: {error}") from error


def _party_scores(folder: RunFolder, name: str, encoder: PartyEncoder, table: PartyTable) -> Array:
    matrix = table.transform(encoder)
    state = folder.read_party(name, "weights")
    try:
        model = from_state(state)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder.path}: the weights of party {name!r} are not a model's: {error!r}") from error
    if state["columns"] != matrix.shape[1]:
        raise RunError(
            f"{folder.path}: party {name!r} has weights for {state['columns']} encoded columns, its encoder makes "
            f"{matrix.shape[1]}; the folder was changed"
        )
    return model.predict(matrix)


def _new_rows(party: PartySection, base: Path, encoder: PartyEncoder, table: Path | None) -> PartyTable:
    if table is not None:
        party = party.model_copy(update={"table": str(table.absolute()), "database": None, "sql": None})
    with naming(party.name):
        keeps_password(party.database)
        return open_table(table_source(party, base), party.columns, party.sensitive, encoder)


def keeps_password(database: str | None) -> None:
    """Refuse an address out of a run folder that its password was taken from."""
    if database is not None and redact(database) == database and "***" in database:
        raise DataError(
            "the run folder does not keep the password of its database; say where the new rows are with a job "
            "file (--job) or a table (--table), or write the password as ${NAME} in the job file before training"
        )
