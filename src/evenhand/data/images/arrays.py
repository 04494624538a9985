"""Prepare a batch of pictures for a model: scale and crop."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.errors import InputError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]


def as_floats(images: Bytes) -> Floats:
    """Scale bytes to the interval from 0 to 1."""
    return images.astype(np.float32) / np.float32(255)


def centre_crop(images: Bytes, size: int) -> Bytes:
    """Crop the middle `size` × `size` of each picture."""
    height, width = _room(images, size)
    top, left = height // 2, width // 2
    return images[..., top : top + size, left : left + size]


def random_crop(images: Bytes, size: int, generator: np.random.Generator) -> Bytes:
    """Crop `size` × `size` of each picture, at a random place of its own."""
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
