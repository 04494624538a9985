"""Plot an audit: what each participant can infer, beside what it could infer without messages."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from evenhand.auditing.findings import Audit, Finding
from evenhand.runtime.files import write_figure


def draw_audit(audit: Audit, path: Path) -> None:
    """Draw a line for each finding: the best floor as a ring, the attack as a dot with its interval."""
    shown = list(audit.findings)
    figure = Figure(figsize=(8.5, 1.2 + 0.24 * max(len(shown), 4)), layout="constrained")
    axes = figure.subplots()
    for place, one in enumerate(reversed(shown)):
        colour = "tab:red" if one.real else "tab:gray"
        axes.plot([one.value.low, one.value.high], [place, place], color=colour, linewidth=2)
        axes.plot(one.value.value, place, marker="o", markersize=5, color=colour)
        axes.plot(
            max(one.floors.values(), default=0.0), place, marker="o", markersize=7, color="black", fillstyle="none"
        )
    axes.set_yticks(range(len(shown)), [_line(one) for one in reversed(shown)], fontsize=7)
    axes.set_xlim(0.0, 1.02)
    axes.set_xlabel("AUC (0.5 is chance), R² or share; ring: without the messages, dot: with them")
    axes.set_title(f"What was given away (protection: {audit.protection})", loc="left")
    axes.grid(alpha=0.3)
    write_figure(path, figure)


def _line(one: Finding) -> str:
    return f"{one.who}: {one.target} ({one.attack}, {one.measure}, {one.sequence})"
