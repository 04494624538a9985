"""Scorecards: each owner's linear model as points of bins, from the owner's own files.

A score is the log odds of the positive label, a sum over columns. Points are the same on another scale, on which so
many points double the odds (N. Siddiqi, Credit Risk Scorecards, 2006, chapter 6). An owner's card needs no file of
another owner: nobody sees another's bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.data.tables.absence import ABSENT
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError, RunError
from evenhand.runtime.folder import RunFolder

_COLUMNS: Final = ["column", "bin", "points", "from", "to", "log_odds"]


@dataclass(frozen=True)
class PointScale:
    """A scale of points.

    Attributes
    ----------
    points, odds
        The points of a row whose odds of the positive label are `odds`.
    double
        How many points double the odds.
    """

    points: float = 600.0
    odds: float = 50.0
    double: float = 20.0

    def __post_init__(self) -> None:
        for name, value in (("odds", self.odds), ("double", self.double)):
            if not (math.isfinite(value) and value > 0.0):
                raise InputError(f"{name} is {value:g}; it is a number above 0")
        if not math.isfinite(self.points):
            raise InputError(f"points is {self.points:g}; it is a finite number")

    @property
    def factor(self) -> float:
        """Points of one unit of log odds."""
        return self.double / math.log(2.0)

    @property
    def offset(self) -> float:
        """Points of even odds."""
        return self.points - self.factor * math.log(self.odds)


@dataclass(frozen=True)
class Scorecard:
    """One owner's part of the score.

    Attributes
    ----------
    owner
        Whose part it is.
    table
        A row for each column and bin: its points, those at its lower and upper end (a curve rises within a bin), and
        `log_odds`, the exact contribution in its middle.
    intercept
        Log odds of the model's intercept; None if another owner has it.
    """

    owner: str
    table: pd.DataFrame
    intercept: float | None

    def base(self, scale: PointScale) -> float | None:
        """Return the points to start from; None if another owner has them."""
        return None if self.intercept is None else scale.offset + scale.factor * self.intercept


def scorecard(folder: RunFolder, owner: str | None, scale: PointScale) -> Scorecard:
    """Return an owner's scorecard from its files of a finished run; None is the only owner."""
    if "loss" in folder.labels:
        raise InputError(
            f"{folder.path} predicts numbers ({folder.labels['loss']} loss), and points are log odds of a positive "
            "label; evenhand report shows the weights"
        )
    if "classes" in folder.labels:
        raise InputError(f"{folder.path} has a model of several classes; a scorecard is for two")
    owners = folder.owners
    if owner is None and len(owners) != 1:
        raise InputError(f"{folder.path} has models of {', '.join(owners)}; choose one with --party")
    name = next(iter(owners)) if owner is None else owner
    if name not in owners:
        raise InputError(f"--party {name}: {folder.path} has models of {', '.join(owners)} only")
    encoder, weights = _linear(folder, name)
    table = pd.DataFrame(_rows(encoder, weights[: encoder.width_out], scale.factor), columns=_COLUMNS)
    rest = weights[encoder.width_out :]
    return Scorecard(name, table.set_index(_COLUMNS[:2]), float(rest.sum()) if rest.size else None)


def _linear(folder: RunFolder, owner: str) -> tuple[PartyEncoder, Array]:
    """Return an owner's encoder and weights, the intercept last."""
    read = folder.owners[owner]
    state = read("weights")
    if state.get("model") == "share":
        raise InputError(
            f"{folder.path}: the weights of {owner} are in shares, so nobody knows them; train with weights = "
            '"party" in [job] for a scorecard'
        )
    if state.get("model") != "linear":
        raise InputError(f"{folder.path}: {owner} has a model of kind {state.get('model')!r}; a scorecard is linear")
    try:
        encoder = PartyEncoder.from_state(read("encoder"))
    except DataError as error:
        raise RunError(f"{folder.path}: the encoder of {owner} cannot be used: {error}") from error
    if encoder.sparse_columns is not None:
        raise InputError(f"{folder.path}: {owner} has a sparse matrix; a scorecard needs named columns")
    weights = np.asarray(state["weights"], dtype=np.float64)
    if weights.ndim != 1 or not 0 <= weights.size - encoder.width_out <= 1:
        raise RunError(f"{folder.path}: the weights of {owner} do not fit its encoder; the folder was changed")
    return encoder, weights


def _rows(encoder: PartyEncoder, weights: Array, factor: float) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    start = 0
    for column, bins in encoder.bins.items():
        own = weights[start : start + encoder.widths[column]]
        start += encoder.widths[column]
        for one in bins:
            low, high = float(one.low @ own), float(one.high @ own)
            middle = (low + high) / 2
            points = {key: round(factor * value) for key, value in (("points", middle), ("from", low), ("to", high))}
            found.append({"column": column, "bin": one.name, **points, "log_odds": middle})
    if encoder.marks_absence:
        value = float(weights[-1])
        points = dict.fromkeys(("points", "from", "to"), round(factor * value))
        found.append({"column": ABSENT, "bin": "", **points, "log_odds": value})
    return found
