"""Load the model of a run folder, to score tables in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError
from evenhand.estimators.shared import LabelsFromScores
from evenhand.estimators.tables import Tables, align_rows, encode, named_tables
from evenhand.jobs.horizontal.rows import encoded
from evenhand.jobs.horizontal.runs import read_model
from evenhand.jobs.vertical.runs import party_encoder, party_model
from evenhand.models.base import Scorer
from evenhand.models.saved import joint_scores
from evenhand.runtime.folder import RunFolder


class SavedModel(LabelsFromScores):
    """Model of a finished run; it scores rows as `evenhand predict` does.

    Attributes
    ----------
    classes_ : the labels: the positive one last if there are two, otherwise in the order of the job.
    result : content of `result.json`: certificate, quality, groups.
    encoders_ : each party's encoder, or the shared encoder of a horizontal run; none for pictures.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.result: dict[str, Any] = folder.result
        names = folder.labels
        self.classes_: npt.NDArray[Any] = np.array(names.get("classes") or [names["negative"], names["positive"]])
        self.encoders_: Mapping[str, PartyEncoder]
        self._models: dict[str, Scorer] | None = None
        self._score: Callable[[Array], Array] | None = None
        if folder.split == "horizontal":
            encoder, self._score = read_model(folder)
            self.encoders_ = {} if encoder is None else {"all clients": encoder}
        else:
            self.encoders_ = {name: party_encoder(folder, name) for name in folder.owners}
            self._models = {name: party_model(folder, name, one) for name, one in self.encoders_.items()}

    def decision_function(self, X: Tables | Any) -> Array:
        """Scores, positive in favour of the positive label; X is a table for each party, or one of clients' rows, or
        pictures as bytes. Of more than two classes a column for each.
        """
        if self._models is None:
            assert self._score is not None
            rows: Any = X
            return self._score(encoded(self.encoders_["all clients"], rows) if self.encoders_ else rows)
        tables = named_tables(X)
        if not isinstance(X, Mapping) or tables.keys() != self._models.keys():
            raise DataError(f"give a table for each party, by its name: {', '.join(self._models)}")
        tables, _, _ = align_rows({name: tables[name] for name in self._models}, None, None)
        return joint_scores(
            self._models, {name: encode(name, self.encoders_[name], table) for name, table in tables.items()}
        )


def load_run(folder: str | Path) -> SavedModel:
    """Load the model of a finished run from its folder.

    Examples
    --------
    >>> model = evenhand.load_run("runs/monday")  # doctest: +SKIP
    >>> model.predict({"bank": bank, "shop": shop})  # doctest: +SKIP
    """
    return SavedModel(RunFolder.open(Path(folder)))
