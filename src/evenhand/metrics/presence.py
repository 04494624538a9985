"""Metrics by pattern of presence, and how far presence tells the group: for rows that some parties lack."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc

from evenhand.arrays import Array, Booleans
from evenhand.constraints.proving import rate_variance

_Rates: TypeAlias = Mapping[str, tuple[Booleans, Booleans]]
"""For each rate the rows that it is over, and those that count."""
FEWEST_TO_COMPARE: Final = 10
"""Fewest rows on each side of a gap that is stated."""


def by_pattern(
    truth: NDArray[Any],
    decided: NDArray[Any],
    groups: pd.DataFrame | None,
    patterns: Array,
    classes: Sequence[Hashable] = (),
) -> list[dict[str, Any]]:
    """Return rows, rates and gaps between groups of each pattern, the most frequent first.

    Parameters
    ----------
    truth, decided
        Whether each row's label is positive, and the decision; with `classes` their places among them.
    patterns
        Name of each row's pattern.
    classes
        The labels, if there are three or more.
    """
    names, sizes = np.unique(patterns, return_counts=True)
    found = []
    for name in names[np.argsort(-sizes, kind="stable")]:
        rows = patterns == name
        shares = {} if classes else {"positives": float(truth[rows].mean()), "selected": float(decided[rows].mean())}
        among = _of_classes(truth[rows], decided[rows], classes) if classes else _of_two(truth[rows], decided[rows])
        found.append(
            {
                "pattern": str(name),
                "rows": int(rows.sum()),
                **shares,
                "accuracy": float((truth == decided)[rows].mean()),
                "gaps": [] if groups is None else _gaps(among, groups[rows]),
            }
        )
    return found


def _of_two(truth: Booleans, decided: Booleans) -> _Rates:
    return {
        "selection rate": (np.ones(len(truth), dtype=bool), decided),
        "false-negative rate": (truth, ~decided),
        "false-positive rate": (~truth, decided),
    }


def _of_classes(truth: NDArray[Any], decided: NDArray[Any], classes: Sequence[Hashable]) -> _Rates:
    everybody = np.ones(len(truth), dtype=bool)
    chosen = {f"selection rate of {name}": (everybody, decided == place) for place, name in enumerate(classes)}
    missed = {
        f"false-negative rate of {name}": (truth == place, decided != place) for place, name in enumerate(classes)
    }
    return chosen | missed


def _gaps(among: _Rates, groups: pd.DataFrame) -> list[dict[str, Any]]:
    """Return for each attribute and rate the widest gap between two groups, with its standard error."""
    found = []
    for attribute, column in groups.items():
        for rate, (population, hit) in among.items():
            rates = {}
            for group in pd.unique(column):
                inside = population & np.asarray(column == group)
                if (size := int(inside.sum())) >= FEWEST_TO_COMPARE:
                    hits = float(hit[inside].sum())
                    rates[str(group)] = hits / size, float(rate_variance(hits, size))
            if len(rates) < 2:
                continue
            one, other = max(
                combinations(sorted(rates), 2), key=lambda pair: abs(rates[pair[0]][0] - rates[pair[1]][0])
            )
            error = float(np.sqrt(rates[one][1] + rates[other][1]))
            gap = rates[one][0] - rates[other][0]
            found.append(
                {"attribute": str(attribute), "rate": rate, "groups": [one, other], "gap": gap, "standard_error": error}
            )
    return found


def told_by_presence(presence: pd.DataFrame, columns: Mapping[str, Any], patterns: Array) -> list[dict[str, Any]]:
    """Return for each column (an attribute, or the label) the share of each value's rows that each party has.

    Cramér's V of the patterns and the column is 0 if presence tells nothing of the value, and 1 if it tells the value.
    The p-value is that of the χ² test of independence; both are None if there is one pattern or one value.
    """
    found = []
    for name, values in columns.items():
        column = pd.Series(np.asarray(values)).map(str)
        shares = {
            value: {str(party): float(held[(column == value).to_numpy()].mean()) for party, held in presence.items()}
            for value in sorted(column.unique())
        }
        table = pd.crosstab(patterns, column.to_numpy()).to_numpy()
        strength: dict[str, float | None] = {"cramers_v": None, "p_value": None}
        if min(table.shape) > 1:
            # Pearson's chi-squared test of independence.
            expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
            statistic = float(((table - expected) ** 2 / expected).sum())
            strength = {
                "cramers_v": float(np.sqrt(statistic / table.sum() / (min(table.shape) - 1))),
                "p_value": float(chdtrc(np.prod(np.subtract(table.shape, 1)), statistic)),
            }
        found.append({"of": str(name), "shares": shares, **strength})
    return found
