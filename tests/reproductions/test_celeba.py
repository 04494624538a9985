"""A small CelebA folder, laid out as the real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.celeba import load_celeba

NAMES = ["Attractive", "Bald", "Male", "Smiling"]
VALUES = np.array([[1, -1, 1, 1], [-1, 1, 1, -1], [1, -1, -1, 1], [-1, -1, -1, -1], [1, 1, 1, -1], [-1, -1, 1, 1]])
PARTS = [0, 0, 0, 1, 2, 2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "celeba"
    (root / "img_align_celeba").mkdir(parents=True)
    lines = [str(len(VALUES)), " ".join(NAMES) + " "]
    for k, values in enumerate(VALUES):
        file = f"{k + 1:06}.jpg"
        Image.new("RGB", (178, 218), (30 * k, 128, 0)).save(root / "img_align_celeba" / file, quality=95)
        # The published list pads its columns.
        lines.append(f"{file} " + " ".join(f"{value:>2}" for value in values))
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    _write_parts(root, PARTS)
    return root


def _write_parts(root: Path, parts: list[int]) -> None:
    lines = [f"{k + 1:06}.jpg {part}" for k, part in enumerate(parts)]
    (root / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")


def test_as_in_the_paper(folder: Path, tmp_path: Path) -> None:
    data = load_celeba(folder, cache=tmp_path / "cache")
    assert data.images.shape == (6, 3, 128, 128)
    assert data.labels.tolist() == [1, 0, 1, 0, 1, 0]
    assert data.groups.tolist() == [1, 1, 0, 0, 1, 1]
    assert data.parts.tolist() == PARTS
    assert data.label_names == ("not Attractive", "Attractive")
    assert data.group_names == ("not Male", "Male")
    assert data.skipped == ()
    assert np.abs(data.images[:, 0].mean(axis=(1, 2)) - 30 * np.arange(6)).max() < 4


def test_other_attributes_and_parts(folder: Path, tmp_path: Path) -> None:
    data = load_celeba(folder, target="Smiling", sensitive="Bald", parts=("test",), cache=tmp_path)
    assert (data.labels.tolist(), data.groups.tolist(), data.parts.tolist()) == ([0, 1], [1, 0], [2, 2])
    first = load_celeba(folder, limit=1, cache=tmp_path)
    assert first.parts.tolist() == [0, 1, 2]
    assert first.labels.tolist() == [1, 0, 1]


def test_without_the_list_of_parts(folder: Path, tmp_path: Path) -> None:
    (folder / "list_eval_partition.txt").unlink()
    assert load_celeba(folder, cache=tmp_path).parts.tolist() == [0] * 6


def test_the_data_cache_serves_when_none_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "mine"))
    load_celeba(folder)
    assert [path.name.split("-")[0] for path in (tmp_path / "mine" / "images").iterdir()] == ["celeba"]


def test_corrupt_faces(folder: Path, tmp_path: Path) -> None:
    (folder / "img_align_celeba" / "000002.jpg").write_bytes(b"noise")
    with pytest.raises(DataError, match=r"000002\.jpg is not a usable picture"):
        load_celeba(folder, cache=tmp_path)
    data = load_celeba(folder, cache=tmp_path, on_corrupt="skip")
    assert data.labels.tolist() == [1, 1, 0, 1, 0], "labels stay with their faces"
    assert data.groups.tolist() == [1, 0, 0, 1, 1]
    assert data.parts.tolist() == [0, 0, 1, 2, 2]
    assert [Path(file).name for file in data.skipped] == ["000002.jpg"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("000003.jpg  1", "000003.jpg  2", "line 5: a file and 4 times 1 or -1 belong here"),
        ("000003.jpg  1", "000003.jpg", "line 5"),
        ("000003.jpg", "../secret.jpg", r"line 5: '../secret\.jpg' is no plain file name"),
        ("6\n", "7\n", "promises 7 faces in its first line, but lists 6"),
        ("Attractive", "Attractiv", r"no attribute 'Attractive' \(there is Attractiv\)"),
    ],
)
def test_a_list_that_is_not_as_published(folder: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    path = folder / "list_attr_celeba.txt"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        load_celeba(folder, cache=tmp_path)


def test_parts_that_are_not_as_published(folder: Path, tmp_path: Path) -> None:
    _write_parts(folder, [0, 0, 3])
    with pytest.raises(DataError, match="line 3: a file and 0, 1 or 2 belong here"):
        load_celeba(folder, cache=tmp_path)
    _write_parts(folder, [0, 0])
    with pytest.raises(DataError, match=r"does not say to which part 4 faces belong, such as 000003\.jpg"):
        load_celeba(folder, cache=tmp_path)


def test_arguments_that_cannot_be(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the label would be the group"):
        load_celeba(folder, target="Male", cache=tmp_path)
    with pytest.raises(InputError, match="one or more of train, valid, test"):
        load_celeba(folder, parts=("training",), cache=tmp_path)
    with pytest.raises(InputError, match="one or more of train, valid, test"):
        load_celeba(folder, parts=(), cache=tmp_path)
    with pytest.raises(InputError, match="limit is 0"):
        load_celeba(folder, limit=0, cache=tmp_path)
    with pytest.raises(DataError, match=r"cannot read .*list_attr_celeba\.txt"):
        load_celeba(tmp_path / "nowhere", cache=tmp_path)
    (folder / "list_attr_celeba.txt").write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        load_celeba(folder, cache=tmp_path)
