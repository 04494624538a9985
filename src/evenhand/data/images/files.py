"""Open pictures as memory-mapped bytes: a .npy or .safetensors file, or a folder of picture files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from evenhand.data.images.arrays import Bytes
from evenhand.data.images.decode import decode_images
from evenhand.data.public.fetch import default_cache
from evenhand.errors import DataError

_LARGEST_HEADER: Final = 1 << 24


def open_images(path: Path, files: Sequence[str] | None = None, size: int | None = None) -> Bytes:
    """Return bytes of shape (n, channels, height, width), memory-mapped.

    Parameters
    ----------
    path
        A .npy file; a .safetensors file with one tensor, or one that is called ``images``; or a folder.
    files
        For a folder, the picture files in the order of the rows. They are decoded the first time only, and kept in the
        data cache.
    size
        For a folder, the height and width to resize pictures to.
    """
    if path.is_dir():
        if files is None or size is None:
            raise DataError(f"{path} is a folder: say with file and size in [data] which column names the pictures")
        if strange := [one for one in files if Path(one).is_absolute() or ".." in Path(one).parts]:
            raise DataError(f"{strange[0]!r} leads out of the folder {path}")
        return decode_images(
            [path / one for one in files], cache=default_cache() / "images", name=path.name, size=size
        ).pixels
    if not path.is_file():
        raise DataError(f"there is no file or folder {path} of pictures")
    try:
        if path.suffix == ".npy":
            found: Bytes = np.load(path, mmap_mode="r")
        elif path.suffix == ".safetensors":
            found = _mapped_tensor(path)
        else:
            raise DataError(f"{path}: pictures are a .npy or .safetensors file, or a folder of picture files")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} holds no pictures: {error}") from error
    if found.dtype != np.uint8 or found.ndim != 4:
        raise DataError(f"{path} holds {found.dtype} of shape {found.shape}, not bytes (n, channels, height, width)")
    return found


def _mapped_tensor(path: Path) -> Bytes:
    """Map one tensor of a safetensors file: a length in eight bytes, a header in JSON, then the numbers."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > _LARGEST_HEADER:
            raise ValueError("its header is too long")
        tensors = json.loads(stream.read(length))
    tensors.pop("__metadata__", None)
    name = "images" if "images" in tensors or len(tensors) != 1 else next(iter(tensors))
    found = tensors[name]
    if found["dtype"] != "U8":
        raise ValueError(f"{name!r} holds {found['dtype']}, not bytes (U8)")
    first, end = found["data_offsets"]
    shape = tuple(int(one) for one in found["shape"])
    if end - first != int(np.prod(shape, dtype=np.int64)) or first < 0 or 8 + length + end > path.stat().st_size:
        raise ValueError(f"{name!r} has the shape {shape}, which its bytes do not fit")
    return np.memmap(path, np.uint8, "r", 8 + length + first, shape)
