"""Small folders of pictures, laid out as imSitu and CelebA are published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

MAN, WOMAN = "n10287213", "n10787470"


def make_imsitu(root: Path, verbs: Sequence[str], each: int = 1) -> Path:
    """As many pictures of each verb and gender for each part; returns the folder that `load_imsitu` takes."""
    rng = np.random.default_rng(0)
    pictures = root / "of500_images_resized"
    pictures.mkdir(parents=True)
    glosses = {MAN: {"gloss": ["man", "adult male"]}, WOMAN: {"gloss": ["woman", "adult female"]}}
    (root / "imsitu_space.json").write_text(json.dumps({"verbs": {}, "nouns": glosses}))
    for part in ("train", "dev", "test"):
        entries = {}
        for verb in verbs:
            for noun in (MAN, WOMAN):
                for number in range(each):
                    file = f"{verb}_{part}_{noun}_{number}.jpg"
                    entries[file] = {"verb": verb, "frames": [{"agent": noun}] * 3}
                    Image.fromarray(rng.integers(0, 255, (20, 16, 3), dtype=np.uint8)).save(pictures / file)
        (root / f"{part}.json").write_text(json.dumps(entries))
    return root


def make_celeba(root: Path, each: Sequence[int]) -> Path:
    """As many faces of each (attractive, male) in each of the three parts; returns the folder of `load_celeba`."""
    rng = np.random.default_rng(0)
    faces = root / "img_align_celeba"
    faces.mkdir(parents=True)
    attributes, parts = [], []
    for part, count in enumerate(each):
        for attractive in (-1, 1):
            for male in (-1, 1):
                for _ in range(count):
                    file = f"{len(parts) + 1:06}.jpg"
                    Image.fromarray(rng.integers(0, 255, (218, 178, 3), dtype=np.uint8)).save(faces / file)
                    attributes.append(f"{file} {attractive} {male}")
                    parts.append(f"{file} {part}")
    lines = [str(len(parts)), "Attractive Male", *attributes]
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root
