"""Hold what each participant of a horizontal run has of its own: rows of data, model code, and noise on updates.

Random numbers depend only on a seed or secret, the participant, the round and the purpose. So the order of clients, the
set of other clients, and an interruption of the run do not change them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.groups import Groups, crossed_name, group_codes, groups_frame, with_crossing
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import DataError
from evenhand.models.pictures import Pictures
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.record_level import RecordGaussian
from evenhand.protocol.terms import check_name

Single = npt.NDArray[np.float32]
"""Weights and their changes in single precision, as in the papers."""

_SINGLE = (np.float16, np.float32, np.uint8, np.bool_)
"""Types that single precision holds without loss."""


@dataclass(frozen=True, eq=False, init=False)
class ClientRows(LabelledRows):
    """Rows of data of one client, or of the server.

    Parameters
    ----------
    features
        (n, columns), dense or CSR, or (n, channels, height, width) for images, in their own precision. Images stored
        as bytes are read lazily (`Pictures`), and models see numbers from 0 to 1. Averaging solvers train in single
        precision.
        Solvers of programs keep double precision: under constraints on exact rates, rows lie right at the decision
        boundary, and rounding would move some of them across it.
    labels
        ±1, or class indices 0, 1, ... for more than two classes. A client may have no rows of a class.
    groups
        One column for each sensitive attribute, in any container that `evenhand.constraints.groups_frame` takes. A
        client may have no rows of a group.
    missing
        Whether features may have missing values (NaN). Only trees support them.
    categorical
        Columns that hold category codes. Only trees take these without encoding.
    sample_weight
        Weight of each row in means, such as its exposure; None weighs all rows alike. Only programs whose targets are
        numbers support it.
    """

    name: str = field(kw_only=True)
    features: Matrix | Pictures = field(kw_only=True)
    missing: bool = field(kw_only=True)
    categorical: tuple[int, ...] = field(kw_only=True)
    # Horizontal solvers do not support it.
    answers: None = field(default=None, init=False)

    def __init__(
        self,
        name: str,
        features: Any,
        labels: Any,
        groups: Any = None,
        missing: bool = False,
        categorical: tuple[int, ...] = (),
        sample_weight: Array | None = None,
    ) -> None:
        check_name("client", name)
        try:
            features = _as_numbers(features)
            labels = np.asarray(labels, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"client {name!r}: features and labels must be numbers ({error})") from error
        if labels.ndim != 1 or features.ndim < 2 or features.shape[0] != len(labels):
            raise DataError(
                f"client {name!r}: features of shape {features.shape} and labels of shape {labels.shape}; "
                "give one row of features and one label for each sample"
            )
        if len(labels) == 0:
            raise DataError(f"client {name!r} has no rows; leave it out of the run")
        if bad := 0 if isinstance(features, Pictures) else _unknown(features, missing):
            raise DataError(f"client {name!r}: {bad} rows have features that are not finite numbers; fill or drop them")
        if not np.isfinite(labels).all():
            raise DataError(f"client {name!r}: some labels are missing; fill or drop those rows")
        if sample_weight is not None:
            check_weights(f"client {name!r}", sample_weight, len(labels))
        try:
            frame = groups_frame(groups, len(labels))
        except DataError as error:
            raise DataError(f"client {name!r}: {error}") from error
        super().__init__(labels, frame, sample_weight=sample_weight)
        own = {"name": name, "features": features, "missing": missing, "categorical": categorical}
        for field_name, value in own.items():
            object.__setattr__(self, field_name, value)

    def with_features(self, features: Any) -> ClientRows:
        """Return the rows with other features."""
        return replace(self, features=features)

    def crossed(self, name: str) -> ClientRows:
        """Return the rows with the crossing of the sensitive attributes added, under the agreed name."""
        assert self.groups is not None
        try:
            return replace(self, groups=with_crossing(self.groups, name))
        except DataError as error:
            raise DataError(f"client {self.name!r}: {error}") from error

    def agreed(self, groups: Groups) -> ClientRows:
        """Return the rows with the agreed crossing, if there is one, and refuse values outside the agreed groups."""
        crossing = crossed_name(groups)
        known = self if crossing is None else self.crossed(crossing)
        known.codes(groups)
        return known

    def codes(self, groups: Groups) -> dict[str, Integers]:
        """Return the group of each row for each attribute, as an index into the agreed values."""
        assert self.groups is not None
        try:
            return group_codes(self.groups, groups)
        except DataError as error:
            raise DataError(f"client {self.name!r}: {error}") from error


def check_weights(owner: str, weights: Array, rows: int) -> None:
    """Refuse weights that are not one finite number of zero or more for each row, or all zero."""
    right = weights.shape == (rows,) and np.isfinite(weights).all() and (weights >= 0.0).all() and weights.any()
    if not right:
        raise DataError(
            f"{owner}: sample weights must be {rows} finite numbers of zero or more, not all zero; their shape is "
            f"{weights.shape}"
        )


def _as_numbers(features: Any) -> Matrix | Pictures:
    if isinstance(features, Pictures):
        return features
    if sp.issparse(features):
        return sp.csr_array(features, dtype=np.float64)
    features = np.asarray(features)
    if features.dtype == np.uint8 and features.ndim == 4:
        return Pictures(features)
    single = features.dtype in _SINGLE
    return np.ascontiguousarray(features, np.float32) if single else np.ascontiguousarray(features, np.float64)


def _unknown(features: Matrix, missing: bool) -> int:
    """Count the rows with features that are not finite; `missing` allows NaN as a missing value."""
    if sp.issparse(features):
        # Most tables are finite, and to see that takes one pass over the entries.
        if np.isfinite(features.data).all():
            return 0
        features = features.toarray()
    known = np.isfinite(features) | (np.isnan(features) & missing)
    return len(features) - int(known.reshape(len(features), -1).all(axis=1).sum())


@dataclass(frozen=True, eq=False)
class ModelStart:
    """Starting point of training, instead of the model's own initial weights.

    Averaging solvers use all fields; without multipliers they start from zeros. Solvers of programs use only the
    weights and recompute their multipliers.
    """

    weights: Single | Array
    statistics: Single
    multipliers: Array = field(default_factory=lambda: np.zeros(0))


class UpdateMechanism(Protocol):
    """Transformation of a client's update before it is sent, for example clipping and Gaussian noise."""

    def protect(
        self, delta_weights: Single, delta_multipliers: Array, rng: np.random.Generator
    ) -> tuple[Single, Array]: ...


UpdateNoise: TypeAlias = UpdateMechanism | RecordGaussian
"""Noise that is added to a finished update, or at every step of training."""


def noise_shares(update_noise: UpdateNoise | None) -> int:
    """Return the number of clients that share the noise of a sum; 1 if each update has all of it, or none."""
    return int(getattr(update_noise, "shares", 1))


@dataclass(frozen=True, eq=False)
class HorizontalServerData:
    """Data and code that the server of a run has of its own.

    Attributes
    ----------
    rows
        Rows of data. If given, global constraints are over these rows.
    network
        A `torch.nn.Module`, or a function that returns one, if the terms name no model. All participants have this
        code.
    start
        Starting point of training.
    device
        Device of the torch computations, as for clients.
    """

    rows: ClientRows | None = None
    network: Any = None
    start: ModelStart | None = None
    device: str = "cpu"


Summed: TypeAlias = Callable[[Sequence[str]], None]
"""Records the names in a masked sum before it is opened; refuses sums that can be subtracted from earlier ones."""
Once: TypeAlias = Callable[[str, bytes], None]
"""Records a question and its content before it is answered; refuses another content for the same question."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """Data and code that a client of a run has of its own.

    Attributes
    ----------
    rows
        The client's rows of data.
    network
        The same code as the server's.
    update_noise
        Transformation of updates before they are sent.
    device
        Device of the torch computations, for example ``"cuda"``, for models other than perceptrons. Each participant
        chooses its own.
    secret
        Secret seed of `update_noise`, known to this client only. None uses the job's seed, which all participants
        know; that is safe only in a simulation.
    session
        Secrets of the client in this attempt, if clients have agreed on keys.
    once
        Record of answered questions that outlives the process, so that a resumed run gets no second answer. None keeps
        none.
    summed
        Called with the names of the clients in a masked sum before it is opened; it raises an error to refuse.
    """

    rows: ClientRows
    network: Any = None
    update_noise: UpdateNoise | None = None
    device: str = "cpu"
    secret: bytes | None = None
    session: Session | None = None
    once: Once | None = None
    summed: Summed | None = None


_PURPOSES = ("batches", "protection", "layers", "participants", "crops")
Purpose = Literal["batches", "protection", "layers", "participants", "crops"]


def generator(seed: int, name: str, round_number: int, purpose: Purpose) -> np.random.Generator:
    """Return the random generator of one participant in one round."""
    who = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, who, round_number, _PURPOSES.index(purpose)])


def secret_generator(
    secret: bytes | None, seed: int, name: str, round_number: int, purpose: Purpose, *asked: npt.NDArray[Any]
) -> np.random.Generator:
    """Return a random generator that only this client can reproduce, if it has a secret.

    Without a secret it is that of `generator`, from the job's seed. A simulation is then reproducible, but everyone who
    knows the seed knows the draws.

    A round that is repeated after an interruption draws the same numbers, so nothing is released twice. `asked` is the
    request that the draws answer. A different request in the same round gets different draws: two answers with the same
    noise would reveal their difference. An honest server never makes such a request.
    """
    if secret is None:
        return generator(seed, name, round_number, purpose)
    sum_of_all = hashlib.blake2b(key=secret, digest_size=16)
    for part in (name, str(round_number), purpose):
        sum_of_all.update(hashlib.blake2b(part.encode()).digest())
    for array in asked:
        sum_of_all.update(hashlib.blake2b(array.tobytes()).digest())
    return np.random.Generator(np.random.Philox(key=int.from_bytes(sum_of_all.digest(), "little")))
