"""Pictures of VFB²'s experiments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from evenhand.runtime.files import make_folder, write_figure
from evenhand_reproductions.figures import COLOURS
from evenhand_reproductions.settings import SETS

AXES: Final = {"time": "virtual time, ms", "epoch": "epochs"}
STYLES: Final[dict[str, Literal["-", "--", ":"]]] = {"VFB²": "-", "VFB": "--", "VFB, no straggler": ":"}


def draw_stragglers(records: pd.DataFrame, path: Path, title: str, named: Mapping[str, str] = AXES) -> None:
    """Gap (log) over time and over epochs: a column for each set, a colour for each rule, a style for each pace."""
    names, rules = records["set"].unique(), records["rule"].unique()
    colours = dict(zip(rules, COLOURS[1:], strict=False))
    figure = Figure(figsize=(max(4.4 * len(names), 7.5), 7.0), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharey="col")
    for column, name in enumerate(names):
        for row, (quantity, label) in enumerate(named.items()):
            axis = axes[row, column]
            for (rule, method), line in records[records["set"] == name].groupby(["rule", "method"], sort=False):
                mean = line.groupby("epoch")[["time", "epoch", "gap"]].mean()
                places = 1000 * mean["time"] if quantity == "time" else mean["epoch"]
                axis.plot(places, mean["gap"], color=colours[rule], linestyle=STYLES[str(method)], linewidth=1.3)
            axis.set_yscale("log")
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel("(f − f*) / (f(0) − f*)")
        axes[0, column].set_title(SETS[name])
    handles = [Line2D([], [], color=colours[rule], label=rule) for rule in rules]
    handles += [Line2D([], [], color="grey", linestyle=style, label=method) for method, style in STYLES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle(title)
    _save(figure, path)


def draw_speedup(records: pd.DataFrame, path: Path, title: str) -> None:
    """Speed-up over the number of parties: a panel for each rule, a line for each pace."""
    rules = records["rule"].unique()
    figure = Figure(figsize=(max(4.0 * len(rules), 6.0), 4.2), layout="constrained")
    axes = figure.subplots(1, len(rules), squeeze=False, sharey=True)
    for axis, rule in zip(axes[0], rules, strict=True):
        part = records[records["rule"] == rule]
        parties = sorted(part["parties"].unique())
        axis.plot(parties, parties, color="grey", linestyle=":", label="ideal")
        for (method, line), colour in zip(part.groupby("method", sort=False), COLOURS[1:], strict=False):
            mean = line.groupby("parties")["speedup"].mean()
            axis.plot(mean.index, mean, color=colour, marker="o", markersize=3, label=method)
        axis.set_title(rule)
        axis.set_xlabel("parties q")
        axis.set_xticks(parties)
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("time of one party / time of q parties")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    make_folder(path.parent)
    write_figure(path, figure, dpi=110)
