"""A picture task that is unfair by a known amount and runs anywhere: digits that carry a sensitive mark.

The label is whether the digit is 5 or more (or the digit itself). The group, 0 or 1, is painted as a colour or as a
frame, and agrees with the label's side (5 or more) on a stated share p of the rows: P(group = side) = p. A share η of
the labels is first replaced by wrong ones, so that the shape alone is right on 1 − η of the rows; the mark follows the
replaced label. (With η = 0.25 this is the construction of Arjovsky et al. 2019, "Invariant Risk Minimization".)

Shape and mark are independent given a two-valued label, so with equally many labels of each kind the best possible
classifier believes whichever is right more often: the mark where p > 1 − η, the shape where p < 1 − η. A classifier
that believed the mark on a share q of the rows and the true label on the rest would show (:func:`expected_unfairness`)

    accuracy             1 − q (1 − p)
    equal opportunity    |TPR₁ − TPR₀| = q
    demographic parity   |PPR₁ − PPR₀| = |q + (1 − q) (P(y=1 | s=1) − P(y=1 | s=0))|

so one that looked at nothing but the mark (q = 1) has both gaps at 1 and is right on p of the rows. These are the DP
and EO of FairFedAvgALM, Section 3.2. With π = P(y=1), the difference in the last line is
πp / (πp + (1−π)(1−p)) − π(1−p) / (π(1−p) + (1−π)p), which is 2p − 1 for π = 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from evenhand.arrays import Integers
from evenhand.data.images import Bytes
from evenhand.errors import InputError
from evenhand_reproductions.data.digits import DigitImages
from evenhand_reproductions.data.images import ImageDataset

Mark = Literal["colour", "frame"]

# Red and green of about the same brightness: nothing but the hue tells the groups apart.
_COLOURS: Final = np.array([[255, 96, 32], [32, 192, 112]], dtype=np.uint16)
_COLOUR_NAMES: Final = ("red", "green")
_FRAME_NAMES: Final = ("dark frame", "bright frame")


@dataclass(frozen=True)
class Unfairness:
    """What a classifier shows on rows of which the group is known."""

    accuracy: float
    equal_opportunity: float
    demographic_parity: float


@dataclass(frozen=True, eq=False)
class BiasedDigits:
    """Training and test pictures, with the shares that were asked for."""

    train: ImageDataset
    test: ImageDataset
    agreement: float
    test_agreement: float
    label_noise: float


def biased_digits(
    digits: DigitImages,
    *,
    agreement: float = 0.9,
    test_agreement: float | None = None,
    label_noise: float = 0.25,
    classes: Literal[2, 10] = 2,
    mark: Mark = "colour",
    test_fraction: float = 0.2,
    seed: int = 0,
) -> BiasedDigits:
    """Give digits a sensitive mark that agrees with the label.

    The shares are kept exactly, up to whole rows, on either side of the label. The same seed gives the same test rows
    and the same wrong labels whatever the agreement and the mark.

    Parameters
    ----------
    digits : from :func:`evenhand.data.load_digit_images`.
    agreement : p, the share of training rows whose group is the label's side.
    test_agreement : the same for the test rows; 0.5 makes groups and labels independent. As in training when None.
    label_noise : η, the share of rows whose label is replaced by another, drawn uniformly.
    classes : 2 for "5 or more", 10 for the digits themselves.
    mark : ``"colour"`` paints the ink red or green (three channels); ``"frame"`` puts a frame around the picture,
        bright for group 1, and loses no pixel (one channel).
    test_fraction : share of rows held out.
    seed : draws everything.
    """
    other = agreement if test_agreement is None else test_agreement
    for what, share in (("agreement", agreement), ("test_agreement", other), ("label_noise", label_noise)):
        if not 0.0 <= share <= 1.0:
            raise InputError(f"{what} is {share}; it is a share between 0 and 1")
    if classes not in (2, 10) or mark not in ("colour", "frame"):
        raise InputError(f"classes is 2 or 10 and mark is 'colour' or 'frame', not {classes!r} and {mark!r}")
    rows = len(digits.labels)
    held_out = round(rows * test_fraction)
    if not 1 <= held_out < rows:
        raise InputError(f"test_fraction is {test_fraction}; of {rows:,} rows it leaves no test or no training rows")
    order = _generator(seed, 0).permutation(rows)
    labels = digits.labels if classes == 10 else (digits.labels >= 5).astype(np.int64)
    parts = []
    for part, (chosen, share) in enumerate(((order[held_out:], agreement), (order[:held_out], other))):
        noisy = _with_noise(labels[chosen], classes, label_noise, _generator(seed, 1, part))
        groups = _groups((noisy >= classes // 2).astype(np.int64), share, _generator(seed, 2, part))
        parts.append(_dataset(digits, chosen, noisy, groups, classes, mark, 2 * part))
    return BiasedDigits(parts[0], parts[1], agreement, other, label_noise)


def expected_unfairness(agreement: float, reliance: float = 1.0, positive_rate: float = 0.5) -> Unfairness:
    """Say what a classifier shows that believes the mark on some rows and is right on the others.

    Parameters
    ----------
    agreement : p = P(group = label) of the rows it is measured on.
    reliance : q, the share of rows on which it predicts the group; 1 is a classifier that sees nothing else.
    positive_rate : π = P(label = 1) of those rows.
    """
    p, q, rate = agreement, reliance, positive_rate
    if not (0.0 <= p <= 1.0 and 0.0 <= q <= 1.0 and 0.0 < rate < 1.0):
        raise InputError("agreement and reliance are between 0 and 1, positive_rate strictly so")
    in_group_1 = _share(rate * p, (1 - rate) * (1 - p))
    in_group_0 = _share(rate * (1 - p), (1 - rate) * p)
    return Unfairness(
        accuracy=1.0 - q * (1.0 - p),
        equal_opportunity=q,
        # Signed: where groups and labels disagree, believing the mark undoes some of the difference.
        demographic_parity=abs(q + (1.0 - q) * (in_group_1 - in_group_0)),
    )


def _share(positive: float, negative: float) -> float:
    return positive / (positive + negative)


def _generator(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, *purpose])


def _with_noise(labels: Integers, classes: int, noise: float, generator: np.random.Generator) -> Integers:
    wrong = generator.permutation(labels.size)[: round(noise * labels.size)]
    noisy = labels.copy()
    noisy[wrong] = (noisy[wrong] + generator.integers(1, classes, size=wrong.size)) % classes
    return noisy


def _groups(sides: Integers, agreement: float, generator: np.random.Generator) -> Integers:
    groups = 1 - sides
    for side in (0, 1):
        rows = generator.permutation(np.flatnonzero(sides == side))
        groups[rows[: round(agreement * rows.size)]] = side
    return groups


def _dataset(
    digits: DigitImages, chosen: Integers, labels: Integers, groups: Integers, classes: int, mark: Mark, part: int
) -> ImageDataset:
    pictures = digits.images[chosen]
    return ImageDataset(
        name="biased-digits",
        images=coloured(pictures, groups) if mark == "colour" else _framed(pictures, groups),
        labels=labels,
        groups=groups,
        label_names=("below 5", "5 or more") if classes == 2 else tuple(map(str, range(10))),
        group_names=_COLOUR_NAMES if mark == "colour" else _FRAME_NAMES,
        parts=np.full(chosen.size, part, dtype=np.int64),
        description=f"Handwritten digits ({digits.source}), {chosen.size:,} rows; the {mark} is the sensitive group.",
    )


def coloured(pictures: Bytes, groups: Integers) -> Bytes:
    """Grey pictures in red ink for group 0, green for group 1."""
    ink = pictures.astype(np.uint16)[:, None, :, :]
    return (ink * _COLOURS[groups][:, :, None, None] // 255).astype(np.uint8)


def _framed(pictures: Bytes, groups: Integers) -> Bytes:
    # One dot in fourteen: 2 around 28 × 28, 1 around 8 × 8.
    width = max(1, pictures.shape[1] // 14)
    framed = np.pad(pictures, ((0, 0), (width, width), (width, width)))
    frame = np.pad(np.zeros(pictures.shape[1:], dtype=np.bool_), width, constant_values=True)
    framed[:, frame] = np.where(groups == 1, 255, 0)[:, None]
    return framed[:, None]
