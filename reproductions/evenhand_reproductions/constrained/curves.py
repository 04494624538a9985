"""Figures 1 and 2 of the proximal-AL paper: each client's objective and constraint over the rounds of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from evenhand.arrays import Array
from evenhand.horizontal.program_server import ProgramServer
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.roles import HorizontalClient
from evenhand.horizontal.sqp.options import SQP
from evenhand.runtime.files import make_folder, write_figure
from evenhand.runtime.inprocess import InProcess, Mailbox
from evenhand.training.run import one_blas_thread
from evenhand_reproductions.constrained import pages
from evenhand_reproductions.constrained.methods import BALANCED, BY_SQP, PUBLISHED, ROUNDS, TOLERANCE
from evenhand_reproductions.constrained.problems import ConstrainedProblem, SetRows, read
from evenhand_reproductions.programs.solving import deal, prox_al_roles, solution, sqp_roles
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import markdown_table

COUNT: Final = 10
"""The paper does not say how many clients its figures have."""
AXES: Final = (
    "The paper draws outer iterations; here every round of ADMM counts, and ticks mark the ends of outer iterations. "
    "The axes are cut: within a subproblem the server's w can be far off."
)
POINTS_A_DECADE: Final = 25
"""Rounds looked at, beside the ends of outer iterations: evenly over a logarithmic axis."""
LOWEST: Final = 1e-3
"""Of the vertical axes: losses of separable rows go to zero."""
COLOURS: Final = {"objective": "tab:blue", "row": "tab:brown", "server": "tab:green"}
STYLES: Final[dict[str, dict[str, Any]]] = {
    PUBLISHED: {"linestyle": "-"},
    BALANCED: {"linestyle": "-"},
    BY_SQP: {"linestyle": "--", "marker": "o", "markersize": 3},
}


def compute(
    settings: Settings, meter: Meter, methods: Sequence[str], make: Callable[[SetRows, int, int], ConstrainedProblem]
) -> list[Record]:
    """One draw of each set: a figure is of one run."""
    meter.expect(len(methods) * len(settings.sets))
    records: list[Record] = []
    for name in settings.sets:
        problem = make(read(name, settings.source), COUNT, settings.seed)
        for method in methods:
            pages.at(meter, name, COUNT, settings.seed, method)
            records += curve(method, problem, settings.rounds_or(ROUNDS[name]))
    return records


def roles_of(method: str, problem: ConstrainedProblem, rounds: int) -> tuple[ProgramServer, Sequence[HorizontalClient]]:
    parts = problem.federated
    dealt = deal(parts.clients, parts.server, start=problem.start)
    if method == BY_SQP:
        return sqp_roles(dealt, SQP())
    rule: Any = "fixed" if method == PUBLISHED else "balanced"
    options = ProxAL(rho=problem.rho, rho_rule=rule, max_rounds=rounds, max_inner=rounds, **problem.options)
    return prox_al_roles(dealt, options)


class Watched(InProcess):
    """Shows the server's round, outer iteration and w each time a round is over."""

    def __init__(
        self, server: ProgramServer, clients: Sequence[HorizontalClient], see: Callable[[int, int, Array], None]
    ) -> None:
        super().__init__([server, *clients])
        self._server, self._see, self._last = server, see, -1

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        super()._serve(name, mailbox)
        if self._server.rounds != self._last:
            self._last = self._server.rounds
            self._see(self._last, self._server.outer, self._server.answer)


def curve(method: str, problem: ConstrainedProblem, rounds: int) -> list[Record]:
    """Each client's objective and what its limit is on, at some rounds and at the end of each outer iteration."""
    server, clients = roles_of(method, problem, rounds)
    records: list[Record] = []
    # A run starts where the first message leaves the server.
    next_round, outer, last = 0.0, -1, (0, 0, problem.start)

    def see(now: int, steps: int, weights: Array) -> None:
        nonlocal next_round, outer, last
        if now >= next_round or steps != outer:
            records.append(_record(method, problem, now, steps, weights))
            next_round = max(now + 1.0, now * 10.0 ** (1.0 / POINTS_A_DECADE))
        outer, last = steps, (now, steps, weights)

    with one_blas_thread():
        Watched(server, clients, see).run()
    if records[-1]["round"] != last[0]:
        records.append(_record(method, problem, *last))
    residual = solution(server, clients).residual
    records[-1] |= {"stationarity": residual.stationarity, "distance": residual.distance}
    return records


def _record(method: str, problem: ConstrainedProblem, now: int, outer: int, weights: Array) -> Record:
    return {
        "set": problem.name,
        "seed": problem.seed,
        "clients": problem.count,
        "method": method,
        "round": now,
        "outer": outer,
        "objectives": problem.local_objectives(weights).tolist(),
        "rows": problem.local_rows(weights).tolist(),
        "server": problem.server_row(weights),
        "stationarity": None,
        "distance": None,
    }


def draw(records: pd.DataFrame, path: Path, *, limit: float, quantities: tuple[str, str], title: str) -> None:
    """Mean and range over clients of objectives (above) and of what is bounded (below), a column for each set.

    Within a subproblem ADMM's iterates can be far off; the axes are cut to what outer iterations end at.
    """
    names = list(records["set"].unique())
    figure = Figure(figsize=(max(6.4, 4.4 * len(names)), 7.0), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex="col")
    for column, name in enumerate(names):
        part = records[records["set"] == name]
        for row, (key, label) in enumerate((("objectives", quantities[0]), ("rows", quantities[1]))):
            axis = axes[row, column]
            colour = COLOURS["objective" if row == 0 else "row"]
            framed: list[Array] = []
            for method, line in part.groupby("method", sort=False):
                framed.append(_curve(axis, line, key, colour, STYLES[str(method)]))
                if row == 1 and line["server"].notna().all():
                    axis.plot(line["round"], line["server"], color=COLOURS["server"], **STYLES[str(method)])
            shown = np.concatenate(framed)
            axis.set_ylim(max(0.7 * shown.min(), LOWEST), 1.4 * shown.max())
            axis.set_xscale("symlog", linthresh=1.0)
            axis.set_xlim(left=0.0)
            axis.set_yscale("log")
            axis.grid(alpha=0.3, which="both")
            if column == 0:
                axis.set_ylabel(label)
        axes[0, column].set_title(f"{SETS[name]}, n = {part['clients'].iloc[0]}")
        axes[1, column].axhline(limit, color="black", linewidth=0.8, linestyle=":")
        axes[1, column].set_xlabel("communication round")
    figure.legend(
        handles=_handles(records), loc="outside lower center", ncols=2 if len(names) == 1 else 4, frameon=False
    )
    figure.suptitle(title)
    make_folder(path.parent)
    write_figure(path, figure, dpi=110)


def _curve(axis: Any, line: pd.DataFrame, key: str, colour: str, style: dict[str, Any]) -> Array:
    """Draw mean and range of the clients; returns the values that must be seen: at the start and after steps of μ."""
    values = np.array(line[key].to_list())
    ended = (line["outer"].diff().fillna(1.0) > 0).to_numpy()
    rounds = line["round"].to_numpy()
    axis.plot(rounds, values.mean(axis=1), color=colour, **style)
    if style["linestyle"] == "-":
        axis.fill_between(rounds, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0.0)
        axis.plot(rounds[ended], values.mean(axis=1)[ended], "k|", markersize=9)
    return np.asarray(values[ended].ravel())


def _handles(records: pd.DataFrame) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], **{"color": "grey", **STYLES[method]}, label=f"{method}, mean of clients")
        for method in records["method"].unique()
    ]
    handles.append(Patch(color="grey", alpha=0.3, label="prox-al, range of clients"))
    handles.append(Line2D([], [], color="black", marker="|", linestyle="", label="end of an outer iteration"))
    handles.append(Line2D([], [], color="black", linewidth=0.8, linestyle=":", label="limit"))
    if records["server"].notna().any():
        handles.append(Line2D([], [], color=COLOURS["server"], linewidth=1.0, label="the server's rows"))
    return handles


def ends(records: pd.DataFrame) -> list[tuple[str, str]]:
    """Where each run ends."""
    header = ["set", "method", "rounds", "outer", "objective", "largest bounded value", "stationarity", "feasibility"]
    rows = []
    for (name, method), line in records.groupby(["set", "method"], sort=False):
        last = line.iloc[-1]
        largest = max(last["rows"]) if pd.isna(last["server"]) else max(*last["rows"], last["server"])
        residuals = [float(last["stationarity"]), float(last["distance"])]
        mark = "" if max(residuals) <= TOLERANCE else " (**not optimal**)"
        rows.append(
            [
                SETS[str(name)],
                f"{method}{mark}",
                str(last["round"]),
                str(last["outer"]),
                f"{np.mean(last['objectives']):.4f}",
                f"{largest:.4f}",
                *(f"{value:.1e}" for value in residuals),
            ]
        )
    return [("Where the runs end", markdown_table(header, rows))]
