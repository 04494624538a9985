"""Pictures: curves over rounds and over ε, a column for each data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from evenhand.runtime.files import make_folder, write_figure
from evenhand_reproductions.settings import SETS

COLOURS = ("black", "tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")
QUANTITIES = {"objective": "training objective", "DEO": "DEO on the training rows"}


def draw_rounds(
    records: pd.DataFrame,
    path: Path,
    *,
    styles: Mapping[str, Mapping[str, Any]],
    bounds: Mapping[str, float],
    title: str,
    each_run: bool = False,
) -> None:
    """Objective (linear) and DEO (log) over rounds (log): a colour for each level of ε, a style for each method.

    Lines are means over runs; with `each_run` there is a thin line for each run.
    """
    apart = ["level", "method", *(["seed"] if each_run else [])]
    thin: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.7} if each_run else {}
    names, levels = records["set"].unique(), records["level"].unique()
    colours = dict(zip(levels, COLOURS, strict=False))
    figure = Figure(figsize=(4.4 * len(names), 7.0), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        for row, quantity in enumerate(QUANTITIES):
            axis = axes[row, column]
            for (level, method, *_), line in records[records["set"] == name].groupby(apart, sort=False):
                mean = line.groupby("round")[quantity].mean()
                axis.plot(mean.index, mean, color=colours[level], **thin, **styles[str(method)])
            axis.set_xscale("log")
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(QUANTITIES[quantity])
        axes[0, column].set_title(SETS[name])
        axes[1, column].set_xlabel("communication round")
        axes[1, column].set_yscale("log")
        axes[1, column].set_ylim(bottom=3e-4)
        for level, bound in bounds.items():
            if level in colours:
                axes[1, column].axhline(bound, color=colours[level], linewidth=0.7, linestyle=":")
    handles = [Line2D([], [], color=colours[level], label=level) for level in levels]
    handles += [Line2D([], [], **{"color": "grey", **style}, label=method) for method, style in styles.items()]
    if bounds:
        handles.append(Line2D([], [], color="grey", linewidth=0.7, linestyle=":", label="the bound ε"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle(title)
    _save(figure, path)


def draw_effect_of_epsilon(records: pd.DataFrame, path: Path, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """Accuracy and fairness on the test rows over ε (log), mean and standard deviation of the runs."""
    names = records["set"].unique()
    quantities = {"accuracy": "accuracy on test rows, %", "FR": "fairness (1 - DEO) on test rows, %"}
    figure = Figure(figsize=(4.4 * len(names), 6.5), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        for row, (quantity, label) in enumerate(quantities.items()):
            axis = axes[row, column]
            for method, line in records[records["set"] == name].groupby("method", sort=False):
                runs = 100 * line.groupby("epsilon")[quantity].agg(["mean", "std"]).fillna(0.0)
                axis.errorbar(
                    runs.index, runs["mean"], yerr=runs["std"], capsize=2, label=method, **styles[str(method)]
                )
            axis.set_xscale("log")
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
        axes[0, column].set_title(SETS[name])
        axes[1, column].set_xlabel("ε, the bound on DEO in training")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Effect of ε: mean and standard deviation over runs")
    _save(figure, path)


def draw_local_steps(records: pd.DataFrame, path: Path, methods: Sequence[str]) -> None:
    """Objective over rounds: a row for each place of ε, a line for each Q."""
    names = records["set"].unique()
    count = int(records["place"].max()) + 1
    colours = dict(zip(methods, COLOURS[1:], strict=False))
    figure = Figure(figsize=(4.4 * len(names), 3.0 * count), layout="constrained")
    axes = figure.subplots(count, len(names), squeeze=False, sharex="col", sharey="col")
    for column, name in enumerate(names):
        for place in range(count):
            axis = axes[place, column]
            part = records[(records["set"] == name) & (records["place"] == place)]
            for method, line in part.groupby("method", sort=False):
                mean = line.groupby("round")["objective"].mean()
                style = {"marker": "o", "markersize": 3} if method == "subspace" else {}
                axis.plot(mean.index, mean, color=colours[str(method)], label=method, **style)
            axis.set_xscale("log")
            axis.set_title(f"{SETS[name]}, ε = {part['epsilon'].iloc[0]:g}", fontsize=10)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel("training objective")
        axes[-1, column].set_xlabel("communication round")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("Effect of Q, the number of local steps in a round")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    make_folder(path.parent)
    write_figure(path, figure, dpi=110)
