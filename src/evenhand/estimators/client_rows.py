"""Prepare the input of a horizontal estimator: bring it to one order, split it over clients, and encode it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
from sklearn.utils.validation import column_or_1d

from evenhand.arrays import Array, Matrix
from evenhand.constraints import groups_frame
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.twins import twins
from evenhand.errors import DataError
from evenhand.estimators.tables import in_pandas
from evenhand.horizontal.problem import ClientData, ClientRows, HorizontalServerData, UpdateNoise, check_weights
from evenhand.jobs.tables import tell
from evenhand.models.kinds import ModelKind, module_of
from evenhand.models.pictures import Pictures
from evenhand.protocol.roles import SERVER
from evenhand.protocol.terms import HorizontalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.solvers.agreeing import KnownBefore
from evenhand.training.horizontal_steps import (
    HorizontalTraining,
    agree_on_encoder,
    client_steps,
    combine_encoders,
    server_steps,
)
from evenhand.training.together import Steps, Together
from evenhand.training.vertical_sources import align


class Inputs(NamedTuple):
    """Checked input of `fit`, in the order of X."""

    X: Any
    labels: npt.NDArray[Any]
    sensitive: Any
    clients: npt.NDArray[Any]
    weights: Array | None = None


def read_inputs(X: Any, y: Any, sensitive: Any, clients: Any, weights: Any = None) -> Inputs:
    """Check that everything has one entry for each row of X.

    Inputs with a pandas index are brought to X's order. If all indexes are equal, they may have duplicates, as after
    `concat` of the clients' tables.
    """
    if clients is None:
        raise DataError("clients is missing: give one client id for each row, as scikit-learn takes groups")
    named = {"X": as_rows(X), "y": y, "sensitive_features": in_pandas(sensitive), "clients": clients}
    named["sample_weight"] = weights
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
    read = None if weights is None else _weights(given["sample_weight"], rows)
    return Inputs(given["X"], labels, given.get("sensitive_features"), client_names(given["clients"]), read)


def _weights(given: Any, rows: int) -> Array:
    try:
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight holds values that are not numbers ({error})") from error
    check_weights("sample_weight", weights, rows)
    return weights


def as_rows(X: Any) -> Any:
    """Return X as a DataFrame, a sparse matrix, or an array of two dimensions or more."""
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
    features: Matrix,
    codes: Array,
    sensitive: Any,
    crop: int | None,
    missing: bool,
) -> ClientRows:
    """Return the rows of one client; pictures of bytes are not copied."""
    groups = None if sensitive is None else groups_frame(take(sensitive, inside), int(inside.sum()))
    of_bytes = features.ndim == 4 and features.dtype == np.uint8
    if crop is not None and not of_bytes:
        raise DataError(f"crop is {crop!r}, but X holds no pictures of bytes (n, channels, height, width)")
    own = Pictures(features, np.flatnonzero(inside), crop) if of_bytes else features[inside]
    return ClientRows(name, own, codes[inside], groups, missing=missing)


def client_names(clients: Any) -> npt.NDArray[Any]:
    """Return client ids as text, the clients' names; refuse two ids with the same text."""
    # Convert a list element by element: as an array, 1 and "1" would become equal.
    plain = clients if isinstance(clients, (list, tuple)) else column_or_1d(clients)
    values = pd.Series(list(plain), dtype=object)
    if missing := int(values.isna().sum()):
        raise DataError(f"clients has {missing} missing ids; every row belongs to a client")
    names = values.map(str)
    for name, ids in values.groupby(names):
        if ids.nunique() > 1:
            raise DataError(f"clients has ids with the same text, {list(ids.unique())}: both become {name!r}")
    return names.to_numpy(dtype=object)


def encoded(encoder: PartyEncoder | None, X: Any) -> Matrix:
    """Return numbers: encoded columns, of which sparse ones stay sparse, or unchanged images."""
    if encoder is None:
        try:
            # Pictures of bytes are neither converted nor copied.
            return np.asarray(X) if X.dtype == np.uint8 else np.asarray(X, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"X holds values that are not numbers ({error})") from error
    matrix = encoder.transform(X)
    return matrix if sp.issparse(matrix) else np.asarray(matrix)


def take(item: Any, rows: npt.NDArray[np.bool_]) -> Any:
    """Select rows of sensitive features in any container."""
    if item is None:
        return None
    return item[rows] if isinstance(item, (pd.DataFrame, pd.Series, np.ndarray)) else np.asarray(item)[rows]


def feature_names(X: Any) -> Sequence[str] | None:
    """Return feature names as scikit-learn does: only for a DataFrame with text column names."""
    if isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns):
        return list(X.columns)
    return None


class ClientPool:
    """All clients' rows from an estimator's input, split over clients and encoded as they agree.

    The encoder is made from summaries of the clients' columns. Images need none, and trees only levels of categories.
    For a numeric column each client sends its number of rows, their mean and the sum of squared deviations; for other
    columns the levels that occur; for a sparse matrix each column's largest absolute value. The result equals the
    encoder of the pooled rows.

    Parameters
    ----------
    codes
        The label of each row, as `class_codes` returns it.
    encoder
        A fitted encoder that clients agreed on beforehand, or an unfitted one with the parameters to use.
    model
        The shared model; it names the device, and for pictures of bytes the side of the square that it sees.

    Attributes
    ----------
    encoder
        The shared encoder; None for images, and before clients have agreed.
    rows
        Encoded rows by client name.
    """

    def __init__(
        self,
        inputs: Inputs,
        codes: Array,
        *,
        encoder: PartyEncoder | None,
        model: ModelKind,
        trees: bool,
    ) -> None:
        X = inputs.X
        images = len(X.shape) > 2
        agreed = encoder if encoder is not None and encoder.is_fitted else None
        if images and encoder is not None:
            raise DataError("encoder is given, but X holds images, which are not encoded")
        if not images and not isinstance(X, pd.DataFrame):
            X = X.tocsr() if sp.issparse(X) else np.asarray(X)
        self._inputs, self._codes = inputs._replace(X=X), codes
        self._rules = (PartyEncoder() if encoder is None else encoder).unfitted(as_is=trees)
        self.module, self.device = module_of(model), getattr(model, "device", "cpu")
        self._crop, self._trees = getattr(model, "crop", None), trees
        self._agrees = agreed is None and not images
        self.encoder = agreed
        self.names: list[str] = sorted(set(inputs.clients))
        self.rows: dict[str, ClientRows] = {}

    @cached_property
    def features(self) -> Matrix:
        """All clients' encoded rows, in the order of the input."""
        return encoded(self.encoder, self._inputs.X)

    @property
    def learned(self) -> bool:
        """Whether the encoder has statistics of the clients' rows."""
        found = self.encoder
        if not self._agrees or found is None:
            return False
        return found.scale or bool(found.categorical) or found.feature_names_out != found.columns_in

    def together(
        self,
        draft: HorizontalTerms,
        known: KnownBefore,
        own: Callable[[], HorizontalServerData],
        noise: Mapping[str, UpdateNoise],
        transcript: Transcript | None,
    ) -> Together[HorizontalTraining]:
        """Return the steps of all participants, from the draft terms to the trained model.

        Parameters
        ----------
        own
            Returns the server's own data; it is called when all rows are encoded.
        noise
            What clients add to their updates, by name.
        """
        warns = bool(draft.job.constraints)
        steps: dict[str, Steps[Any]] = {
            SERVER: server_steps(draft, known, self._server(own), everybody=lambda: self.rows, warns=warns)
        }
        for name in self.names:
            steps[name] = client_steps(name, draft, known, self._client(name, noise.get(name)))
        return Together(steps, transcript)

    def server_rows(self, given: tuple[Any, ...], classes: npt.NDArray[Any], pos_label: Any) -> ClientRows:
        """Return the server's own rows, given as (X, y) or (X, y, sensitive_features)."""
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise DataError("server_rows is not (X, y) or (X, y, sensitive_features)")
        X, y, sensitive = (*given, None)[:3]
        X, labels = as_rows(X), np.asarray(y)
        if len(labels) != X.shape[0] or not np.isin(labels, classes).all():
            raise DataError(f"server_rows needs one label for each of its {X.shape[0]} rows, each one of {classes}")
        everything, signs = np.ones(len(labels), dtype=bool), np.where(labels == pos_label, 1.0, -1.0)
        return rows_of("rows of the server", everything, encoded(self.encoder, X), signs, sensitive, self._crop, False)

    def _client(self, name: str, update_noise: UpdateNoise | None) -> Steps[ClientData]:
        """Run a client's steps up to its encoded rows."""
        inside = self._inputs.clients == name
        X, sensitive = self._inputs.X, self._inputs.sensitive
        if sensitive is not None and isinstance(X, pd.DataFrame):
            columns = ((str(one), X.iloc[:, place][inside]) for place, one in enumerate(X.columns))
            tell(f"client {name!r}", twins(columns, groups_frame(take(sensitive, inside), int(inside.sum()))))
        if self._agrees:
            shared = yield from agree_on_encoder(name, self._learn(name, inside), self._inputs.X[inside])
            self.encoder = shared if self.encoder is None else self.encoder
        dealt = rows_of(name, inside, self.features, self._codes, self._inputs.sensitive, self._crop, self._trees)
        if self._inputs.weights is not None:
            dealt = replace(dealt, sample_weight=self._inputs.weights[inside])
        if self._trees and self.encoder is not None:
            dealt = replace(dealt, categorical=self.encoder.categorical)
        self.rows[name] = dealt
        return ClientData(dealt, self.module, update_noise, self.device)

    def _server(self, own: Callable[[], HorizontalServerData]) -> Steps[HorizontalServerData]:
        """Run the server's steps; its own data is requested once all rows are encoded."""
        if self._agrees:
            rules = vars(self._rules.rules)
            self.encoder = yield from combine_encoders(self.names, self._rules.scale, self._trees, rules)
            tell("all clients", self.encoder.remarks)
        return own()

    def _learn(self, name: str, inside: npt.NDArray[np.bool_]) -> PartyEncoder:
        X, encoder = self._inputs.X, self._rules.unfitted()
        try:
            return encoder.fit(X[inside]) if sp.issparse(X) else encoder.partial_fit(X[inside])
        except DataError as error:
            raise DataError(f"client {name!r}: {error}") from error
