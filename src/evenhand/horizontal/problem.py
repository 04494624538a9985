"""What a horizontal solver is given: each client's rows, and what all clients agree on before they train."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array, Integers
from evenhand.constraints.groups import group_codes, groups_frame
from evenhand.errors import DataError
from evenhand.protocol.names import check_name

Single = npt.NDArray[np.float32]
"""Features, weights and their changes: single precision, as the papers train."""


@dataclass(frozen=True, eq=False)
class ClientRows:
    """One client's rows.

    Parameters
    ----------
    features
        (n, columns), or (n, channels, height, width) for images; kept in single precision.
    labels
        ±1, or class indices 0, 1, ... for more than two classes. A client may lack a class.
    groups
        One column per sensitive attribute, in any container `evenhand.constraints.groups_frame` takes. A client may
        lack a group.
    """

    name: str
    features: Single
    labels: Array
    groups: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        check_name("client", self.name)
        features: Any = self.features
        features = features.toarray() if sp.issparse(features) else features
        try:
            features = np.ascontiguousarray(features, dtype=np.float32)
            labels = np.asarray(self.labels, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"client {self.name!r}: features and labels must be numbers ({error})") from error
        if labels.ndim != 1 or features.ndim < 2 or len(features) != len(labels):
            raise DataError(
                f"client {self.name!r}: features of shape {features.shape} and labels of shape {labels.shape}; "
                "give one row of features and one label for each sample"
            )
        if len(labels) == 0:
            raise DataError(f"client {self.name!r} has no rows; leave it out of the run")
        bad = len(features) - int(np.isfinite(features).reshape(len(features), -1).all(axis=1).sum())
        if bad:
            raise DataError(
                f"client {self.name!r}: {bad} rows have features that are not finite numbers; fill or drop them"
            )
        if not np.isfinite(labels).all():
            raise DataError(f"client {self.name!r}: some labels are missing; fill or drop those rows")
        try:
            frame = groups_frame(self.groups, len(labels))
        except DataError as error:
            raise DataError(f"client {self.name!r}: {error}") from error
        for name, value in {"features": features, "labels": labels, "groups": frame}.items():
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Start:
    """Where to begin instead of at the model's own start."""

    weights: Single
    statistics: Single
    multipliers: Array


@dataclass(frozen=True)
class Agreement:
    """What all clients know before the first round: the shape of a row, the classes and the groups.

    Attributes
    ----------
    classes
        Number of classes, or None for labels of ±1.
    groups
        The values of each sensitive attribute, in the order that numbers them.
    """

    shape: tuple[int, ...]
    classes: int | None
    groups: Mapping[str, tuple[Hashable, ...]]

    def codes(self, client: ClientRows) -> dict[str, Integers]:
        """Each row's group of each attribute, as its place among the agreed values."""
        assert client.groups is not None
        try:
            return group_codes(client.groups, self.groups)
        except DataError as error:
            raise DataError(f"client {client.name!r}: {error}") from error


def agree(
    clients: Sequence[ClientRows],
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    classes: int | None = None,
) -> Agreement:
    """Find what the clients have in common, or refuse what does not fit together.

    Parameters
    ----------
    groups
        The values each attribute may take; None takes those that occur at any client.
    classes
        Number of classes, for labels that are class indices; None finds out.
    """
    if not clients:
        raise DataError("a run needs at least one client")
    names = [client.name for client in clients]
    if len(set(names)) < len(names):
        raise DataError(f"two clients are called {next(name for name in names if names.count(name) > 1)!r}")
    first = clients[0]
    for client in clients:
        if client.features.shape[1:] != first.features.shape[1:]:
            raise DataError(
                f"client {client.name!r} has rows of shape {client.features.shape[1:]}, client {first.name!r} of shape "
                f"{first.features.shape[1:]}; all clients need the same columns"
            )
    return Agreement(first.features.shape[1:], _classes(clients, classes), _groups(clients, groups))


def _classes(clients: Sequence[ClientRows], classes: int | None) -> int | None:
    found = np.unique(np.concatenate([np.unique(client.labels) for client in clients]))
    if classes is None and np.isin(found, (-1.0, 1.0)).all():
        if len(found) < 2:
            raise DataError(f"all labels of all clients are {found[0]:+g}; there is nothing to learn")
        return None
    if classes is None and np.isin(found, (0.0, 1.0)).all():
        raise DataError("labels are 0 and 1; two classes are written -1 and +1 (or say classes=2)")
    count = int(found[-1]) + 1 if classes is None else classes
    for client in clients:
        labels = client.labels
        if not ((labels >= 0) & (labels < count) & (labels == np.floor(labels))).all():
            wrong = "±1, or whole numbers from 0" if classes is None else f"whole numbers from 0 to {count - 1}"
            raise DataError(f"client {client.name!r} has labels that are not {wrong}")
    if count < 2:
        raise DataError("there is one class only; there is nothing to learn")
    return count


def _groups(
    clients: Sequence[ClientRows], groups: Mapping[str, Sequence[Hashable]] | None
) -> dict[str, tuple[Hashable, ...]]:
    frames = [client.groups for client in clients if client.groups is not None]
    attributes = list(frames[0].columns) if groups is None else list(groups)
    for client, frame in zip(clients, frames, strict=True):
        if sorted(frame.columns) != sorted(attributes):
            raise DataError(
                f"client {client.name!r} has the sensitive attributes {sorted(frame.columns)}, expected "
                f"{sorted(attributes)}"
            )
    agreed: dict[str, tuple[Hashable, ...]] = {}
    for attribute in attributes:
        if groups is not None:
            values = list(groups[attribute])
        else:
            values = list(pd.factorize(pd.concat([frame[attribute] for frame in frames]), sort=True)[1])
        if len(values) < 2:
            raise DataError(f"sensitive attribute {attribute!r} has one group only ({values}); it needs two or more")
        agreed[attribute] = tuple(values)
    return agreed
