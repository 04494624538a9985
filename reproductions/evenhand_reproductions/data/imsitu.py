"""imSitu as published: pictures of activities, with a gender derived from what annotators called the agent.

FairFedAvgALM (Section 5.2) takes 211 activities and the gender labels of Wang et al. 2019 ("Balanced Datasets Are Not
Enough"), who follow Zhao et al. 2017 ("Men Also Like Shopping"). Both look at the noun in the role of the agent. The
lists Wang et al. published hold 24,301 training, 7,730 validation and 7,669 test pictures of 211 verbs; each verb has
44 to 228 training pictures, with at least one of each gender. The code that made the lists was not published: which
words tell a gender, how many annotators must agree and which verbs stay is **our reconstruction**, with every threshold
an argument. It need not give exactly those lists; pass `verbs` to take the published 211 by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from evenhand.data.images import OnCorrupt, Progress, decode_images
from evenhand.data.public.fetch import default_cache
from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.images import ImageDataset

_SPACE: Final = "imsitu_space.json"
_PARTS: Final = ("train.json", "dev.json", "test.json")
_SIZE: Final = 256
CROP: Final = 224

MALE, FEMALE = 0, 1
MALE_WORDS: Final = frozenset({"man", "adult male"})
FEMALE_WORDS: Final = frozenset({"woman", "adult female"})
# WordNet also calls our species "man", and a chessman.
NEUTRAL_WORDS: Final = frozenset({"homo", "human", "human being", "piece"})


@dataclass(frozen=True)
class GenderRule:
    """When a picture counts as one of a man or of a woman, and which verbs are kept.

    Attributes
    ----------
    male_words, female_words : a noun tells a gender when one of its glosses is one of these words, and none of the
        other gender's or of `neutral_words`. Add "boy" and "girl" to count children.
    min_votes : at least as many annotators (of three) name a gender; all who name one must name the same.
    min_images : a verb is kept if it has at least as many training pictures with a gender. The fewest a verb has
        in the published lists is 44.
    min_per_gender : and at least as many of each gender among them.
    """

    male_words: Collection[str] = MALE_WORDS
    female_words: Collection[str] = FEMALE_WORDS
    neutral_words: Collection[str] = NEUTRAL_WORDS
    min_votes: int = 2
    min_images: int = 44
    min_per_gender: int = 1

    def __post_init__(self) -> None:
        if min(self.min_votes, self.min_images, self.min_per_gender) < 1:
            raise InputError("min_votes, min_images and min_per_gender are at least 1")


@dataclass(frozen=True)
class _Picture:
    file: str
    verb: str
    gender: int
    part: int


def load_imsitu(
    folder: Path | str,
    *,
    images: Path | str = "of500_images_resized",
    rule: GenderRule | None = None,
    verbs: Sequence[str] | None = None,
    cache: Path | str | None = None,
    on_corrupt: OnCorrupt = "error",
    progress: Progress | None = None,
) -> ImageDataset:
    """Load imSitu with verbs as labels and the agent's gender (0 man, 1 woman) as groups.

    Pictures are resized to 256 × 256 (whatever their shape was, as in the publisher's resized copy) and decoded the
    first time only. Training cuts a random 224 × 224 out of each, testing the middle:
    :func:`evenhand.data.images.random_crop`, :func:`evenhand.data.images.centre_crop`.

    Parameters
    ----------
    folder : holds ``imsitu_space.json``, ``train.json``, ``dev.json`` and ``test.json``.
    images : the folder of pictures, inside `folder` or anywhere.
    rule : how genders are read and verbs are chosen; see the module's note on what is a reconstruction.
    verbs : take exactly these verbs instead of those the rule keeps.
    cache : folder for the decoded pictures; else the data cache.
    on_corrupt : a picture that cannot be read is an ``"error"``, or is left out and counted (``"skip"``).
    progress : called with the number of pictures done and the number of all pictures.
    """
    folder = Path(folder)
    rule = rule or GenderRule()
    genders = noun_genders(_read_json(folder / _SPACE), rule)
    pictures = [
        picture
        for part, file in enumerate(_PARTS)
        for picture in _gendered(_read_json(folder / file), genders, rule, part, folder / file)
    ]
    names = _kept_verbs(pictures, rule, verbs)
    places = {verb: k for k, verb in enumerate(names)}
    chosen = [picture for picture in pictures if picture.verb in places]
    decoded = decode_images(
        [folder / images / picture.file for picture in chosen],
        cache=Path(cache) if cache is not None else default_cache() / "images",
        name="imsitu",
        size=_SIZE,
        on_corrupt=on_corrupt,
        progress=progress,
    )
    rows = [chosen[k] for k in decoded.kept]
    return ImageDataset(
        name="imsitu",
        images=decoded.pixels,
        labels=np.array([places[picture.verb] for picture in rows], dtype=np.int64),
        groups=np.array([picture.gender for picture in rows], dtype=np.int64),
        label_names=names,
        group_names=("man", "woman"),
        parts=np.array([picture.part for picture in rows], dtype=np.int64),
        description=f"imSitu, {len(rows):,} pictures of {len(names)} verbs; gender from the agent's noun. "
        "M. Yatskar, L. Zettlemoyer, A. Farhadi. Situation Recognition. CVPR 2016.",
        skipped=tuple(decoded.skipped),
    )


def noun_genders(space: Mapping[str, Any], rule: GenderRule) -> dict[str, int]:
    """Tell the gender of each noun (WordNet number) of ``imsitu_space.json`` whose gloss tells one."""
    nouns = space.get("nouns")
    if not isinstance(nouns, dict) or not all(isinstance(noun, dict) and "gloss" in noun for noun in nouns.values()):
        raise DataError(f'{_SPACE} does not look as published: "nouns" with a "gloss" each are expected in it')
    genders = {}
    for number, noun in nouns.items():
        gloss = {str(word).strip().lower() for word in noun["gloss"]}
        male, female = bool(gloss & set(rule.male_words)), bool(gloss & set(rule.female_words))
        if male != female and not gloss & set(rule.neutral_words):
            genders[number] = FEMALE if female else MALE
    if set(genders.values()) != {MALE, FEMALE}:
        raise DataError(f"no noun of {_SPACE} has a gloss among the words for each gender; check male_words and so on")
    return genders


def picture_gender(frames: Sequence[Mapping[str, str]], genders: Mapping[str, int], min_votes: int) -> int | None:
    """Tell the gender the annotators' frames agree on, or None."""
    votes = Counter(genders[frame["agent"]] for frame in frames if frame.get("agent") in genders)
    if len(votes) != 1:
        return None
    ((gender, count),) = votes.items()
    return gender if count >= min_votes else None


def _gendered(
    annotations: Mapping[str, Any], genders: Mapping[str, int], rule: GenderRule, part: int, path: Path
) -> list[_Picture]:
    pictures = []
    for file, entry in annotations.items():
        try:
            verb, gender = str(entry["verb"]), picture_gender(entry["frames"], genders, rule.min_votes)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f'{path}: {file!r} needs a "verb" and a list of "frames" that map roles to nouns'
            ) from error
        if Path(file).name != file:
            # Annotations from elsewhere must not lead out of the folder.
            raise DataError(f"{path}: {file!r} is no plain file name")
        if gender is not None:
            pictures.append(_Picture(file, verb, gender, part))
    return pictures


def _kept_verbs(pictures: Sequence[_Picture], rule: GenderRule, verbs: Sequence[str] | None) -> tuple[str, ...]:
    counts = Counter((picture.verb, picture.gender) for picture in pictures if picture.part == 0)
    found = sorted({verb for verb, _ in counts})
    if verbs is not None:
        unknown = sorted(set(verbs) - set(found))
        if unknown or not verbs:
            raise DataError(f"no training picture with a gender has the verbs {', '.join(unknown) or '(none given)'}")
        return tuple(sorted(set(verbs)))
    kept = []
    for verb in found:
        of_each = (counts[verb, MALE], counts[verb, FEMALE])
        if sum(of_each) >= rule.min_images and min(of_each) >= rule.min_per_gender:
            kept.append(verb)
    if not kept:
        raise DataError(f"no verb has {rule.min_images} training pictures with both genders; lower min_images")
    return tuple(kept)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}; imSitu publishes {_SPACE}, {', '.join(_PARTS)}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} does not hold an object by name")
    return content
