"""The numbers printed in the papers, and the sets they are about, as data."""

from __future__ import annotations

from typing import Final

EPSILONS: Final = (1e-3, 1e-2, 5e-2, 1e-1, 5e-1)
"""Journal version, Section 5.1."""

FIRST_EPSILONS: Final = {
    "adult": (1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4),
    "compas": (1e-3, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25),
    "communities-crime": (1e-3, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25),
}
"""First version, Section V-B b."""

LOCAL_STEPS: Final = (1, 4, 7)
"""Q of the first version's Figure 2."""


def fair(epsilon: float | str) -> str:
    """The papers' name of their method at a fairness level."""
    return f"FairVFL(ε={float(epsilon):g})"


FAIRVFL_SETS: Final = ("adult", "compas", "communities-crime")
VFB2_SETS: Final = ("credit-default", "give-me-some-credit", "a9a", "20newsgroups")
FAIRFEDAVGALM_SETS: Final = ("adult", "biased-digits")
_JOURNAL_METHODS = ("FedBCD", "FedBCD + EO", "FedBCD + CEO", *map(fair, EPSILONS))


def _by_set(methods: tuple[str, ...], rows: str) -> dict[str, dict[str, tuple[float, float, float]]]:
    """{method: {set: its three numbers}} from the rows of a table as printed."""
    table = {}
    for method, line in zip(methods, rows.strip().splitlines(), strict=True):
        numbers = [float(number) for number in line.split()]
        triples = [(numbers[i], numbers[i + 1], numbers[i + 2]) for i in (0, 3, 6)]
        table[method] = dict(zip(FAIRVFL_SETS, triples, strict=True))
    return table


# ACC in %, DFP, DFN for Adult, COMPAS and Crime.
TABLE1: Final = _by_set(
    _JOURNAL_METHODS,
    """
    85.06 0.14 0.18  69.25 0.14 0.13  88.65 0.17 0.27
    73.23 0.01 0.04  66.73 0.07 0.05  85.18 0.07 0.19
    79.89 0.10 0.14  68.20 0.11 0.10  86.36 0.13 0.18
    81.41 0.01 0.08  66.95 0.02 0.02  85.50 0.03 0.06
    82.11 0.01 0.09  66.95 0.03 0.02  85.80 0.04 0.04
    82.77 0.03 0.12  67.78 0.03 0.04  86.13 0.04 0.07
    82.36 0.07 0.13  68.39 0.05 0.07  87.14 0.08 0.11
    83.08 0.14 0.16  68.36 0.11 0.14  88.65 0.16 0.27
    """,
)
"""Journal version, Section 5.2, Table 1: linear model."""

TABLE2: Final = _by_set(
    _JOURNAL_METHODS,
    """
    85.55 0.14 0.19  70.36 0.15 0.13  89.65 0.17 0.31
    77.23 0.01 0.03  66.78 0.08 0.09  86.13 0.07 0.14
    81.39 0.10 0.04  64.44 0.11 0.13  88.36 0.15 0.07
    81.98 0.00 0.11  68.41 0.01 0.00  84.62 0.01 0.06
    81.98 0.01 0.11  68.83 0.02 0.03  85.87 0.03 0.06
    82.17 0.04 0.12  68.62 0.03 0.03  86.19 0.05 0.05
    82.55 0.07 0.13  70.29 0.05 0.05  88.13 0.08 0.12
    83.15 0.14 0.13  70.36 0.12 0.12  89.01 0.15 0.28
    """,
)
"""Journal version, Section 5.2, Table 2: neural parties with two hidden layers."""

FIRST_TABLE1: Final = _by_set(
    ("FedBCD", "FedBCD + EO", "FedBCD + CEO", fair(0.01)),
    """
    83.0 56.6 67.2  68.0 81.2 74.0  87.5 72.8 79.5
    79.2 84.3 81.6  64.2 93.3 76.0  80.3 60.1 68.5
    79.2 79.2 79.1  64.3 86.3 73.7  87.4 73.1 79.6
    82.5 95.1 88.3  67.2 96.3 79.1  84.9 94.4 89.4
    """,
)
"""First version, Section V-B, Table I: AC, FR and HM in % (its standard deviations are at most 0.4)."""

# NonF, AFSVRG-VP and VFB²-SVRG; accuracy in % and its standard deviation.
VFB2_TABLE2: Final = {
    "13": {
        "credit-default": ((81.96, 0.25), (79.35, 0.19), (81.96, 0.22)),
        "give-me-some-credit": ((93.56, 0.19), (93.35, 0.18), (93.56, 0.20)),
        "news20": ((98.29, 0.21), (97.24, 0.11), (98.29, 0.20)),
        "webspam": ((92.17, 0.12), (89.17, 0.10), (92.17, 0.13)),
    },
    "14": {
        "credit-default": ((82.03, 0.32), (79.36, 0.24), (82.03, 0.34)),
        "give-me-some-credit": ((93.56, 0.25), (93.35, 0.22), (93.56, 0.24)),
        "news20": ((98.45, 0.29), (97.59, 0.13), (98.45, 0.33)),
        "webspam": ((92.71, 0.24), (89.98, 0.14), (92.71, 0.27)),
    },
}
"""VFB², Table 2, by the number of the problem's equation: 10 trials."""
