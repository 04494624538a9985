"""Noise that nobody else can subtract: in one process it comes from the job's seed, which everybody knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.problem import Protection, Single, noise_shares


@dataclass(frozen=True, repr=False)
class SecretNoise:
    """A protection whose noise depends on a secret of the client's own.

    With the same secret a round that is gone through again after an interruption sends what it had sent: nothing is
    released twice.
    """

    inner: Protection
    secret: bytes

    @property
    def shares(self) -> int:
        return noise_shares(self.inner)

    def protect(
        self, delta_weights: Single, delta_multipliers: Array, rng: np.random.Generator
    ) -> tuple[Single, Array]:
        # What is drawn here differs from round to round, and everybody can work it out; the secret nobody can.
        public = rng.integers(2**32, size=4)
        words = np.frombuffer(self.secret, dtype=np.uint32)
        own = np.random.Generator(np.random.Philox(np.random.SeedSequence([*map(int, words), *map(int, public)])))
        return self.inner.protect(delta_weights, delta_multipliers, own)
