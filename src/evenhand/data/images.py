"""Open pictures as memory-mapped bytes: a .npy or .safetensors file, or a folder of picture files; scale and crop them.

Picture files are decoded once (needs Pillow, from the `torch` extra). The array is built in a temporary folder and
renamed when it is complete, so that a decoding that was killed is never taken for a finished one. The folder's name is
a digest of the files (names, sizes, times) and the options, so that changed files are decoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.data.public.fetch import default_cache
from evenhand.errors import DataError, InputError, MissingExtraError

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


OnCorrupt = Literal["error", "skip"]
Progress = Callable[[int, int], None]

_PIXELS: Final = "pixels.npy"
_INDEX: Final = "index.json"
_BATCH: Final = 256
# A decoding writes every few seconds. A folder that has not changed for an hour belongs to one that was killed.
_LEFT_BEHIND_SECONDS: Final = 3600.0


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Pictures as bytes.

    Attributes
    ----------
    pixels : (n, 3, size, size), memory-mapped and read-only.
    kept : the place of each picture among the files given.
    skipped : the reason why a file was left out, by file.
    """

    pixels: Bytes
    kept: Integers
    skipped: dict[str, str]


class _Corrupt(Exception):
    """A file that cannot be decoded to the picture wanted; the text says why."""


def decode_images(
    files: Sequence[Path],
    *,
    cache: Path,
    name: str,
    size: int,
    crop: int | None = None,
    on_corrupt: OnCorrupt = "error",
    progress: Progress | None = None,
) -> DecodedImages:
    """Decode files to RGB, crop the middle, resize, and keep the result in the cache.

    Parameters
    ----------
    files : the pictures.
    cache : folder under which the array is kept.
    name : first part of the array's folder.
    size : height and width of the result; resized bilinearly with antialiasing, as Pillow does.
    crop : first crop a square of this size from the middle; None resizes the whole picture.
    on_corrupt : a missing, damaged or too small picture is an ``"error"`` that names it, or is left out (``"skip"``).
    progress : called with the number of files done and of all files.
    """
    if on_corrupt not in ("error", "skip"):
        raise InputError(f"on_corrupt is 'error' or 'skip', not {on_corrupt!r}")
    if not files:
        raise DataError("there are no pictures to decode")
    image_module = _pillow()
    place = cache / f"{name}-{_fingerprint(files, size, crop, on_corrupt)}"
    if not (place / _INDEX).is_file():
        pictures = _pictures(image_module, files, size, crop)
        _build(place, lambda folder: _write(folder, pictures, len(files), size, on_corrupt, progress))
    decoded = _open(place, files)
    if on_corrupt == "error" and decoded.skipped:
        file, reason = next(iter(decoded.skipped.items()))
        raise _refusal(file, reason)
    return decoded


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("decoding pictures", "torch") from error
    return Image


def _fingerprint(files: Sequence[Path], size: int, crop: int | None, on_corrupt: OnCorrupt) -> str:
    digest = hashlib.sha256(f"{size} {crop}".encode())
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            # Checked before anything is decoded: decoding all files before this one may take hours.
            if on_corrupt == "error":
                raise _refusal(str(file), error.strerror or str(error)) from error
            digest.update(f"\n{file.name} missing".encode())
        else:
            digest.update(f"\n{file.name} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _pictures(
    image_module: Any, files: Sequence[Path], size: int, crop: int | None
) -> Iterator[tuple[Path, Bytes | _Corrupt]]:
    for file in files:
        try:
            yield file, _decode(image_module, file, size, crop)
        except _Corrupt as reason:
            yield file, reason


def _decode(image_module: Any, file: Path, size: int, crop: int | None) -> Bytes:
    try:
        with image_module.open(file) as opened:
            picture = opened.convert("RGB")
    # Pillow's plug-ins also raise SyntaxError and ValueError on files they cannot read.
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise _Corrupt(str(error) or type(error).__name__) from error
    width, height = picture.size
    if crop is not None:
        if crop > min(width, height):
            raise _Corrupt(f"it is {width} × {height}, smaller than the {crop} × {crop} to be cut out of it")
        left, top = round((width - crop) / 2), round((height - crop) / 2)
        # Crop before resizing: pixels outside the square must have no influence.
        picture = picture.crop((left, top, left + crop, top + crop))
    small = picture.resize((size, size), image_module.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(small, dtype=np.uint8), -1, 0)


def _build(place: Path, write: Callable[[Path], None]) -> None:
    """Write a folder and move it to its place, complete or not at all."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _clear_left_behind(place)
        # The temporary folder is removed if anything fails; on success it has been moved.
        with tempfile.TemporaryDirectory(
            dir=place.parent, prefix=f".{place.name}.", ignore_cleanup_errors=True
        ) as name:
            partial = Path(name)
            write(partial)
            _move(partial, place)
    except OSError as error:
        raise DataError(f"cannot write to {place.parent}: {error.strerror or error}; name another cache") from error


def _write(
    folder: Path,
    pictures: Iterator[tuple[Path, Bytes | _Corrupt]],
    total: int,
    size: int,
    on_corrupt: OnCorrupt,
    progress: Progress | None,
) -> None:
    kept, skipped = [], {}
    with (folder / _PIXELS).open("wb") as stream:
        _write_header(stream, total, size)
        for k, (file, picture) in enumerate(pictures):
            if not isinstance(picture, _Corrupt):
                stream.write(picture.tobytes())
                kept.append(k)
            elif on_corrupt == "error":
                raise _refusal(str(file), str(picture))
            else:
                skipped[str(file)] = str(picture)
            if progress is not None and ((k + 1) % _BATCH == 0 or k + 1 == total):
                progress(k + 1, total)
        _write_header(stream, len(kept), size)
    (folder / _INDEX).write_text(json.dumps({"kept": kept, "skipped": skipped}), encoding="utf-8")


def _move(partial: Path, place: Path) -> None:
    try:
        os.rename(partial, place)
    except OSError:
        # Where another process was faster, its array is as good as this one.
        if not (place / _INDEX).is_file():
            raise


def _write_header(stream: IO[bytes], rows: int, size: int) -> None:
    """Write the array's header; numpy pads it so that its length does not depend on the number of rows."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (rows, 3, size, size)}
    stream.seek(0)
    np.lib.format.write_array_header_1_0(stream, header)


def _open(place: Path, files: Sequence[Path]) -> DecodedImages:
    try:
        index = json.loads((place / _INDEX).read_text(encoding="utf-8"))
        kept = np.asarray(index["kept"], dtype=np.int64)
        skipped: dict[str, str] = index["skipped"]
        # An array without rows cannot be mapped.
        pixels = np.lib.format.open_memmap(place / _PIXELS, mode="r") if kept.size else None
        if pixels is not None and len(pixels) != kept.size:
            raise ValueError(f"{len(pixels):,} pictures where {kept.size:,} are listed")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the decoded pictures in {place} cannot be read: {error}; remove that folder") from error
    if pixels is None:
        raise DataError(f"none of the {len(files):,} pictures could be decoded; the first is {files[0]}")
    return DecodedImages(pixels, kept, skipped)


def _clear_left_behind(place: Path) -> None:
    for folder in place.parent.glob(f".{place.name}.*"):
        with suppress(OSError):
            newest = max((file.stat().st_mtime for file in folder.iterdir()), default=folder.stat().st_mtime)
            if time.time() - newest > _LEFT_BEHIND_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _refusal(file: str, reason: str) -> DataError:
    return DataError(f"{file} is not a usable picture: {reason}; replace it, or skip such files: on_corrupt='skip'")


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
