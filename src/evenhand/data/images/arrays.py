"""Labelled pictures, and what is done to a batch of them before a model sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.errors import DataError, InputError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]


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


def as_floats(images: Bytes) -> Floats:
    """Scale bytes to the interval from 0 to 1."""
    return images.astype(np.float32) / np.float32(255)


def centre_crop(images: Bytes, size: int) -> Bytes:
    """Cut the middle `size` × `size` out of each picture: imSitu's test pictures, 224 of 256."""
    height, width = _room(images, size)
    top, left = height // 2, width // 2
    return images[..., top : top + size, left : left + size]


def random_crop(images: Bytes, size: int, generator: np.random.Generator) -> Bytes:
    """Cut `size` × `size` out of each picture at its own random place: imSitu's training pictures, 224 of 256."""
    height, width = _room(images, size)
    tops = generator.integers(height, size=len(images), endpoint=True)
    lefts = generator.integers(width, size=len(images), endpoint=True)
    cut = np.empty((*images.shape[:-2], size, size), dtype=images.dtype)
    for k, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        cut[k] = images[k, ..., top : top + size, left : left + size]
    return cut


def _room(images: Bytes, size: int) -> tuple[int, int]:
    height, width = images.shape[-2:]
    if not 1 <= size <= min(height, width):
        raise InputError(f"a crop of {size} does not fit pictures of {height} × {width}")
    return height - size, width - size
