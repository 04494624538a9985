"""The numbers printed in the FairFedAvgALM paper, as data: CelebA, accuracy, DP and EO in %, mean and spread of 3 runs.

Its DP and EO are those of the published code, which divides by all rows instead of by each group's
(`evenhand_reproductions.fairfedavgalm.published_gaps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

METRICS: Final = ("accuracy", "published DP", "published EO")
"""What the three numbers of a row are, by our names."""


class Printed(NamedTuple):
    """A number as printed."""

    mean: float
    spread: float


PaperTable: TypeAlias = Mapping[str, Mapping[str, tuple[Printed | None, ...]]]
"""{condition: {method: numbers in the order of METRICS}}; None where our copy of the text has lost the number."""


def _row(text: str) -> tuple[Printed | None, ...]:
    numbers = [None if part == "?" else float(part) for part in text.split()]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return tuple(None if mean is None or spread is None else Printed(mean, spread) for mean, spread in pairs)


def _table(text: str) -> dict[str, tuple[Printed | None, ...]]:
    lines = [line.split(":") for line in text.strip().splitlines()]
    return {name.strip(): _row(numbers) for name, numbers in lines}


TABLE2: Final[PaperTable] = {
    "α = 1, N = 10": _table(
        """
        FedAvg: 78.16 0.38 29.21 5.66 54.05 1.26
        FairFed: 76.12 2.12 37.30 5.11 54.16 1.89
        FairALM-FedAvg: 77.53 0.70 28.14 5.57 52.98 2.12
        FPFL: 72.63 1.03 23.39 5.89 42.84 1.40
        FairFedAvgALM: 74.66 0.13 22.38 8.66 41.46 0.29
        """
    )
}
"""Section 5.1, Table 2: the methods."""

TABLE3: Final[PaperTable] = {
    "α = 0.2": _table("FedAvg: 65.40 8.42 ? ? ? ?\nFairFedAvgALM: 62.68 3.69 ? ? ? ?"),
    "α = 5": _table("FedAvg: ? ? 34.16 1.54 ? ?\nFairFedAvgALM: ? ? 28.24 2.94 ? ?"),
}
"""Section 5.1, Table 3: skew of the labels."""

TABLE4: Final[PaperTable] = {
    "N = 20": _table("FedAvg: 74.49 1.94 26.94 13.64 52.67 0.52\nFairFedAvgALM: 71.08 1.83 14.94 13.60 43.33 0.70"),
    "N = 50": _table("FedAvg: 62.80 4.02 20.97 2.08 39.49 5.03\nFairFedAvgALM: 62.58 0.71 17.31 4.77 34.75 0.65"),
}
"""Section 5.1, Table 4: number of clients."""

TABLE5: Final[PaperTable] = {
    "σ = 0.001": _table("FedAvg: 74.46 3.33 36.17 4.37 52.50 3.21\nFairFedAvgALM: 71.27 0.08 23.65 5.60 40.15 3.26"),
}
"""Section 5.1, Table 5: the Gaussian mechanism. The text says that above 0.001 training may diverge, not which σ of
the grid the table has; 0.001 is the largest that does not."""

SUPPLEMENT_TABLE1: Final[PaperTable] = {
    "C = 0.5": _table("FedAvg: 75.93 2.64 31.67 8.61 53.60 0.29\nFairFedAvgALM: 72.41 1.61 18.45 7.41 38.84 1.84"),
    "C = 0.25": _table("FedAvg: 75.64 12.15 30.12 11.43 52.75 3.47\nFairFedAvgALM: 66.94 9.03 10.00 10.74 26.18 13.53"),
}
"""Supplement B, Table 1: participation."""
