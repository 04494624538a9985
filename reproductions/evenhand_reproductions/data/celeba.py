"""CelebA as published: a folder of aligned faces and the lists of their attributes and parts."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.data.images import OnCorrupt, Progress, decode_images
from evenhand.data.public.fetch import default_cache
from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.images import ImageDataset

_FACES: Final = "img_align_celeba"
_ATTRIBUTES: Final = "list_attr_celeba.txt"
_PARTS: Final = "list_eval_partition.txt"
PARTS: Final = ("train", "valid", "test")
_CROP: Final = 178
_SIZE: Final = 128


def load_celeba(
    folder: Path | str,
    *,
    target: str = "Attractive",
    sensitive: str = "Male",
    parts: Sequence[str] = PARTS,
    limit: int | None = None,
    cache: Path | str | None = None,
    on_corrupt: OnCorrupt = "error",
    progress: Progress | None = None,
) -> ImageDataset:
    """Load CelebA as FairFedAvgALM does (Section 5.1): the middle 178 × 178 of each face, resized to 128 × 128.

    Labels and groups are 1 where the attribute is 1 and 0 where it is −1. The pictures are decoded the first time
    only; see :mod:`evenhand.data.images`. The whole set takes 10 GB there.

    Parameters
    ----------
    folder : holds ``img_align_celeba/*.jpg``, ``list_attr_celeba.txt`` and, where it is to be had,
        ``list_eval_partition.txt``; without the latter every face counts as training.
    target, sensitive : attributes, by their names in the list.
    parts : which of the publisher's parts to load.
    limit : at most as many faces of each part, the first ones in the list. The paper trains on about 28,000.
    cache : folder for the decoded pictures; else the data cache.
    on_corrupt : a picture that cannot be read is an ``"error"``, or is left out and counted (``"skip"``).
    progress : called with the number of pictures done and the number of all pictures.
    """
    folder = Path(folder)
    if target == sensitive:
        raise InputError(f"target and sensitive are both {target}; the label would be the group")
    table = _read_attributes(folder / _ATTRIBUTES, (target, sensitive))
    numbers = _read_parts(folder / _PARTS, table.index)
    chosen = _chosen(numbers, parts, limit)
    decoded = decode_images(
        [folder / _FACES / file for file in table.index[chosen]],
        cache=Path(cache) if cache is not None else default_cache() / "images",
        name="celeba",
        size=_SIZE,
        crop=_CROP,
        on_corrupt=on_corrupt,
        progress=progress,
    )
    rows = chosen[decoded.kept]
    return ImageDataset(
        name="celeba",
        images=decoded.pixels,
        labels=table[target].to_numpy(dtype=np.int64)[rows],
        groups=table[sensitive].to_numpy(dtype=np.int64)[rows],
        label_names=(f"not {target}", target),
        group_names=(f"not {sensitive}", sensitive),
        parts=numbers[rows],
        description=f"CelebA, {rows.size:,} faces ({', '.join(parts)}); label {target}, sensitive {sensitive}. "
        "Z. Liu, P. Luo, X. Wang, X. Tang. Deep Learning Face Attributes in the Wild. ICCV 2015. "
        "Terms: non-commercial research only, as its publishers state.",
        skipped=tuple(decoded.skipped),
    )


def _read_attributes(path: Path, wanted: tuple[str, str]) -> pd.DataFrame:
    """Read two attributes as 0 and 1, indexed by file. Line 1 counts the faces, line 2 names the attributes."""
    lines = _lines(path)
    names = lines[1].split() if len(lines) > 1 else []
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=3) or names[:5]
            raise DataError(f"{path} has no attribute {name!r} (there is {', '.join(close) or 'none'})")
    places = [names.index(name) + 1 for name in wanted]
    values: dict[str, list[int]] = {}
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        found = [fields[place] for place in places] if len(fields) == len(names) + 1 else []
        if not found or not set(found) <= {"1", "-1"}:
            raise DataError(f"{path}, line {number}: a file and {len(names)} times 1 or -1 belong here, not {line!r}")
        values[_plain_name(fields[0], path, number)] = [int(value == "1") for value in found]
    if lines[0].strip() != str(len(values)):
        raise DataError(f"{path} promises {lines[0].strip()} faces in its first line, but lists {len(values):,}")
    return pd.DataFrame.from_dict(values, orient="index", columns=list(wanted))


def _read_parts(path: Path, files: pd.Index) -> Integers:
    if not path.is_file():
        return np.zeros(len(files), dtype=np.int64)
    found: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        fields = line.split()
        if len(fields) != 2 or fields[1] not in ("0", "1", "2"):
            raise DataError(f"{path}, line {number}: a file and 0, 1 or 2 belong here, not {line!r}")
        found[fields[0]] = int(fields[1])
    missing = [file for file in files if file not in found]
    if missing:
        raise DataError(f"{path} does not say to which part {len(missing):,} faces belong, such as {missing[0]}")
    return np.array([found[file] for file in files], dtype=np.int64)


def _chosen(numbers: Integers, parts: Sequence[str], limit: int | None) -> Integers:
    unknown = [part for part in parts if part not in PARTS]
    if isinstance(parts, str) or unknown or not parts:
        raise InputError(f"parts is {parts!r}; it lists one or more of {', '.join(PARTS)}")
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; it is at least 1, or None for no limit")
    rows = [np.flatnonzero(numbers == PARTS.index(part))[:limit] for part in dict.fromkeys(parts)]
    return np.sort(np.concatenate(rows)).astype(np.int64)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}; CelebA's folder holds {_FACES}/ and {_ATTRIBUTES}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError(f"{path} is empty")
    return lines


def _plain_name(file: str, path: Path, number: int) -> str:
    # A list from elsewhere must not lead out of the folder.
    if Path(file).name != file or file in (".", ".."):
        raise DataError(f"{path}, line {number}: {file!r} is no plain file name")
    return file
