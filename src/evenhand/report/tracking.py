"""Log a finished run to MLflow: parameters, metrics by round, and the report page as an artifact."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from evenhand.data.tables.addresses import Scrubber
from evenhand.errors import InputError, MissingExtraError
from evenhand.report.page import write_page
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import in_short

EXPERIMENT: Final = "evenhand"
_BATCH: Final = 500
"""Metrics in one call; servers refuse more than a thousand."""


def track(record: RunRecord, uri: str, experiment: str = EXPERIMENT) -> str:
    """Log a run and return its MLflow id; refuse a run that is already logged.

    Parameters
    ----------
    uri
        Tracking server or store, as MLflow takes it: ``http://127.0.0.1:5000``, ``sqlite:///mlflow.db``.
    """
    if not record.finished:
        raise InputError(f"the run {record.name!r} has not finished; log it when it is finished")
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise MissingExtraError("Logging to MLflow", "mlflow") from error
    try:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if found is None else found.experiment_id
        of_run = str(record.description.get("run", record.name))
        if known := client.search_runs([number], f"tags.`evenhand.run` = '{of_run}'"):
            raise InputError(f"{record.name} is already in experiment {experiment!r}, as run {known[0].info.run_id}")
        tags = {"evenhand.run": of_run, "evenhand.verdict": in_short(record.result, record.constrained)}
        run = client.create_run(number, tags=tags, run_name=record.name)
        for name, value in _parameters(record.job):
            client.log_param(run.info.run_id, name, value)
        at = run.info.start_time
        metrics = [Metric(name, value, at, step) for name, value, step in _metrics(record)]
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(run.info.run_id, metrics=metrics[start : start + _BATCH])
        with tempfile.TemporaryDirectory() as folder:
            write_page([record], Path(folder) / "report.html")
            client.log_artifact(run.info.run_id, str(Path(folder) / "report.html"))
        client.set_terminated(run.info.run_id)
    except MlflowException as error:
        problem = str(error)
    else:
        return str(run.info.run_id)
    # Raised outside the handler, because the traceback could show a password in the address.
    raise InputError(f"MLflow refused the run: {Scrubber.of_addresses([uri])(problem)}")


def _parameters(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the job's keys with their sections, such as ``constraint.0.epsilon``."""
    for key, value in content.items():
        parts = value if isinstance(value, Mapping) else None
        if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
            parts = {str(place): one for place, one in enumerate(value)}
        if parts is None:
            yield f"{above}{key}", value
        else:
            yield from _parameters(parts, f"{above}{key}.")


def _metrics(record: RunRecord) -> Iterator[tuple[str, float, int]]:
    """Yield the metrics of each round, then the final metrics; MLflow allows few characters in names."""
    for row in record.history.to_dict("records"):
        for name in ("objective", "violation"):
            value = row.get(name)
            if isinstance(value, (int, float)) and math.isfinite(value):
                yield name, float(value), int(row["round"])
    last = int(record.result["certificate"]["rounds"])
    for part, quality in record.result["quality"].items():
        yield from ((f"{part}.{name}", float(value), last) for name, value in quality.items() if value is not None)
    yield "bytes", float(record.result["bytes"]), last
