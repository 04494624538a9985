"""Plot objective, constraint values and multipliers over the rounds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evenhand.report.page.charts import line_chart, number
from evenhand.report.page.markup import Markup, details, section, table, tag
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import verdicts

MOST_ROWS = 6
"""Constraints drawn; if there are more, those with the largest final values."""
MOST_LINES = 200
"""Rounds in the table; more are thinned out evenly."""


def rounds(record: RunRecord, identifier: str) -> Markup:
    """Return the section about rounds; empty if none were recorded."""
    history = record.history
    if history.empty or "round" not in history:
        return Markup("")
    at = history["round"].astype(float).tolist()
    drawn = []
    if "objective" in history:
        drawn.append(line_chart("Objective", at, {"objective": _numbers(history["objective"])}, y_label="objective"))
    values, dropped = _largest(history)
    if values:
        found = verdicts(record.result)
        gaps, asked = all(one.is_gap for one in found), {one.train["asked"] for one in found}
        words, marks = "Constraint values", []
        if len(asked) == 1:
            (limit,) = asked
            marks = [-limit, limit] if gaps else [limit]
            words += f"; dotted: the bound {'±' if gaps else ''}{limit:g}"
        drawn.append(line_chart(words, at, values, y_label="gap" if gaps else "value", marks=marks))
    multipliers = _net_multipliers(history, [*values])
    if multipliers:
        drawn.append(
            line_chart(
                "Multipliers: how strongly each constraint acts", at, multipliers, y_label="upper − lower multiplier"
            )
        )
    note = f"{dropped} more constraints are in the table only." if dropped else ""
    return section(
        identifier,
        "Training history",
        tag("div", *drawn, klass="pair"),
        tag("p", note, klass="soft") if note else "",
        _table(history),
        level=3,
    )


def _numbers(column: pd.Series[float]) -> list[float]:
    return pd.to_numeric(column, errors="coerce").astype(float).tolist()


def _largest(history: pd.DataFrame) -> tuple[dict[str, list[float]], int]:
    """Return the constraints with the largest final values, and the number of others.

    What is drawn is what the bound applies to: exact rates if they were counted (the solver works with smooth ones),
    and mean losses themselves.
    """
    names = [str(column)[len("value[") : -1] for column in history if str(column).startswith("value[")]
    lines = {name: _numbers(history[_counted(history, name)]) for name in names}
    names.sort(key=lambda name: -abs(np.nan_to_num(lines[name][-1])))
    return {name: lines[name] for name in names[:MOST_ROWS]}, len(names[MOST_ROWS:])


def _counted(history: pd.DataFrame, name: str) -> str:
    exact = f"exact[{name}]"
    # Of a mean loss the record holds the error rate too, which nothing bounds.
    of_loss = name.startswith("mean loss") or "loss(" in name
    return exact if not of_loss and exact in history and history[exact].notna().any() else f"value[{name}]"


def _net_multipliers(history: pd.DataFrame, names: list[str]) -> dict[str, list[float]]:
    found = {}
    for name in names:
        upper, lower = f"upper multiplier[{name}]", f"lower multiplier[{name}]"
        if upper in history and lower in history:
            net = np.subtract(_numbers(history[upper]), _numbers(history[lower]))
            found[name] = net.tolist()
    return found


def _table(history: pd.DataFrame) -> Markup:
    kept = np.unique(np.linspace(0, len(history) - 1, MOST_LINES).astype(int))
    columns = [str(name) for name in history if not str(name).startswith(("upper ", "lower "))][:12]
    rows = [
        [(number(value, 5), value) if isinstance(value, (int, float)) else value for value in line]
        for line in history[columns].iloc[kept].itertuples(index=False, name=None)
    ]
    caption = "One line per round" if len(kept) == len(history) else f"{len(kept)} of {len(history):,} rounds"
    return details("The numbers", table(columns, rows, caption=caption, numbers=range(len(columns))))
