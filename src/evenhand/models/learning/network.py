"""Networks as learners: perceptrons, and torch modules of the party's own.

A part of the rows that the party was sent a response for tells it when to stop, and which weight decay to take. The
network of the next round begins with the hidden layers of the one before, and with a last layer of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from evenhand.arrays import Array, Integers
from evenhand.errors import DataError, InputError
from evenhand.models.learning.base import Encoding, Fitted, PartyLearner, SavedLearner
from evenhand.models.learning.modules import ModuleFit, ModuleTraining, torch_here
from evenhand.models.learning.perceptron import PerceptronFit, PerceptronTraining
from evenhand.protocol.job import Count, Positive

FEWEST_ROWS = 100
"""Rows below which none are set aside: the network is trained for a quarter of the epochs."""
DECAYS = (0.01, 0.3)
"""Weight decays of which the first round chooses one."""
STEPS, SMALLEST_BATCH = 20, 16
"""Steps of an epoch, at least, unless a step would have fewer rows than that."""
ONE_AT_A_TIME = Lock()
"""Held while a module is trained: torch's generator and its threads are those of the whole process."""
LAST_RATE = 0.05
"""Share of the learning rate that is left at the end of the schedule."""


@dataclass(frozen=True)
class NetworkLearner(PartyLearner):
    """A network, trained by AdamW on the party's own rows.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of a perceptron. With several `features` the last one has that width, and
        each unit's part of the output is sent.
    module
        A torch module that gives each row a number, or a function that makes one for a number of columns; None is a
        perceptron, which needs no torch. With several `features` the parts of its last linear layer are sent.
    columns
        How the party's columns reach the network, as in `RegressorLearner`. ``"raw"`` needs `read`.
    read
        Takes some of the party's rows, and returns what the module takes of them, as an array or a tensor. It is called
        for each batch, so that images or texts that the table only names are read from disk as they are needed.
    epochs
        Most passes over the rows in a round.
    batch
        Most rows of a step; there are fewer where an epoch would have less than 20 steps.
    learning_rate
        Of AdamW, at first; it falls to almost zero over the epochs.
    patience
        Epochs without progress on the rows set aside after which training ends with the best epoch.
    aside
        Share of the rows that decide when to stop, and which weight decay to take. With 0 the network is trained for
        all epochs, with the smallest weight decay; so it is for a quarter of them where there are fewer than 100 rows.
    device
        Device of torch, for instance ``"cuda"``.
    """

    hidden: tuple[Count, ...] = (32, 16)
    module: Any = None
    columns: Encoding = "standard"
    read: Any = None
    epochs: Count = 20
    batch: Count = 256
    learning_rate: Positive = 3e-3
    patience: Count = 4
    aside: Annotated[float, Field(ge=0.0, le=0.5)] = 0.15
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.module is not None and not callable(self.module):
            raise InputError(f"module is {self.module!r}; give a torch.nn.Module, or a function that makes one")
        if self.read is not None and not callable(self.read):
            raise InputError(f"read is {self.read!r}; give a function from some rows to what the module takes of them")
        if self.module is None and (self.read is not None or self.device != "cpu"):
            raise InputError("read and device are for a module; without one the network is a perceptron in numpy")
        if (self.columns == "raw") != (self.read is not None):
            raise InputError("columns = 'raw' and read belong together: read takes rows of the party's table")

    @property
    def encoding(self) -> Encoding:  # type: ignore[override]
        return self.columns

    def fit(
        self, columns: Any, response: Array, weight: Array, *, warm: Fitted | None, seed: int, features: int
    ) -> Fitted:
        with self._alone(seed):
            rows = _Rows(columns, response, weight, np.random.default_rng(seed), self.aside, self._read)
            decay = getattr(warm, "decay", None)
            tried: list[tuple[float, int, PerceptronTraining | ModuleTraining]] = []
            for one in (DECAYS if len(rows.held) else DECAYS[:1]) if decay is None else (decay,):
                network = self._begun(columns.shape[1], features, one, seed, warm)
                tried.append((self._train(network, rows, np.random.default_rng(seed)), len(tried), network))
            network = min(tried, key=lambda found: found[:2])[2]
        if isinstance(network, ModuleTraining):
            return network.fitted(features > 1, self._read)
        return network.fitted(features > 1)

    def _read(self, columns: Any) -> Any:
        return (self.read or dense)(columns)

    @contextmanager
    def _alone(self, seed: int) -> Iterator[None]:
        """Hold torch's threads and its generator, which a module needs."""
        if self.module is None:
            with np.errstate(all="ignore"):
                yield
            return
        torch_here()
        from evenhand.models.networks import seeded
        from evenhand.models.stacked import one_thread

        with ONE_AT_A_TIME, one_thread(), seeded(seed):
            yield

    def _begun(
        self, width: int, features: int, decay: float, seed: int, warm: Fitted | None
    ) -> PerceptronTraining | ModuleTraining:
        """Return the network that a round begins with."""
        if self.module is not None:
            state = warm.module.state_dict() if isinstance(warm, ModuleFit) else None
            return ModuleTraining(self.module, decay, self.device, seed, width, state)
        widths = (*self.hidden[:-1], features) if features > 1 else self.hidden
        before = warm if isinstance(warm, PerceptronFit) else None
        return PerceptronTraining((width, *widths, 1), decay, np.random.default_rng([seed, 1]), before)

    def _train(self, network: PerceptronTraining | ModuleTraining, rows: _Rows, random: np.random.Generator) -> float:
        """Train the network, and leave it at its best epoch; return the loss of the rows set aside."""
        few = not len(rows.held) and self.aside > 0.0
        epochs = max(1, self.epochs // 4) if few else self.epochs
        size = min(self.batch, max(SMALLEST_BATCH, len(rows.used) // STEPS))
        best, kept, futile = np.inf, None, 0
        for epoch in range(epochs):
            fall = 0.5 * (1.0 + np.cos(np.pi * epoch / epochs))
            rate = self.learning_rate * (LAST_RATE + (1.0 - LAST_RATE) * fall)
            for some in rows.batches(random.permutation(rows.used), size):
                network.step(*some, rate)
            if not len(rows.held):
                continue
            now = rows.loss(network, 16 * self.batch)
            if now < best:
                best, futile, kept = now, 0, network.kept()
            else:
                futile += 1
            if futile >= self.patience:
                break
        if kept is not None:
            network.restore(kept)
        return best

    def load(self, saved: SavedLearner) -> Fitted:
        if saved.format != ModuleFit.format or self.module is None:
            raise DataError(f"a model of kind {saved.format!r} is none of this learner's")
        return ModuleFit.of(saved, self.module, self.device, self._read)


class _Rows:
    """The rows of a fit, and which of them are set aside; they are read batch by batch."""

    def __init__(
        self, columns: Any, response: Array, weight: Array, random: np.random.Generator, share: float, read: Any
    ) -> None:
        shown = random.permutation(np.flatnonzero(weight > 0.0))
        aside = int(share * len(shown)) if len(shown) >= FEWEST_ROWS else 0
        self.held, self.used = shown[:aside], shown[aside:]
        # Sparse columns become dense, and raw ones are read, in each batch only.
        self._columns = dense(columns) if isinstance(columns, np.ndarray) else columns
        self._response, self._weight = response.astype(np.float32), weight.astype(np.float32)
        self._read = read

    def batches(self, places: Integers, size: int) -> Iterator[tuple[Any, Any, Any]]:
        """Yield what the network takes of some rows, their responses and their weights."""
        for start in range(0, len(places), size):
            some = places[start : start + size]
            rows = self._columns.iloc[some] if hasattr(self._columns, "iloc") else self._columns[some]
            yield self._read(rows), self._response[some], self._weight[some]

    def loss(self, network: PerceptronTraining | ModuleTraining, size: int) -> float:
        """Return the weighted mean squared error of the rows set aside."""
        total = 0.0
        for rows, response, weight in self.batches(self.held, size):
            total += float(weight @ (network.given(rows) - response) ** 2)
        return total / float(self._weight[self.held].sum())


def dense(columns: Any) -> Any:
    """Return columns as an array of single precision."""
    found = columns.toarray() if sp.issparse(columns) else np.asarray(columns)
    return np.ascontiguousarray(found, dtype=np.float32)
