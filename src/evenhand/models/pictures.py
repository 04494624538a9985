"""Rows of pictures that stay bytes in memory or on disk: a file of many gigabytes is read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.data.images import Bytes, as_floats, centre_crop, random_crop
from evenhand.errors import DataError

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Pictures:
    """Some rows of an array of pictures, copied only when needed.

    As an array (``np.asarray``) they are the model's input: numbers from 0 to 1, the middle of each picture.

    Parameters
    ----------
    images
        (n, channels, height, width) bytes, perhaps memory-mapped.
    rows
        The rows to use; None is all.
    crop
        Side of the square that the model sees: at random places for training, the middle otherwise. None takes whole
        pictures.
    """

    images: Bytes
    rows: Integers | None = None
    crop: int | None = None
    dtype: np.dtype[np.uint8] = field(default=np.dtype(np.uint8), init=False)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(
                f"pictures are bytes of shape (n, channels, height, width), not {self.images.dtype} of "
                f"{self.images.shape}"
            )
        if self.crop is not None:
            centre_crop(self.images[:0], self.crop)

    def __len__(self) -> int:
        return len(self.images) if self.rows is None else len(self.rows)

    @property
    def ndim(self) -> int:
        return 4

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape that a model sees."""
        sides = self.images.shape[2:] if self.crop is None else (self.crop, self.crop)
        return (len(self), self.images.shape[1], *sides)

    def _whole(self, places: slice | npt.NDArray[Any]) -> Bytes:
        found = np.asarray(self.images[places if self.rows is None else self.rows[places]])
        # torch warns about arrays that may not be written to.
        return found if found.flags.writeable else found.copy()

    def __getitem__(self, places: slice | npt.NDArray[Any]) -> Bytes:
        """Return these rows for evaluation."""
        found = self._whole(places)
        return np.ascontiguousarray(found if self.crop is None else centre_crop(found, self.crop))

    def drawn(self, places: npt.NDArray[Any], generator: np.random.Generator) -> Bytes:
        """Return these rows for training."""
        found = self._whole(places)
        return found if self.crop is None else random_crop(found, self.crop, generator)

    def take(self, places: npt.NDArray[Any]) -> Pictures:
        """Select rows."""
        chosen = np.flatnonzero(places) if places.dtype == np.bool_ else places
        return replace(self, rows=chosen if self.rows is None else self.rows[chosen])

    def blocks(self) -> Iterator[Bytes]:
        """Return all rows in batches, in the order of the array."""
        for first in range(0, len(self), _BLOCK):
            yield self._whole(slice(first, first + _BLOCK))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = as_floats(self[:])
        return found if dtype is None else found.astype(dtype)
