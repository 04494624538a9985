"""Weights of a file to begin with: those of an earlier run, or of a torch module by the names of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from evenhand.errors import DataError, MissingExtraError
from evenhand.horizontal.problem import ModelStart
from evenhand.protocol.job import Job


def start_from(path: Path, job: Job, shape: tuple[int, ...], classes: int | None, network: Any = None) -> ModelStart:
    """Where a run begins whose weights are in a safetensors file.

    Parameters
    ----------
    shape, classes
        Of a row as the model sees it, and how many classes there are; None for two.
    network
        The module, or a function that makes one, where the job's model is ``"module"``.
    """
    try:
        found = load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} holds no weights to start from, as a safetensors file does: {error}") from error
    if found.keys() <= {"weights", "statistics"} and "weights" in found:
        return ModelStart(found["weights"], found.get("statistics", np.zeros(0, dtype=np.float32)))
    return _named(path, found, job.model if network is None else network, shape, classes, job)


def _named(
    path: Path,
    found: Mapping[str, npt.NDArray[Any]],
    model: Any,
    shape: tuple[int, ...],
    classes: int | None,
    job: Job,
) -> ModelStart:
    try:
        from evenhand.models.networks import make_network
    except ImportError as error:
        raise MissingExtraError("Weights of a torch module", "torch") from error
    network = make_network(model, shape, classes, job.hidden, job.seed)
    network.load_named(found, str(path))
    return ModelStart(network.weights, network.statistics)
