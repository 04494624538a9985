"""What leaves a party, on record and under protection."""

from evenhand.privacy.levels import Dealer, Encrypted, Masked
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, SharedGaussian
from evenhand.privacy.record_level import RecordGaussian
from evenhand.protocol.job import RandomizedResponse

__all__ = [
    "ClippedGaussian",
    "Dealer",
    "Encrypted",
    "GaussianNoise",
    "Masked",
    "RandomizedResponse",
    "RecordGaussian",
    "SharedGaussian",
]
