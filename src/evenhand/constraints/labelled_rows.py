"""Labelled rows of data: the one family of types that hold labels, groups and sample weights.

`LabelledRows` is for those who hold labels and groups, such as the server of a vertical run. `FeatureRows` adds the
features of a linear program. Other rooms extend these two (`ClientRows`, `ServerData`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.constraints.groups import groups_frame
from evenhand.constraints.slices import Slice
from evenhand.errors import DataError
from evenhand.protocol.job import RandomizedResponse


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labels and groups of rows of data.

    Attributes
    ----------
    labels
        ±1, class indices 0, 1, ... for more than two classes, or targets that are numbers.
    groups
        One column for each sensitive attribute; None where there are none.
    sample_weight
        How many people each row stands for, in any unit: in the mean loss, and in the slices of constraints. None means
        one.
    answers
        The label privacy that these labels are randomised responses under; None for true labels.
    """

    labels: Array
    groups: pd.DataFrame | None = None
    sample_weight: Array | None = field(default=None, kw_only=True)
    answers: RandomizedResponse | None = field(default=None, kw_only=True)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def weight_of_rows(self) -> Array:
        """The weight of each row; one without sample weights."""
        return np.ones(self.n_rows) if self.sample_weight is None else self.sample_weight

    def inside(self, part: Slice) -> Booleans:
        """Return which rows of data are in a slice."""
        assert self.groups is not None
        return part.inside(self.labels, self.groups)


@dataclass(frozen=True, eq=False, init=False)
class FeatureRows(LabelledRows):
    """Labelled rows with the features of a linear model: finite numbers, with a constant column for an intercept."""

    features: Matrix = field(kw_only=True)
    # Programs do not support it.
    answers: None = field(default=None, init=False)

    def __init__(
        self,
        features: Matrix,
        labels: Any,
        groups: pd.DataFrame | None = None,
        *,
        classifies: bool = True,
        sample_weight: Array | None = None,
    ) -> None:
        features = features.astype(np.float64) if sp.issparse(features) else np.asarray(features, dtype=np.float64)
        labels = np.asarray(labels, dtype=np.float64)
        if features.ndim != 2 or labels.shape != (features.shape[0],) or not len(labels):
            raise DataError(f"features {features.shape} and labels {labels.shape} do not fit together, or are empty")
        signs = np.isin(labels, (-1.0, 1.0)).all()
        if classifies and not signs and not ((labels >= 0) & (labels == np.floor(labels))).all():
            raise DataError("labels must be -1 or +1, or whole numbers from 0 for classes")
        if not np.isfinite(features.data if sp.issparse(features) else features).all():
            raise DataError("features hold numbers that are not finite; fill or drop those rows")
        super().__init__(labels, groups_frame(groups, len(labels)), sample_weight=sample_weight)
        object.__setattr__(self, "features", features)
