"""Jobs over tables, from start to run folder, and from run folder to scores of new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from evenhand.arrays import Array, Booleans
from evenhand.data.addresses import redact
from evenhand.data.align import align
from evenhand.data.encoding import PartyEncoder
from evenhand.data.tables import read_table
from evenhand.errors import DataError, RunError
from evenhand.federation import Federation, load_federation
from evenhand.jobfile import JobFile, PartySection, parse_job, table_source
from evenhand.metrics import summary
from evenhand.models.saved import from_state, to_state
from evenhand.report.record import RunFolder
from evenhand.roles import Report
from evenhand.training import Run, train_vertical
from evenhand.vertical.solvers import check_job


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run and its folder; `result` is what `result.json` holds."""

    run: Run
    folder: RunFolder
    result: dict[str, Any]


def run_job(
    job: JobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    on_round: Callable[[Report], None] | None = None,
    checkpoint_seconds: float = 10.0,
    federation: Federation | None = None,
) -> FinishedRun:
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
    check_job(job.to_job())
    federation = load_federation(job, base) if federation is None else federation
    folder = _folder(job, base, out, resume)
    for name, encoder in federation.encoders.items():
        folder.write_party(name, "encoder", encoder.to_state())
    train = ~federation.test
    run = train_vertical(
        job.to_job(),
        federation.training_columns(),
        federation.signs[train],
        None if federation.sensitive is None else federation.sensitive[train],
        clock=job.to_clock(),
        folder=folder,
        checkpoint_seconds=checkpoint_seconds,
        on_round=on_round,
    )
    for name, model in run.models.items():
        folder.write_party(name, "weights", to_state(model))
    result = _result(run, federation)
    folder.finish(result)
    return FinishedRun(run, folder, result)


def _folder(job: JobFile, base: Path, out: Path, resume: bool) -> RunFolder:
    from evenhand import __version__

    if resume and (out / "run.toml").is_file():
        folder = RunFolder.open(out)
        if folder.finished:
            raise RunError(f"the run in {out} has finished; there is nothing to resume")
        return folder
    content = job.model_dump(exclude_unset=True)
    for party in content["party"]:
        if "database" in party:
            party["database"] = redact(party["database"])
    return RunFolder.create(out, {"evenhand": __version__, "base": str(base.resolve()), **content})


def _result(run: Run, federation: Federation) -> dict[str, Any]:
    scores = np.sum([run.models[name].predict(matrix) for name, matrix in federation.matrices.items()], axis=0)
    parts = {"train": ~federation.test, "test": federation.test}
    quality = {name: _quality(federation, scores, rows) for name, rows in parts.items() if rows.any()}
    return {
        "certificate": run.certificate.as_dict(),
        "quality": quality,
        "bytes": run.transcript.total_bytes,
        "messages": len(run.transcript),
        "labels": {"negative": federation.negative, "positive": federation.positive},
    }


def _quality(federation: Federation, scores: Array, rows: Booleans) -> dict[str, float]:
    """Accuracy and, where sensitive attributes are named, fairness metrics of some rows."""
    signs = federation.signs[rows]
    if federation.sensitive is None:
        return {"accuracy": float(np.mean((scores[rows] > 0) == (signs > 0)))}
    return summary(signs, scores[rows], sensitive_features=federation.sensitive[rows], positive=1.0)


def score_rows(folder: RunFolder, job: JobFile | None = None, tables: Mapping[str, Path] | None = None) -> pd.DataFrame:
    """Score rows with a finished run: each party's table through its own encoder and weights, summed by id.

    Parameters
    ----------
    job
        A job file whose parties say where their tables are; None takes the run's own.
    tables
        Files to read in place of a party's table, by the party's name.
    """
    labels = folder.result["labels"]
    job = _own_job(folder) if job is None else job
    names = [party.name for party in job.party]
    trained = [party["name"] for party in folder.description["party"]]
    if sorted(names) != sorted(trained):
        raise DataError(f"the job's parties are {', '.join(names)}; the run's are {', '.join(trained)}")
    if unknown := sorted((tables or {}).keys() - set(names)):
        raise DataError(f"no party is called {unknown[0]!r}; the run's parties are {', '.join(names)}")
    encoders = {name: PartyEncoder.from_state(folder.read_party(name, "encoder")) for name in names}
    base = Path(folder.description["base"])
    frames = [_new_rows(party, base, encoders[party.name], (tables or {}).get(party.name)) for party in job.party]
    frames = align(frames, names, how=job.job.ids)
    scores = np.zeros(len(frames[0]))
    for name, frame in zip(names, frames, strict=True):
        with _naming(name):
            scores += from_state(folder.read_party(name, "weights")).predict(encoders[name].transform(frame))
    predicted = [labels["positive"] if score > 0 else labels["negative"] for score in scores]
    columns = {"score": scores, "probability": expit(scores), "prediction": predicted}
    return pd.DataFrame(columns, index=frames[0].index)


def _own_job(folder: RunFolder) -> JobFile:
    content = {key: value for key, value in folder.description.items() if key in JobFile.model_fields}
    return parse_job(content, str(folder.path / "run.toml"))


def _new_rows(party: PartySection, base: Path, encoder: PartyEncoder, table: Path | None) -> pd.DataFrame:
    if table is not None:
        party = party.model_copy(update={"table": str(table.absolute()), "database": None, "sql": None})
    with _naming(party.name):
        return read_table(table_source(party, base, encoder.columns_in))


@contextmanager
def _naming(party: str) -> Iterator[None]:
    """Say whose table an error is about."""
    try:
        yield
    except DataError as error:
        raise DataError(f"party {party!r}: {error}") from error
