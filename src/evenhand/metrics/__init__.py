"""How a model's decisions and losses differ between groups, measured on given rows.

A value says how a model does on these rows; it does not make the model "fair" or "unbiased". Groups come from
``sensitive_features``: a list, array, Series, dict of columns or DataFrame. Several columns are looked at one attribute
at a time, and with ``cross=True`` crossed as well (sex × race); a summary keeps the worst of them.

From scores of a two-label model (``scores.py``): :func:`summary`, :func:`gap_bounds`, :func:`intervals`. From counts by
group (``gaps.py``): :func:`group_counts`, and :func:`constraint_gaps` for the gap that a constraint bounds. From
decisions over any number of labels (``decisions.py``): :func:`demographic_parity`, :func:`equal_opportunity` and
:func:`decision_intervals`. The rule that chooses the cut of decisions (``thresholds.py``): :class:`Threshold`.
"""

from __future__ import annotations

from evenhand.constraints.thresholds import Cut, Threshold
from evenhand.metrics.decisions import decision_intervals, demographic_parity, equal_opportunity
from evenhand.metrics.gaps import constraint_gaps, group_counts
from evenhand.metrics.scores import gap_bounds, intervals, summary

__all__ = [
    "Cut",
    "Threshold",
    "constraint_gaps",
    "decision_intervals",
    "demographic_parity",
    "equal_opportunity",
    "gap_bounds",
    "group_counts",
    "intervals",
    "summary",
]
