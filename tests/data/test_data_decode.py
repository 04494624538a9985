"""Decoding of picture files: exact pixels, a cache that is whole or not there, and corrupt files named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from evenhand.data.images import DecodedImages, decode_images
from evenhand.errors import DataError, InputError, MissingExtraError


def write_jpeg(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (178, 218)) -> Path:
    """A picture of one colour, which JPEG keeps to within a few levels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, quality=95)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_jpeg(tmp_path / "faces" / f"{k}.jpg", (40 * k, 100, 250 - 40 * k)) for k in range(5)]


def _decode(files: list[Path], tmp_path: Path, **options: Any) -> DecodedImages:
    return decode_images(files, cache=tmp_path / "cache", name="faces", size=options.pop("size", 16), **options)


def test_pixels_come_out_as_they_went_in(files: list[Path], tmp_path: Path) -> None:
    decoded = _decode(files, tmp_path, crop=178)
    assert decoded.pixels.shape == (5, 3, 16, 16)
    assert decoded.pixels.dtype == np.uint8
    assert isinstance(decoded.pixels, np.memmap)
    assert not decoded.pixels.flags.writeable
    assert decoded.kept.tolist() == list(range(5))
    expected = np.array([[40 * k, 100, 250 - 40 * k] for k in range(5)])
    assert np.abs(decoded.pixels.mean(axis=(2, 3)) - expected).max() < 4


def test_the_middle_is_cut_out_before_resizing(tmp_path: Path) -> None:
    """White above and below the middle square must not shine in."""
    picture = Image.new("RGB", (178, 218), (255, 255, 255))
    picture.paste((0, 0, 0), (0, 20, 178, 198))
    picture.save(tmp_path / "face.png")
    assert _decode([tmp_path / "face.png"], tmp_path, crop=178).pixels.max() == 0
    assert _decode([tmp_path / "face.png"], tmp_path).pixels.max() > 100


def test_resizing_is_antialiased(tmp_path: Path) -> None:
    """Every fine stripe counts: without antialiasing a few would be picked out."""
    stripes = np.zeros((128, 128, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    pixels = _decode([tmp_path / "stripes.png"], tmp_path, size=8).pixels
    assert np.abs(pixels.astype(float) - 127.5).max() < 4


def test_grey_pictures_become_three_channels(tmp_path: Path) -> None:
    Image.new("L", (20, 20), 77).save(tmp_path / "grey.png")
    assert np.unique(_decode([tmp_path / "grey.png"], tmp_path).pixels).tolist() == [77]


def test_the_second_time_nothing_is_decoded(files: list[Path], tmp_path: Path) -> None:
    first = _decode(files, tmp_path)
    calls: list[tuple[int, int]] = []
    again = _decode(files, tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == []
    np.testing.assert_array_equal(first.pixels, again.pixels)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_changed_files_are_decoded_again(files: list[Path], tmp_path: Path) -> None:
    before = _decode(files, tmp_path).pixels
    write_jpeg(files[2], (0, 0, 0))
    os.utime(files[2], ns=(1, 1))
    after = _decode(files, tmp_path).pixels
    assert before[2].max() > 50
    assert after[2].max() < 10
    assert _decode(files, tmp_path, size=8).pixels.shape[-1] == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a picture", "cannot identify image file"), (None, "smaller than the 178 × 178"), (b"", "cannot identify")],
)
def test_corrupt_pictures_are_named_or_counted(
    files: list[Path], tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is None:
        write_jpeg(files[3], (9, 9, 9), size=(100, 218))
    else:
        files[3].write_bytes(content)
    with pytest.raises(DataError, match=rf"3\.jpg is not a usable picture: .*{message}.*on_corrupt='skip'"):
        _decode(files, tmp_path, crop=178)
    assert list((tmp_path / "cache").iterdir()) == [], "a decoding that failed leaves nothing"
    decoded = _decode(files, tmp_path, crop=178, on_corrupt="skip")
    assert decoded.kept.tolist() == [0, 1, 2, 4]
    assert list(decoded.skipped) == [str(files[3])]
    assert decoded.pixels.shape == (4, 3, 16, 16)
    assert decoded.pixels[3, 0].mean() == pytest.approx(160, abs=4), "rows close up"
    with pytest.raises(DataError, match=r"3\.jpg is not a usable picture"):
        _decode(files, tmp_path, crop=178)


def test_a_truncated_jpeg_is_corrupt(files: list[Path], tmp_path: Path) -> None:
    files[1].write_bytes(files[1].read_bytes()[:-300])
    with pytest.raises(DataError, match=r"1\.jpg is not a usable picture: image file is truncated"):
        _decode(files, tmp_path)


def test_a_missing_file_is_noticed_before_decoding(files: list[Path], tmp_path: Path) -> None:
    files[4].unlink()
    calls: list[int] = []
    with pytest.raises(DataError, match=r"4\.jpg is not a usable picture: No such file"):
        _decode(files, tmp_path, progress=lambda done, total: calls.append(done))
    assert calls == []
    assert _decode(files, tmp_path, on_corrupt="skip").kept.tolist() == [0, 1, 2, 3]


def test_nothing_usable(files: list[Path], tmp_path: Path) -> None:
    for file in files:
        file.write_bytes(b"")
    with pytest.raises(DataError, match="none of the 5 pictures could be decoded"):
        _decode(files, tmp_path, on_corrupt="skip")
    with pytest.raises(DataError, match="no pictures to decode"):
        _decode([], tmp_path)
    with pytest.raises(InputError, match="on_corrupt is 'error' or 'skip', not 'ignore'"):
        _decode(files, tmp_path, on_corrupt="ignore")


KILLED = """
import os, sys
from pathlib import Path
from evenhand.data.images import decode_images
files = sorted(Path(sys.argv[1]).iterdir())
decode_images(files, cache=Path(sys.argv[2]), name="faces", size=4, progress=lambda done, total: os._exit(9))
"""


def test_a_killed_decoding_is_not_taken_for_whole(tmp_path: Path) -> None:
    one = write_jpeg(tmp_path / "faces" / "0000.jpg", (200, 10, 10), size=(8, 8)).read_bytes()
    for k in range(1, 600):
        (tmp_path / "faces" / f"{k:04}.jpg").write_bytes(one)
    cache = tmp_path / "cache"
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "faces", cache], check=False)
    assert done.returncode == 9
    left = list(cache.iterdir())
    assert [path.name.startswith(".faces-") for path in left] == [True], "it was killed in the middle of its work"

    files = sorted((tmp_path / "faces").iterdir())
    calls: list[tuple[int, int]] = []
    decoded = decode_images(
        files, cache=cache, name="faces", size=4, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(256, 600), (512, 600), (600, 600)]
    assert decoded.pixels.shape == (600, 3, 4, 4)
    assert (decoded.pixels[:, 0] > 180).all()


def test_what_a_killed_decoding_left_is_cleared_later(tmp_path: Path, files: list[Path]) -> None:
    _decode(files, tmp_path)
    (place,) = (tmp_path / "cache").iterdir()
    old, fresh = place.with_name(f".{place.name}.old"), place.with_name(f".{place.name}.fresh")
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "pixels.npy").write_bytes(b"half")
    os.utime(old / "pixels.npy", (0, 0))
    (place / "index.json").unlink()
    (place / "pixels.npy").unlink()
    place.rmdir()
    _decode(files, tmp_path)
    assert fresh.exists(), "another process may still be at it"
    assert not old.exists()


@pytest.mark.parametrize("damage", ["empty", "truncated", "other"])
def test_damage_in_the_cache_is_named(files: list[Path], tmp_path: Path, damage: str) -> None:
    _decode(files, tmp_path)
    (place,) = (tmp_path / "cache").iterdir()
    pixels = place / "pixels.npy"
    if damage == "other":
        np.save(pixels, np.zeros((4, 3, 16, 16), dtype=np.uint8))
    else:
        pixels.write_bytes(b"" if damage == "empty" else pixels.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{place} cannot be read: .*; remove that folder"):
        _decode(files, tmp_path)


def test_a_cache_that_cannot_be_written(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*; name another cache"):
        _decode(files, tmp_path)


FULL = """
import resource, sys
from pathlib import Path
from evenhand.data.images import decode_images
from evenhand.errors import DataError
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    decode_images(sorted(Path(sys.argv[1]).iterdir()), cache=Path(sys.argv[2]), name="faces", size=64)
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be limited in size there")
def test_a_disk_that_fills_up(files: list[Path], tmp_path: Path) -> None:
    command = [sys.executable, "-B", "-c", FULL, files[0].parent, tmp_path / "cache"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"cannot write to {tmp_path / 'cache'}: File too large; name another cache\n"
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_process_may_be_faster(files: list[Path], tmp_path: Path) -> None:
    """A second decoding of the same files, run from within the first, leaves one whole array."""
    inner: list[DecodedImages] = []
    outer = _decode(files, tmp_path, progress=lambda done, total: inner.append(_decode(files, tmp_path)))
    assert len(inner) == 1
    np.testing.assert_array_equal(outer.pixels, inner[0].pixels)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_without_pillow(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evenhand\[torch\]'"):
        _decode(files, tmp_path)
