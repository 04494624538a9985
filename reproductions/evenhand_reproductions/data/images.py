"""A labelled set of pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.data.images import Bytes
from evenhand.errors import DataError


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Pictures with a class and a sensitive group each.

    Attributes
    ----------
    name : what the set is called.
    images : (n, channels, height, width) bytes; perhaps memory-mapped, so slice before computing.
    labels : class of each picture, a place in `label_names`.
    groups : sensitive group of each picture, a place in `group_names`.
    parts : 0 for training, 1 for validation and 2 for test, as the publisher divided the set; all 0 where it did not.
    description : where the pictures come from and what was done to them.
    skipped : files that could not be used.
    """

    name: str
    images: Bytes
    labels: Integers
    groups: Integers
    label_names: tuple[str, ...]
    group_names: tuple[str, ...]
    parts: Integers
    description: str
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(f"images are bytes of shape (n, channels, height, width), not {self.images.shape}")
        rows = len(self.images)
        for what, values in (("labels", self.labels), ("groups", self.groups), ("parts", self.parts)):
            if values.shape != (rows,):
                raise DataError(f"{what} have shape {values.shape}, but there are {rows:,} images")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: npt.ArrayLike) -> ImageDataset:
        """Return a set of only these rows, with their pictures read into memory."""
        chosen = np.asarray(rows)
        return replace(
            self,
            images=np.ascontiguousarray(self.images[chosen]),
            labels=self.labels[chosen],
            groups=self.groups[chosen],
            parts=self.parts[chosen],
        )
