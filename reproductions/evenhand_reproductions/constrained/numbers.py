"""The numbers printed in the proximal-AL paper, as data."""

from __future__ import annotations

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
