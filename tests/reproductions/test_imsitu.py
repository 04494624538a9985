"""A small imSitu folder, laid out as the real one, with the WordNet numbers and glosses of the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.imsitu import FEMALE, MALE, GenderRule, load_imsitu, noun_genders, picture_gender

MAN, WOMAN, BOY, SPECIES, CHESSMAN, DOG = (
    "n10287213",
    "n10787470",
    "n10285313",
    "n02472293",
    "n03716327",
    "n02084071",
)
SPACE = {
    "verbs": {"cooking": {"order": ["agent", "food", "place"]}},
    "nouns": {
        MAN: {"gloss": ["man", "adult male"], "def": "an adult person who is male"},
        WOMAN: {"gloss": ["woman", "adult female"], "def": "an adult female person"},
        BOY: {"gloss": ["male child", "boy"], "def": "a youthful male person"},
        SPECIES: {"gloss": ["homo", "man", "human being", "human"], "def": "any living member of Hominidae"},
        CHESSMAN: {"gloss": ["man", "piece"], "def": "game equipment"},
        DOG: {"gloss": ["dog"], "def": "a member of the genus Canis"},
    },
}
RULE = GenderRule(min_images=2)


def _entry(verb: str, *agents: str) -> dict[str, Any]:
    return {"verb": verb, "frames": [{"agent": agent, "place": ""} for agent in agents]}


TRAIN = {
    "cooking_1.jpg": _entry("cooking", WOMAN, WOMAN, WOMAN),
    "cooking_2.jpg": _entry("cooking", MAN, MAN, SPECIES),
    "cooking_3.jpg": _entry("cooking", MAN, WOMAN, MAN),
    "cooking_4.jpg": _entry("cooking", DOG, "", MAN),
    "driving_1.jpg": _entry("driving", MAN, MAN, MAN),
    "driving_2.jpg": _entry("driving", MAN, "", MAN),
    "driving_3.jpg": _entry("driving", WOMAN, WOMAN, DOG),
    "shaving_1.jpg": _entry("shaving", MAN, MAN, MAN),
    "shaving_2.jpg": _entry("shaving", MAN, MAN, MAN),
    "barking_1.jpg": _entry("barking", DOG, DOG, DOG),
    "raining_1.jpg": {"verb": "raining", "frames": [{"place": ""}] * 3},
}
DEV = {"cooking_5.jpg": _entry("cooking", MAN, MAN, MAN), "shaving_3.jpg": _entry("shaving", WOMAN, WOMAN, WOMAN)}
TEST = {"driving_4.jpg": _entry("driving", WOMAN, WOMAN, WOMAN)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "imsitu"
    (root / "of500_images_resized").mkdir(parents=True)
    (root / "imsitu_space.json").write_text(json.dumps(SPACE))
    for name, part in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        (root / f"{name}.json").write_text(json.dumps(part))
        for k, file in enumerate(part):
            Image.new("RGB", (200 + 40 * k, 300), (20 * k, 60, 90)).save(root / "of500_images_resized" / file)
    return root


def test_verbs_genders_and_parts(folder: Path, tmp_path: Path) -> None:
    data = load_imsitu(folder, rule=RULE, cache=tmp_path / "cache")
    assert data.label_names == ("cooking", "driving")
    assert data.group_names == ("man", "woman")
    # Training: cooking 1 and 2, driving 1, 2 and 3; then cooking 5 and driving 4. Shaving has men only.
    assert data.labels.tolist() == [0, 0, 1, 1, 1, 0, 1]
    assert data.groups.tolist() == [1, 0, 0, 0, 1, 0, 1]
    assert data.parts.tolist() == [0, 0, 0, 0, 0, 1, 2]
    assert data.images.shape == (7, 3, 256, 256)
    expected = [20 * list(TRAIN).index(f"{name}.jpg") for name in ("cooking_1", "cooking_2", "driving_1", "driving_2")]
    assert np.abs(data.images[:4, 0].mean(axis=(1, 2)) - expected).max() < 4


def test_verbs_by_name(folder: Path, tmp_path: Path) -> None:
    data = load_imsitu(folder, verbs=["shaving", "cooking"], cache=tmp_path)
    assert data.label_names == ("cooking", "shaving")
    assert data.labels.tolist() == [0, 0, 1, 1, 0, 1]
    with pytest.raises(DataError, match="has the verbs barking"):
        load_imsitu(folder, verbs=["barking", "cooking"], cache=tmp_path)
    with pytest.raises(DataError, match="none given"):
        load_imsitu(folder, verbs=[], cache=tmp_path)


def test_thresholds(folder: Path, tmp_path: Path) -> None:
    three = load_imsitu(folder, rule=GenderRule(min_votes=3, min_images=1), verbs=["driving"], cache=tmp_path)
    assert three.groups.tolist() == [0, 1]
    one = load_imsitu(folder, rule=GenderRule(min_votes=1, min_images=3), cache=tmp_path)
    # cooking 4 now counts; cooking 3, where annotators differ, never does.
    assert (one.labels == 0).sum() == 4
    with pytest.raises(DataError, match="no verb has 44 training pictures with both genders; lower min_images"):
        load_imsitu(folder, cache=tmp_path)
    with pytest.raises(DataError, match="no verb has"):
        load_imsitu(folder, rule=GenderRule(min_images=2, min_per_gender=2), cache=tmp_path)
    with pytest.raises(InputError, match="at least 1"):
        GenderRule(min_votes=0)


def test_glosses_tell_the_gender() -> None:
    assert noun_genders(SPACE, RULE) == {MAN: MALE, WOMAN: FEMALE}
    children = GenderRule(male_words={"man", "boy"}, female_words={"woman", "girl"})
    assert noun_genders(SPACE, children) == {MAN: MALE, BOY: MALE, WOMAN: FEMALE}
    with pytest.raises(DataError, match="no noun"):
        noun_genders(SPACE, GenderRule(female_words={"queen"}))


@given(agents=st.lists(st.sampled_from([MAN, WOMAN, DOG, "", None]), max_size=5), min_votes=st.integers(1, 3))
def test_a_picture_has_a_gender_when_annotators_agree(agents: list[str | None], min_votes: int) -> None:
    frames = [{} if agent is None else {"agent": agent} for agent in agents]
    men, women = agents.count(MAN), agents.count(WOMAN)
    expected = MALE if men >= min_votes and not women else FEMALE if women >= min_votes and not men else None
    assert picture_gender(frames, {MAN: MALE, WOMAN: FEMALE}, min_votes) == expected


def test_corrupt_pictures(folder: Path, tmp_path: Path) -> None:
    (folder / "of500_images_resized" / "driving_1.jpg").unlink()
    with pytest.raises(DataError, match=r"driving_1\.jpg is not a usable picture"):
        load_imsitu(folder, rule=RULE, cache=tmp_path)
    data = load_imsitu(folder, rule=RULE, cache=tmp_path, on_corrupt="skip")
    assert data.labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert data.groups.tolist() == [1, 0, 0, 1, 0, 1]
    assert [Path(file).name for file in data.skipped] == ["driving_1.jpg"]


def test_pictures_elsewhere(folder: Path, tmp_path: Path) -> None:
    (folder / "of500_images_resized").rename(tmp_path / "pictures")
    assert len(load_imsitu(folder, images=tmp_path / "pictures", rule=RULE, cache=tmp_path)) == 7


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train.json", "{", r"cannot read .*train\.json"),
        ("dev.json", "[]", r"dev\.json does not hold an object"),
        ("test.json", '{"a.jpg": {"verb": "x"}}', '\'a.jpg\' needs a "verb" and a list of "frames"'),
        ("test.json", '{"a.jpg": {"verb": "x", "frames": ["man"]}}', "'a.jpg' needs a \"verb\""),
        ("test.json", '{"../a.jpg": {"verb": "x", "frames": []}}', r"'\.\./a\.jpg' is no plain file name"),
        ("imsitu_space.json", '{"nouns": []}', "does not look as published"),
        ("imsitu_space.json", '{"nouns": {"n1": {}}}', "does not look as published"),
    ],
)
def test_files_that_are_not_as_published(folder: Path, tmp_path: Path, file: str, content: str, message: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=message):
        load_imsitu(folder, rule=RULE, cache=tmp_path)
