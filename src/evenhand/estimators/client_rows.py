"""Rows, labels, groups and client ids handed to a horizontal estimator: one order, encoded, dealt to clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from evenhand.arrays import Array
from evenhand.constraints import groups_frame
from evenhand.data.tables.align import align
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import DataError, InputError
from evenhand.estimators.tables import in_pandas
from evenhand.horizontal.problem import ClientRows
from evenhand.jobs.tables import tell
from evenhand.models.pictures import Pictures
from evenhand.training.preparing import Preparation


class Inputs(NamedTuple):
    """What `fit` works on, all in the order of X."""

    X: Any
    labels: npt.NDArray[Any]
    sensitive: Any
    clients: npt.NDArray[Any]


def read_inputs(X: Any, y: Any, sensitive: Any, clients: Any) -> Inputs:
    """Check that everything has one entry for each row of X.

    What carries a pandas index is brought to X's order by it. Where all indexes are the same they may repeat, as after
    `concat` of the clients' tables.
    """
    if clients is None:
        raise DataError("clients is missing: give one client id for each row, as scikit-learn takes groups")
    named = {"X": as_rows(X), "y": y, "sensitive_features": in_pandas(sensitive), "clients": clients}
    given = {name: item for name, item in named.items() if item is not None}
    if y is None:
        raise DataError("y is missing: the classifier requires y to be passed, but the target y is None")
    indexed = {name: item for name, item in given.items() if isinstance(item, (pd.DataFrame, pd.Series))}
    indexes = [item.index for item in indexed.values()]
    if any(not indexes[0].equals(other) for other in indexes[1:]):
        given |= dict(zip(indexed, align(list(indexed.values()), list(indexed)), strict=True))
    rows = given["X"].shape[0]
    if rows == 0:
        raise DataError("X has no rows: found 0 sample(s) while a minimum of 1 is required")
    for name, item in given.items():
        size = item.shape[0] if hasattr(item, "shape") and item.shape else len(item)
        if size != rows:
            raise DataError(f"{name} has {size} rows, X has {rows}")
    labels = column_or_1d(given["y"], warn=True)
    return Inputs(given["X"], labels, given.get("sensitive_features"), client_names(given["clients"]))


def as_rows(X: Any) -> Any:
    """A DataFrame, a sparse matrix, or an array of two dimensions or more."""
    X = in_pandas(X)
    if isinstance(X, (pd.Series, str)) or not hasattr(X, "shape"):
        X = np.asarray(X)
    if len(X.shape) < 2:
        raise DataError(f"X has {len(X.shape)} dimension(s); give a table of two, or images of four. Reshape your data")
    if len(X.shape) == 2 and X.shape[1] == 0:
        raise DataError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required")
    return X


def rows_of(
    name: str,
    inside: npt.NDArray[np.bool_],
    features: npt.NDArray[Any],
    codes: Array,
    sensitive: Any,
    crop: int | None,
    gaps: bool,
) -> ClientRows:
    """The rows of one client; pictures of bytes stay where they are."""
    groups = None if sensitive is None else groups_frame(take(sensitive, inside), int(inside.sum()))
    of_bytes = features.ndim == 4 and features.dtype == np.uint8
    if crop is not None and not of_bytes:
        raise DataError(f"crop is {crop!r}, but X holds no pictures of bytes (n, channels, height, width)")
    own = Pictures(features, np.flatnonzero(inside), crop) if of_bytes else features[inside]
    return ClientRows(name, own, codes[inside], groups, gaps=gaps)


def client_names(clients: Any) -> npt.NDArray[Any]:
    """Client ids as text, which is what clients are called; two ids must not become one."""
    # A list is taken element by element: as an array, 1 and "1" would have become one already.
    plain = clients if isinstance(clients, (list, tuple)) else column_or_1d(clients)
    values = pd.Series(list(plain), dtype=object)
    if missing := int(values.isna().sum()):
        raise DataError(f"clients has {missing} missing ids; every row belongs to a client")
    names = values.map(str)
    for name, ids in values.groupby(names):
        if ids.nunique() > 1:
            raise DataError(f"clients has ids that read alike, {list(ids.unique())}: both are called {name!r}")
    return names.to_numpy(dtype=object)


def class_codes(labels: npt.NDArray[Any], positive: Any) -> tuple[npt.NDArray[Any], Any, Array]:
    """The classes, the positive one of two, and for each row ±1 or, of more than two, the number of its class."""
    if missing := int(pd.isna(labels).sum()):
        raise DataError(f"y has {missing} missing labels; fill or drop those rows (NaN or None is no class)")
    check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise DataError(f"y has 1 class ({classes[0]!r}); the classifier can't train when there is only one class")
    if len(classes) > 2:
        if positive is not None:
            raise InputError(f"positive is {positive!r}, but y has {len(classes)} classes; it goes with two")
        return classes, None, np.searchsorted(classes, labels).astype(np.float64)
    chosen = classes[1] if positive is None else positive
    if chosen not in classes:
        raise DataError(f"positive is {positive!r}, which y does not have; its labels are {classes}")
    return classes, chosen, np.where(labels == chosen, 1.0, -1.0)


def learn_encoder(
    X: Any, clients: npt.NDArray[Any], scale: bool, preparation: Preparation, as_is: bool = False
) -> PartyEncoder | None:
    """An encoder from what clients share of their columns; images need none, and trees only levels of categories.

    Of a numeric column each client says how many rows it has, their mean and the sum of squares about it, of other
    columns which levels occur, of a sparse matrix each column's largest absolute value. These add up to the
    encoder of the pooled rows.
    """
    if len(X.shape) > 2:
        return None
    if not sp.issparse(X) and not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
    X = X.tocsr() if sp.issparse(X) else X
    learned = {}
    for name in sorted(set(clients)):
        own, encoder = X[clients == name], PartyEncoder(scale=scale, as_is=as_is)
        try:
            learned[name] = encoder.fit(own) if sp.issparse(X) else encoder.partial_fit(own)
        except DataError as error:
            raise DataError(f"client {name!r}: {error}") from error
    agreed = preparation.encoder(learned, scale, as_is)
    tell("all clients", agreed.remarks)
    return agreed


def learns_from_rows(encoder: PartyEncoder) -> bool:
    """Whether an encoder holds anything that came from the rows it was fitted on."""
    return encoder.scale or bool(encoder.categorical) or encoder.feature_names_out != encoder.columns_in


def encoded(encoder: PartyEncoder | None, X: Any) -> npt.NDArray[Any]:
    """Dense numbers: encoded columns, or images as they are."""
    if encoder is None:
        try:
            # Pictures of bytes stay as and where they are.
            return np.asarray(X) if X.dtype == np.uint8 else np.asarray(X, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"X holds values that are not numbers ({error})") from error
    matrix = encoder.transform(X)
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def take(item: Any, rows: npt.NDArray[np.bool_]) -> Any:
    """Some rows of sensitive features in any container."""
    if item is None:
        return None
    return item[rows] if isinstance(item, (pd.DataFrame, pd.Series, np.ndarray)) else np.asarray(item)[rows]


def feature_names(X: Any) -> Sequence[str] | None:
    """As scikit-learn keeps them: of a DataFrame whose columns are all called by text."""
    if isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns):
        return list(X.columns)
    return None
