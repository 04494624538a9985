"""The tasks of the FairFedAvgALM tables: Adult, digits with a sensitive colour, and CelebA where its folder is given.

The test rows of a task are the same in every run, and nothing is chosen by looking at them: settings were chosen on the
validation rows, which no client trains on. A run's seed draws which of the other rows are used, who gets them, and
the first weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.data import PartyEncoder, load
from evenhand.data.images import Bytes, as_floats
from evenhand.errors import InputError, MissingExtraError
from evenhand.horizontal.problem import ClientRows, Single
from evenhand_reproductions.data.biased import Mark, biased_digits
from evenhand_reproductions.data.celeba import load_celeba
from evenhand_reproductions.data.clients import dirichlet_clients, rows_of_clients
from evenhand_reproductions.data.digits import load_digit_images
from evenhand_reproductions.data.images import ImageDataset
from evenhand_reproductions.settings import SETS

# Shares of the (label, group) cells. As in Adult and CelebA one group has fewer positives: 1 in 10 of those in red,
# half of those in green. Where groups are alike, 1 in 10 of the red and 9 in 10 of the green.
CELLS: Final[dict[str, dict[tuple[int, str], float]]] = {
    "biased-digits": {(-1, "red"): 0.45, (1, "red"): 0.05, (-1, "green"): 0.25, (1, "green"): 0.25},
    "symmetric-digits": {(-1, "red"): 0.45, (1, "red"): 0.05, (-1, "green"): 0.05, (1, "green"): 0.45},
}
CELLS["framed-digits"] = {
    (label, {"red": "dark frame", "green": "bright frame"}[group]): share
    for (label, group), share in CELLS["biased-digits"].items()
}
LABEL_NOISE: Final = 0.15
# Fixes the test and validation rows of every run.
_SPLIT_SEED: Final = 0


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Rows with labels ±1 and the name of each row's group.

    Attributes
    ----------
    features
        Numbers, or pictures as bytes, of which only those that are used become numbers.
    """

    features: Single | Bytes
    labels: Integers
    groups: pd.Series

    @property
    def inputs(self) -> Single:
        """What a network is given."""
        features: Any = self.features
        return as_floats(features) if features.dtype == np.uint8 else features

    def take(self, chosen: Integers) -> TaskRows:
        return TaskRows(self.features[chosen], self.labels[chosen], self.groups.iloc[chosen].reset_index(drop=True))

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """A task: rows that clients may get, rows to choose settings by, rows to report on, and the network.

    Attributes
    ----------
    network
        As `train_clients` takes it.
    description
        What the rows and the network are, in a sentence.
    """

    name: str
    pool: TaskRows
    validation: TaskRows
    test: TaskRows
    network: Any
    description: str
    cells: Mapping[tuple[int, str], float] | None = None

    def deal(self, seed: int, *, clients: int, rows: int, alpha: float) -> list[ClientRows]:
        """N clients of `rows` rows each (fewer if there are not enough), labels skewed by Dirichlet(α)."""
        chosen = self.pool.take(_drawn(self.pool, self.cells, clients * rows, np.random.default_rng([seed, 1])))
        numbers = dirichlet_clients(chosen.labels, clients, alpha, seed)
        return [
            ClientRows(f"client{place:02d}", part.inputs, part.labels.astype(np.float64), part.groups.to_frame())
            for place, part in enumerate(map(chosen.take, rows_of_clients(numbers, clients)))
        ]


def load_task(name: str, source: Path | None = None) -> TrainingTask:
    if name not in _LOADERS:
        raise InputError(f"FairFedAvgALM's tables have no set {name!r}; there is {', '.join(_LOADERS)}")
    return _LOADERS[name](source)


# -- Adult


def _adult(source: Path | None) -> TrainingTask:
    data = load("adult", source=source)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(data.frame))
    parts = [np.sort(part) for part in np.split(order, [5_222, 10_222])]
    encoder = PartyEncoder().fit(data.frame.iloc[parts[2]])
    labels = np.where(data.label == data.positive, 1, -1).astype(np.int64)
    groups = data.sensitive.iloc[:, 0].rename("group")

    def rows(part: Integers) -> TaskRows:
        features: Any = encoder.transform(data.frame.iloc[part])
        dense = np.asarray(features.toarray() if hasattr(features, "toarray") else features, dtype=np.float32)
        return TaskRows(dense, labels[part], groups.iloc[part].reset_index(drop=True))

    test, validation, pool = map(rows, parts)
    return TrainingTask(
        "adult",
        pool,
        validation,
        test,
        "linear",
        f"Adult: {len(data.frame):,} rows × {pool.features.shape[1]} encoded features, income above 50K, sensitive "
        f"sex; {len(test):,} test and {len(validation):,} validation rows that no client has. Logistic regression.",
    )


# -- digits


def _digits(source: Path | None, *, name: str) -> TrainingTask:
    digits = load_digit_images(source=source)
    # Groups are independent of labels here; the cells' shares are drawn afterwards.
    mark: Mark = "frame" if name == "framed-digits" else "colour"
    made = biased_digits(digits, agreement=0.5, label_noise=LABEL_NOISE, mark=mark, seed=_SPLIT_SEED)
    cells = CELLS[name]
    pool, test = _image_rows(made.train), _image_rows(made.test)
    generator = np.random.default_rng(_SPLIT_SEED)
    held = generator.permutation(len(pool)) < len(pool) // 5
    validation, pool = pool.take(np.flatnonzero(held)), pool.take(np.flatnonzero(~held))
    validation = validation.take(_drawn(validation, cells, 4_000, generator))
    test = test.take(_drawn(test, cells, 4_000, generator))
    shares = ", ".join(f"{100 * share:.0f} % {group} {label:+d}" for (label, group), share in cells.items())
    shape = pool.features.shape[1:]
    side = shape[-1]
    return TrainingTask(
        name,
        pool,
        validation,
        test,
        partial(small_convolutions, shape),
        f"{SETS[name]}: pictures of {side} × {side} from {digits.source}, label +1 if the digit is 5 or more, "
        f"{100 * LABEL_NOISE:.0f} % of the labels wrong; {shares}; {len(test):,} test and {len(validation):,} "
        "validation rows that no client has. Two convolutions of 16 and 24 channels and a linear layer.",
        cells,
    )


def small_convolutions(shape: tuple[int, ...], outputs: int = 1) -> Any:
    """A network that trains in seconds, for pictures of (channels, height, width).

    Groups of channels are normalised within a picture. Batch normalisation would average over a client's labels, of
    which skewed clients have few.
    """
    try:
        from torch import nn
    except ImportError as error:
        raise MissingExtraError("Training on pictures", "torch") from error
    side = shape[-1] // 4
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 4, stride=4),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.GroupNorm(4, 24),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * side * side, outputs),
    )


# -- CelebA


def _celeba(source: Path | None) -> TrainingTask:
    named = os.environ.get("EVENHAND_DATA")
    if source is None and not named:
        raise InputError("celeba is not fetched: give a folder that holds celeba/img_align_celeba with --source")
    faces = load_celeba((source or Path(str(named))) / "celeba", limit=40_000)
    pool, validation, test = (_image_rows(faces.take(np.flatnonzero(faces.parts == part))) for part in range(3))
    for part, what in ((validation, "valid"), (test, "test")):
        if len(part) == 0:
            raise InputError(f"celeba has no faces of part {what!r}: its folder needs list_eval_partition.txt")
    return TrainingTask(
        "celeba",
        pool,
        validation,
        test,
        "resnet18",
        f"{faces.description} 128 × 128 pixels; the publisher's {len(test):,} test and {len(validation):,} validation "
        "rows. The paper's ResNet-18.",
    )


# -- rows


def _image_rows(images: ImageDataset) -> TaskRows:
    groups = pd.Series(np.array(images.group_names, dtype=object)[images.groups], name="group").astype(str)
    return TaskRows(images.images, 2 * images.labels - 1, groups)


def _drawn(
    rows: TaskRows, cells: Mapping[tuple[int, str], float] | None, wanted: int, generator: np.random.Generator
) -> Integers:
    """Draw rows without replacement, in the cells' shares if there are any; fewer if there are not enough."""
    if cells is None:
        return np.sort(generator.permutation(len(rows))[:wanted]).astype(np.int64)
    inside = {
        (label, group): generator.permutation(np.flatnonzero((rows.labels == label) & (rows.groups == group)))
        for label, group in cells
    }
    most = min(wanted, *(int(len(inside[cell]) / share) for cell, share in cells.items()))
    return np.sort(np.concatenate([inside[cell][: round(most * share)] for cell, share in cells.items()]))


_LOADERS: Final[Mapping[str, Callable[[Path | None], TrainingTask]]] = {
    "adult": _adult,
    "biased-digits": partial(_digits, name="biased-digits"),
    "symmetric-digits": partial(_digits, name="symmetric-digits"),
    "framed-digits": partial(_digits, name="framed-digits"),
    "celeba": _celeba,
}
