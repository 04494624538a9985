"""Horizontal jobs over tables, from start to run folder, and from run folder to scores of new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.proving import Proof
from evenhand.data.tables.as_types import numbers_as_fitted
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.party_tables import require_unchanged
from evenhand.errors import DataError, MissingExtraError, RunError
from evenhand.jobs.folder import FinishedRun, own_job, require_password, run_folder
from evenhand.jobs.horizontal.file import ClientSection, HorizontalJobFile, parse_horizontal
from evenhand.jobs.horizontal.rows import EncodedRows, client_pictures, encoded, open_frame
from evenhand.jobs.horizontal.tables import HorizontalTables, load_horizontal_tables
from evenhand.jobs.new_rows import NewRows, measured, read_beside
from evenhand.jobs.quality import QualityRows, check_measurable, quality, right_decisions, scored
from evenhand.jobs.schema import located
from evenhand.jobs.tables import Classes, Labels, naming
from evenhand.models.binned_trees import BinnedTrees
from evenhand.models.linear import SharedLinear
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.solver import Certificate
from evenhand.protocol.state import State
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.run_location import check_place
from evenhand.training.horizontal import HorizontalRun, train_together
from evenhand.training.protection import client_privacy
from evenhand.training.run import shortfalls

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
    with run_folder(job, base, out, resume) as folder:
        run = train_together(
            tables.together,
            clock=job.to_clock(),
            folder=folder,
            checkpoint_seconds=checkpoint_seconds,
            on_round=on_round,
        )
        require_unchanged(tables.seen)
        state = model_state(job, run.terms.shape, run.model, run.weights, run.statistics)
        if tables.encoder is not None:
            folder.write_model("encoder", tables.encoder.to_state())
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
            "Agree on these beforehand (data.encoder, data.groups), leave them out, or set "
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
    result: dict[str, Any] = {
        **servers_result(job, run.certificate, run.proofs, tables.labels, scores["train"], run.transcript),
        **({"statistics": dict(run.record)} if run.record else {}),
        **quality(labelled, scores, constraints=constraints_over_all(job)),
        "clients": {
            name: _of_client(rows, QualityRows(rows.labels, names=tables.labels), of_clients[name])
            for name, rows in tables.clients.items()
        },
    }
    if job.privacy is not None:
        result["privacy"] = stated_privacy(job, list(tables.clients), run.transcript, tables.learned)
    return result


def servers_result(
    job: HorizontalJobFile,
    certificate: Certificate,
    proofs: Sequence[Proof],
    labels: Labels | Classes,
    scores: Array,
    transcript: Transcript,
) -> dict[str, Any]:
    """Return the server's part of the result, without quality; scores belong to the training rows."""
    # JSON has no NaN: values that were not measured become null.
    measured = {
        name: None if isinstance(value, float) and np.isnan(value) else value
        for name, value in certificate.as_dict().items()
    }
    return {
        "certificate": measured,
        "proofs": [{**asdict(proof), "holds": proof.holds} for proof in proofs],
        "shortfalls": shortfalls(certificate, job.to_job().tol, job.max_rounds, labels.named(scores)),
        "solver": job.to_job().solver,
        "bytes": transcript.total_bytes,
        "messages": transcript.total_messages,
        "labels": labels._asdict(),
    }


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
    return () if where.scope == "local" else where.constraints_of(SERVER, job.to_job().constraints)


def _of_client(rows: EncodedRows, labelled: QualityRows, scores: Array) -> dict[str, Any]:
    """Return a client's number of rows, and the model's accuracy on them."""
    right = right_decisions(labelled, scores)
    parts = {"train": ~rows.test, "test": rows.test}
    return {
        name: {"rows": int(inside.sum()), "accuracy": float(right[inside].mean())}
        for name, inside in parts.items()
        if inside.any()
    }


# -- the model on disk


def model_state(job: HorizontalJobFile, shape: tuple[int, ...], model: Any, weights: Any, statistics: Any) -> State:
    """Return the shared model as it is saved; the shape is that of a row: encoded columns, or a picture."""
    state: State = {
        "model": job.to_job().model,
        **({"columns": shape[0]} if len(shape) == 1 else {"shape": list(shape)}),
        **({} if job.n_classes is None else {"classes": job.n_classes}),
        "hidden": list(job.to_job().hidden),
        "weights": weights,
        "statistics": statistics,
    }
    return state | model.to_state() if isinstance(model, BinnedTrees) else state


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


def scorer(state: State) -> Callable[[Any], Array]:
    """Return a function that scores encoded rows with saved weights; linear models do not need torch."""
    classes = None if state.get("classes") is None else int(state["classes"])
    if state["model"] == "linear" and classes is None:
        return SharedLinear(np.asarray(state["weights"], dtype=np.float64)).predict
    if state["model"] == "trees":
        return BinnedTrees.from_state(state).predict
    try:
        from evenhand.models.networks import make_network
    except ImportError as error:
        raise MissingExtraError("A network across clients", "torch") from error
    shape = tuple(map(int, state["shape"])) if "shape" in state else (int(state["columns"]),)
    network = make_network(state["model"], shape, classes, tuple(state["hidden"]))
    network.load(state["weights"], state["statistics"])
    return network.predict


# -- scores of new rows


def _kept_job(folder: RunFolder) -> HorizontalJobFile:
    """Return the job of a run; for a client's side between organisations, with that client's table only."""
    own = folder.description.get("own")
    if own is None:
        return own_job(folder, HorizontalJobFile, parse_horizontal)
    section = {key: value for key, value in own["party"].items() if key in ClientSection.model_fields}
    return own_job(folder, HorizontalJobFile, parse_horizontal, client=[section])


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
    labels = folder.labels
    encoder, score = read_model(folder)
    job = _kept_job(folder) if job is None else job
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
            frame = open_frame(section, job.data, base, owner, encoder.columns_in)
            frame = numbers_as_fitted(frame, encoder.kinds, section.decimal)
            with naming(owner):
                scores = score(encoded(encoder, frame))
            remarks += [f"{owner}: {said}" for said in encoder.remarks_on(frame)]
        parts[section.name] = scored(scores, labels, frame.index)
        found = read_beside(located(section, base, job.data.id), job.data.label.column, job.data.sensitive)
        if found is not None:
            beside[section.name] = found
    table = pd.concat(parts, names=["client", job.data.id or "row"])
    known = pd.concat(beside) if beside else None
    quality, more = measured(table, known, job.data.label.column, labels)
    return NewRows(table, [*remarks, *more], quality)
