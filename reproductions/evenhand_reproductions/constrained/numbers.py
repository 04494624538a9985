"""The numbers printed in the proximal-AL paper, and the seconds its authors' code takes, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NEYMAN_PEARSON_SETS: Final = ("breast-cancer-wisc", "monks-1", "adult-a")
FAIRNESS_SET: Final = "adult-b"
QUADRATIC_SET: Final = "quadratic"
CLIENTS: Final = (1, 5, 10, 20)
"""n of Tables 1 and 2."""
SIZES: Final = ((100, 1), (300, 3), (500, 5))
"""(d, m̃) of Table 4."""
QUADRATIC_CLIENTS: Final = (1, 5, 10)

# Objective of Algorithm 1 and of cProx-AL, then mean and largest loss of class 1 of each of the two.
TABLE1: Final = {
    "breast-cancer-wisc": {
        1: (0.27, 0.27, 0.20, 0.20, 0.20, 0.20),
        5: (0.34, 0.33, 0.19, 0.20, 0.19, 0.20),
        10: (0.37, 0.37, 0.17, 0.20, 0.17, 0.20),
        20: (0.46, 0.45, 0.16, 0.20, 0.16, 0.20),
    },
    "adult-a": {
        1: (0.73, 0.73, 0.20, 0.20, 0.20, 0.20),
        5: (0.74, 0.74, 0.20, 0.20, 0.20, 0.20),
        10: (0.77, 0.77, 0.19, 0.20, 0.19, 0.20),
        20: (0.78, 0.79, 0.18, 0.20, 0.18, 0.20),
    },
    "monks-1": {
        1: (1.58, 1.58, 0.20, 0.20, 0.20, 0.20),
        5: (1.65, 1.65, 0.19, 0.20, 0.19, 0.20),
        10: (1.71, 1.71, 0.18, 0.20, 0.18, 0.20),
        20: (1.81, 1.79, 0.17, 0.20, 0.17, 0.20),
    },
}
"""Section 5.1, Table 1: Neyman-Pearson classification."""

TABLE2: Final = {
    FAIRNESS_SET: {
        1: (0.37, 0.37, 0.10, 0.10, 0.10, 0.10),
        5: (0.37, 0.37, 0.09, 0.10, 0.09, 0.10),
        10: (0.37, 0.37, 0.08, 0.10, 0.08, 0.10),
        20: (0.38, 0.37, 0.08, 0.10, 0.08, 0.10),
    }
}
"""Section 5.2, Table 2: loss disparity between two groups, at each client and at the server."""

TABLE3: Final = {"breast-cancer-wisc": (455, 240, 20), "adult-a": (24_715, 7_840, 21), "monks-1": (275, 275, 21)}
"""Appendix E.1, Table 3: rows of class 0 and class 1, features."""

# Objective of Algorithm 1 and of cProx-AL, then what each violates the rows by.
TABLE4: Final = {
    (1, 100): (-0.23, -0.23, 3.33e-4, 5.68e-4),
    (1, 300): (-0.37, -0.37, 3.52e-4, 4.45e-4),
    (1, 500): (-0.30, -0.30, 4.38e-4, 3.85e-4),
    (5, 100): (9.81, 9.80, 1.34e-4, 8.03e-4),
    (5, 300): (8.47, 8.45, 1.09e-4, 8.28e-4),
    (5, 500): (9.92, 9.91, 1.33e-4, 3.73e-4),
    (10, 100): (49.40, 49.37, 7.31e-5, 5.88e-4),
    (10, 300): (41.49, 41.44, 8.56e-5, 8.73e-4),
    (10, 500): (41.45, 41.41, 9.29e-4, 7.66e-4),
}
"""Appendix E.2, Table 4, by (n, d)."""


@dataclass(frozen=True)
class Reference:
    """What the authors' published code took on our reconstruction of a problem, one thread.

    Attributes
    ----------
    seconds
        Of CPU; those after which it was stopped where it had not finished.
    residual
        The true residual it ended at; None where it had not finished.
    bound
        Whether the residual is only known to be no larger.
    """

    seconds: float
    residual: float | None = None
    bound: bool = False

    @property
    def optimal(self) -> bool:
        return self.residual is not None and self.residual <= 1e-3

    def __str__(self) -> str:
        if self.residual is None:
            return f"> {self.seconds:g} s, unfinished"
        if self.optimal:
            return f"{self.seconds:g} s"
        return f"{self.seconds:g} s, residual {'up to ' if self.bound else ''}{self.residual:g}"


FEDERATED: Final = {
    ("breast-cancer-wisc", 1): Reference(1.5, 4e-4),
    ("breast-cancer-wisc", 5): Reference(7.1, 8e-4),
    ("breast-cancer-wisc", 10): Reference(17.5, 7e-4),
    ("breast-cancer-wisc", 20): Reference(55.0, 4e-4),
    ("monks-1", 1): Reference(0.4, 2e-4),
    ("monks-1", 5): Reference(36.0, 1.1),
    ("monks-1", 10): Reference(171.0, 0.6),
    ("monks-1", 20): Reference(56.0),
    ("adult-a", 1): Reference(31.5, 1e-4),
    ("adult-a", 5): Reference(329.0, 0.4),
    ("adult-a", 20): Reference(75.0),
    (FAIRNESS_SET, 1): Reference(269.0, 1e-3),
    (FAIRNESS_SET, 5): Reference(215.0, 1e-3),
}
"""Their Algorithm 1, by set and n."""

ASKED: Final = 1e-3

POOLED: Final = {
    ("breast-cancer-wisc", 1): Reference(0.3, ASKED),
    ("breast-cancer-wisc", 5): Reference(0.5, ASKED),
    ("breast-cancer-wisc", 10): Reference(0.8, ASKED),
    ("breast-cancer-wisc", 20): Reference(2.0, ASKED),
    ("monks-1", 1): Reference(0.2, ASKED),
    ("monks-1", 5): Reference(0.3, ASKED),
    ("monks-1", 10): Reference(0.3, ASKED),
    ("monks-1", 20): Reference(0.4, ASKED),
    ("adult-a", 1): Reference(1.7, ASKED),
    ("adult-a", 5): Reference(2.4, ASKED),
    ("adult-a", 20): Reference(3.1, ASKED),
    (FAIRNESS_SET, 1): Reference(21.5, ASKED),
    (FAIRNESS_SET, 5): Reference(43.3, ASKED),
}
"""Their Algorithm 3 on the pooled rows. What residuals it ended at was not recorded: those it was asked for."""

QUADRATIC_FEDERATED: Final = {
    1: Reference(1.4, 0.1, True),
    5: Reference(4.6, 0.1, True),
    10: Reference(21.9, 0.1, True),
}
"""Their Algorithm 1 on Eq. (84) with d = 500, by n."""
QUADRATIC_POOLED: Final = {1: Reference(0.023, ASKED), 5: Reference(0.13, ASKED), 10: Reference(0.50, ASKED)}
