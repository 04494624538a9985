"""Pictures as floats, and their crops."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.data.images import as_floats, centre_crop, random_crop
from evenhand.errors import InputError


def _images(rows: int = 6, size: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, size=(rows, 3, size, size), dtype=np.uint8)


def test_floats_lie_between_0_and_1() -> None:
    floats = as_floats(np.array([[0, 51, 255]], dtype=np.uint8))
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats, [[0, 0.2, 1]], rtol=1e-6)


def test_centre_crop_takes_the_middle() -> None:
    images = _images()
    np.testing.assert_array_equal(centre_crop(images, 4), images[:, :, 2:6, 2:6])
    np.testing.assert_array_equal(centre_crop(images, 8), images)


def test_random_crops_are_windows_at_every_place() -> None:
    ramp = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8).repeat(500, axis=0)
    crops = random_crop(ramp, 6, np.random.default_rng(1))
    corners = crops[:, 0, 0, 0]
    assert set(corners.tolist()) == {8 * top + left for top in range(3) for left in range(3)}
    window = np.arange(6)[:, None] * 8 + np.arange(6)
    np.testing.assert_array_equal(crops[:, 0], corners[:, None, None] + window)
    np.testing.assert_array_equal(crops, random_crop(ramp, 6, np.random.default_rng(1)))


@pytest.mark.parametrize("size", [0, 9])
def test_crops_that_do_not_fit(size: int) -> None:
    with pytest.raises(InputError, match=f"a crop of {size} does not fit pictures of 8 × 8"):
        centre_crop(_images(), size)
    with pytest.raises(InputError):
        random_crop(_images(), size, np.random.default_rng(0))
