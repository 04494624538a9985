"""Damage to files: cut short, bits turned, pieces moved."""

from __future__ import annotations

import random


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with one kind of damage, which may happen to leave it as it was."""
    if not content:
        return content
    kind = rng.choice(["cut", "bits", "extremes", "moved", "removed", "end"])
    changed = bytearray(content)
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    if kind == "bits":
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == "extremes":
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 127, 128, 255])
    elif kind == "end":
        # Where formats such as Parquet say how much of what there is.
        for _ in range(rng.randint(1, 4)):
            changed[-rng.randint(1, min(400, len(changed)))] = rng.randrange(256)
    else:
        start = rng.randrange(len(changed))
        end = min(len(changed), start + rng.randint(1, 40))
        source = rng.randrange(len(changed))
        changed[start:end] = b"" if kind == "removed" else content[source : source + end - start]
    return bytes(changed)
