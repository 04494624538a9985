"""Metrics by pattern of presence, and how far presence tells the group: for rows that some parties lack."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import chdtrc

from evenhand.arrays import Array, Booleans
from evenhand.constraints.proving import rate_variance

FEWEST_TO_COMPARE: Final = 10
"""Fewest rows on each side of a gap that is stated."""


def by_pattern(
    truth: Booleans, decided: Booleans, groups: pd.DataFrame | None, patterns: Array
) -> list[dict[str, Any]]:
    """Return rows, rates and gaps between groups of each pattern, the most frequent first.

    Parameters
    ----------
    truth, decided
        Whether each row's label is positive, and the decision.
    patterns
        Name of each row's pattern.
    """
    names, sizes = np.unique(patterns, return_counts=True)
    found = []
    for name in names[np.argsort(-sizes, kind="stable")]:
        rows = patterns == name
        found.append(
            {
                "pattern": str(name),
                "rows": int(rows.sum()),
                "positives": float(truth[rows].mean()),
                "selected": float(decided[rows].mean()),
                "accuracy": float((truth == decided)[rows].mean()),
                "gaps": [] if groups is None else _gaps(truth[rows], decided[rows], groups[rows]),
            }
        )
    return found


def _gaps(truth: Booleans, decided: Booleans, groups: pd.DataFrame) -> list[dict[str, Any]]:
    """Return for each attribute and rate the widest gap between two groups, with its standard error."""
    among = {
        "selection rate": (np.ones(len(truth), dtype=bool), decided),
        "false-negative rate": (truth, ~decided),
        "false-positive rate": (~truth, decided),
    }
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
