"""The accuracy-fairness frontier as a picture."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

LABELS = {
    "gap": "gap that the constraint bounds",
    "DEO": "DEO: gap in mean loss among positives",
    "DFP": "gap in false-positive rates",
    "DFN": "gap in false-negative rates",
    "equalized_odds": "equalized odds: larger of the gaps in error rates",
    "DP": "demographic parity: gap in selection rates",
}


def draw_frontier(
    table: pd.DataFrame,
    path: Path,
    *,
    fairness: str = "DEO",
    chosen: tuple[float, float | None] | None = None,
    title: str = "What fairness costs",
) -> None:
    """Accuracy against unfairness, one line for each alpha, each point marked with its ε."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for alpha in table["alpha"].drop_duplicates():
        part = _of_alpha(table, alpha).sort_values("epsilon")
        label = "regulariser 2/n" if pd.isna(alpha) else f"regulariser {alpha:g}"
        axes.plot(part[fairness], 100 * part["accuracy"], marker="o", markersize=4, label=label)
        for gap, accuracy, epsilon in zip(part[fairness], part["accuracy"], part["epsilon"], strict=True):
            axes.annotate(
                f"ε={epsilon:g}", (gap, 100 * accuracy), xytext=(4, -9), textcoords="offset points", fontsize=7
            )
    if chosen is not None:
        part = _of_alpha(table, chosen[1])
        point = part[part["epsilon"] == chosen[0]].iloc[0]
        place = (point[fairness], 100 * point["accuracy"])
        axes.plot(*place, marker="*", markersize=14, color="black", linestyle="", label="chosen")
    axes.set_xlabel(LABELS.get(fairness, fairness))
    axes.set_ylabel("accuracy on unseen rows, %")
    axes.set_title(title, loc="left")
    # Room for the last label.
    axes.set_xlim(0, 1.12 * table[fairness].max())
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _of_alpha(table: pd.DataFrame, alpha: float | None) -> pd.DataFrame:
    return table[table["alpha"].isna() if pd.isna(alpha) else table["alpha"] == alpha]
