"""Peak memory of training on as many pictures as CelebA's training part has: 162,770 of 3 × 64 × 64 bytes.

    python benchmarks/pictures_memory.py [pictures]

The pictures are made up and lie in a file of 2 GB; the model is a small convolutional one, for a round over ten clients
with a fairness constraint. The file is memory-mapped, or read into memory first; each in a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from evenhand.solvers import FairFedAvgALM

PICTURES, SHAPE = 162_770, (3, 64, 64)


def make(path: Path, pictures: int) -> None:
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, "w+", np.uint8, (pictures, *SHAPE))
    for first in range(0, pictures, 4096):
        file[first : first + 4096] = rng.integers(0, 256, file[first : first + 4096].shape, dtype=np.uint8)
    file.flush()


def train(path: str, how: str) -> None:
    from torch import nn

    from evenhand import HorizontalClassifier, LossParity

    images = np.load(path, mmap_mode="r" if how == "mapped" else None)
    rng = np.random.default_rng(1)
    labels, groups = rng.integers(0, 2, (2, len(images)))
    module = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.Conv2d(8, 8, 5, 3), nn.Flatten(), nn.Linear(128, 1))
    model = HorizontalClassifier(
        solver=FairFedAvgALM(batch_size=128, local_epochs=1, step=0.05, report_every=0),
        constraint=LossParity(0.05),
        model=module,
        max_rounds=1,
        random_state=0,
    )
    started = time.process_time()
    model.fit(images, labels, sensitive_features=groups, clients=np.arange(len(images)) % 10)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{how:9}  peak memory {peak:.2f} GB, of {images.nbytes / 1e9:.2f} GB of pictures; "
        f"{time.process_time() - started:.0f} s of processor time"
    )


def main(pictures: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pictures.npy"
        make(path, pictures)
        for how in ("mapped", "in memory"):
            subprocess.run([sys.executable, __file__, "train", str(path), how], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else PICTURES)
