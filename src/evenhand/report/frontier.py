"""Plot the accuracy-fairness frontier."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from evenhand.report.labels import spread
from evenhand.runtime.files import make_folder, write_figure

LABELS = {
    "gap": "gap bounded by the constraint",
    "DEO": "DEO: gap in mean loss among positives",
    "DFP": "gap in false-positive rates",
    "DFN": "gap in false-negative rates",
    "equalized_odds": "equalized odds: larger of the gaps in error rates",
    "DP": "demographic parity: gap in selection rates",
    "prediction_gap": "gap between mean predictions of groups",
    "loss_gap": "gap between mean losses of groups",
}


Z: Final = 1.96
"""Standard errors on each side of a 95 % interval."""
MOST_LABELS: Final = 24
"""Labels that fit on top of one another."""


def balance(gap: float, accuracy: float) -> float:
    """Return the harmonic mean of accuracy and 1 − gap, the papers' HM."""
    fairness = max(1.0 - gap, 0.0)
    return 2.0 * accuracy * fairness / (accuracy + fairness) if fairness > 0 else 0.0


def best_balance(points: Mapping[str, tuple[float, float]], without: tuple[float, float] | None = None) -> str | None:
    """Return the point of gap and accuracy with the best balance, among those that differ from the point `without`.

    A bound so wide that it changes nothing is no choice.
    """
    changed = [
        name for name, point in points.items() if without is None or max(np.abs(np.subtract(point, without))) > 1e-9
    ]
    return max(changed, key=lambda name: balance(*points[name]), default=None)


def draw_frontier(
    table: pd.DataFrame,
    path: Path,
    *,
    fairness: str = "DEO",
    chosen: tuple[float, float | None] | None = None,
    title: str = "What fairness costs",
) -> None:
    """Plot accuracy against a gap, with one line for each alpha and each point labelled with its ε.

    Whiskers show 95 % intervals: of accuracy, and of the gap that the constraint bounds.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for alpha in table["alpha"].drop_duplicates():
        part = _of_alpha(table, alpha).sort_values("epsilon")
        label = "regulariser 2/n" if pd.isna(alpha) else f"regulariser {alpha:g}"
        across = None if fairness != "gap" else Z * part["gap_error"].to_numpy()
        up = Z * 100 * part["accuracy_error"].to_numpy()
        gaps, accuracies = part[fairness].to_numpy(), 100 * part["accuracy"].to_numpy()
        axes.errorbar(gaps, accuracies, xerr=across, yerr=up, marker="o", markersize=4, elinewidth=0.7, label=label)
    if chosen is not None:
        part = _of_alpha(table, chosen[1])
        point = part[part["epsilon"] == chosen[0]].iloc[0]
        place = (point[fairness], 100 * point["accuracy"])
        axes.plot(*place, marker="*", markersize=14, color="black", linestyle="", label="chosen")
    axes.set_xlabel(LABELS.get(fairness, fairness))
    axes.set_ylabel("accuracy on held-out rows, %")
    axes.set_title(f"{title}; whiskers are 95 % intervals", loc="left")
    # A gap is not negative.
    axes.set_xlim(left=0)
    _keep_small_differences_small(axes)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _name_points(axes, [(row[fairness], 100 * row["accuracy"], row["epsilon"]) for _, row in table.iterrows()])
    make_folder(path.parent)
    write_figure(path, figure)


def _keep_small_differences_small(axes: Axes) -> None:
    """Show at least one point of accuracy on the y axis: smaller differences are mostly noise."""
    low, high = axes.get_ylim()
    room = max(0.0, 1.0 - (high - low)) / 2
    axes.set_ylim(low - room, high + room)


def _name_points(axes: Axes, points: list[tuple[float, float, float]]) -> None:
    """Name each point's ε in a column on the right, with a line to the point."""
    low, high = axes.get_ylim()
    levels = spread([accuracy for _, accuracy, _ in points], (high - low) / MOST_LABELS, low, high)
    right = axes.get_xlim()[1]
    for (gap, accuracy, epsilon), level in zip(points, levels, strict=True):
        place: dict[str, Any] = {"xytext": (1.02 * right, level), "fontsize": 7, "va": "center"}
        line = {"arrowstyle": "-", "lw": 0.4, "color": "grey", "shrinkA": 0, "shrinkB": 2}
        axes.annotate(f"ε={epsilon:g}", xy=(gap, accuracy), annotation_clip=False, arrowprops=line, **place)


def _of_alpha(table: pd.DataFrame, alpha: float | None) -> pd.DataFrame:
    return table[table["alpha"].isna() if pd.isna(alpha) else table["alpha"] == alpha]
