"""Labelled sets of pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenhand.data.images import as_floats
from evenhand.errors import DataError
from evenhand_reproductions.data.images import ImageDataset


def _images(rows: int = 6, size: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, size=(rows, 3, size, size), dtype=np.uint8)


def _dataset(rows: int = 6) -> ImageDataset:
    numbers = np.arange(rows, dtype=np.int64)
    return ImageDataset("test", _images(rows), numbers % 2, numbers % 3 % 2, ("no", "yes"), ("a", "b"), 0 * numbers, "")


def test_taking_rows_keeps_everything_together() -> None:
    data = _dataset()
    some = data.take([4, 1])
    assert len(some) == 2
    np.testing.assert_array_equal(some.images, data.images[[4, 1]])
    assert some.labels.tolist() == [0, 1]
    assert some.groups.tolist() == [1, 1]
    assert some.label_names == data.label_names


def test_shapes_that_do_not_fit() -> None:
    data = _dataset()
    with pytest.raises(DataError, match=r"groups have shape \(5,\), but there are 6 images"):
        replace(data, groups=data.groups[1:])
    for images in (data.images[0], as_floats(data.images)):
        with pytest.raises(DataError, match="images are bytes of shape"):
            replace(data, images=images)
