"""Tables of results: for the terminal (metrics, constraints, certificate, bytes per link) and as safe CSV."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from evenhand.metrics.classes import CLASSES, GAPS_OF_CLASSES
from evenhand.metrics.gaps import METRICS
from evenhand.metrics.performance import PERFORMANCE
from evenhand.metrics.regression import MEANINGS
from evenhand.printing import printable
from evenhand.protocol.roles import Report
from evenhand.protocol.transcript import Transcript
from evenhand.report.record import RunRecord, Target, target_of

QUALITY: Final[Mapping[Target, tuple[str, ...]]] = {
    "binary": ("accuracy", "DFP", "DFN", "DEO", "HM"),
    "classes": ("accuracy", "DP", "DFN"),
    "numbers": ("D2", "MAE", "mean_loss", "prediction_gap", "loss_gap"),
}
"""Metrics that runs are compared by, for each kind of target."""


def compare(results: Mapping[str, Mapping[str, Any]], rows: str = "test", title: str | None = None) -> Table:
    """Return one line for each run: metrics on the given rows, then rounds and bytes.

    Below the values stand their standard errors and the 95 % upper confidence bounds of gaps for new people.
    """
    table = BareTable(title)
    table.add_column("", no_wrap=True)
    shown = [name for target in dict.fromkeys(map(target_of, results.values())) for name in QUALITY[target]]
    if any(one["measure"] == "positive" for result in results.values() for one in _bounded(result)) and "HM" in shown:
        # The gap that is bounded takes the place of a summary of another one.
        shown = ["accuracy", "DP", "DFP", "DFN", "DEO"]
    found_in = [result["quality"][rows] for result in results.values()]
    columns = [name for name in dict.fromkeys(shown) if any(one.get(name) is not None for one in found_in)]
    for name in (*columns, "rounds", "bytes"):
        table.add_column(SHORT_NAMES.get(name, name), justify="right", no_wrap=True)
    for name, result in results.items():
        price = (str(result["certificate"]["rounds"]), decimal(result["bytes"]))
        table.add_row(as_text(name), *_cells(result["quality"][rows], columns), *price)
        for words, kind in {"  ± s.e.": "standard_errors", "  ≤ 95 %": "bounds"}.items():
            if found := result.get(kind, {}).get(rows):
                table.add_row(words, *_cells(found, columns), style="dim")
    return table


def _bounded(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = result.get("constraints", {}).get("train", [])
    return found


SHORT_NAMES: Final = {"D2": "D²", "mean_loss": "loss", "prediction_gap": "pred. gap", "loss_gap": "loss gap"}
"""How a table's heading writes long names of metrics."""


def _cells(found: Mapping[str, float | None], columns: Sequence[str]) -> list[str]:
    return [_number(found.get(name)) for name in columns]


def _number(value: float | None) -> str:
    """Return a rate with three decimals, and a large amount without any."""
    return "" if value is None else f"{value:.3f}" if abs(value) < 1000.0 else f"{value:,.0f}"


def _cell(value: float | None) -> str:
    """Return a rate with four decimals, and an amount with as many digits as 80 columns have room for."""
    if value is None:
        return ""
    digits = 4 if abs(value) < 100.0 else 1 if abs(value) < 1000.0 else 0
    return f"{value:,.{digits}f}"


def quality_table(result: Mapping[str, Any], rows: str) -> Table:
    """Return every metric of a run with its standard error, 95 % interval and, for a gap, its upper bound."""
    table = BareTable(f"quality on {rows} rows")
    for column in ("metric", "value", "± s.e.", "95 % interval", "≤ 95 %"):
        table.add_column(column, no_wrap=True)
    errors, bounds = (result.get(kind, {}).get(rows, {}) for kind in ("standard_errors", "bounds"))
    for name, value in result["quality"][rows].items():
        low_high = result["intervals"][rows].get(name)
        interval = "" if low_high is None else f"{_cell(low_high[0])} to {_cell(low_high[1])}"
        numbers = _cell(value), _cell(errors.get(name)), interval, _cell(bounds.get(name))
        table.add_row(as_text(name), *numbers)
    known = {**MEANINGS, **{name: metric.meaning for name, metric in METRICS.items()}}
    if "classes" in result:
        known |= GAPS_OF_CLASSES
    return _explained(table, {name: known[name] for name in result["quality"][rows] if name in known})


def _explained(table: BareTable, meanings: Mapping[str, str]) -> Table:
    """Put what names mean below a table, where a line has room for it."""
    table.notes = [f"{name}: {words}" for name, words in meanings.items()]
    return table


def class_tables(result: Mapping[str, Any], rows: str) -> list[Table]:
    """Return the metrics of each class, and the confusion matrix, if there are three classes or more."""
    found = result.get("classes", {}).get(rows)
    if found is None:
        return []
    each = BareTable(f"each class against the others on {rows} rows: value and half of its 95 % interval")
    each.add_column("class", overflow="fold")
    each.add_column("rows", justify="right", no_wrap=True)
    for name in SHORT.values():
        each.add_column(name, justify="right", no_wrap=True)
    for one in found["metrics"]:
        cells = [_with_spread(one["metrics"][name]) for name in SHORT]
        each.add_row(as_text(one["label"]), f"{one['positives']:,}", *cells)
    _explained(each, {SHORT[name]: words for name, words in CLASSES.items() if name in SHORT})
    if len(found["metrics"]) > MOST_PREDICTED:
        return [each]
    matrix = BareTable(f"{rows} rows by true class and predicted class")
    matrix.add_column("true class", overflow="fold")
    for one in found["metrics"]:
        matrix.add_column(as_text(f"predicted {one['label']}"), justify="right", overflow="fold")
    for one, counts in zip(found["metrics"], found["confusion"], strict=True):
        matrix.add_row(as_text(one["label"]), *(f"{count:,}" for count in counts))
    return [each, matrix]


def performance_tables(result: Mapping[str, Any], rows: str) -> list[Table]:
    """Return how scores rank and decide on these rows: for everybody, and for each group or class."""
    if "classes" in result:
        return class_tables(result, rows)
    found = result.get("performance", {}).get(rows, [])
    if not found:
        return []
    at = f", decided at score {result['cut']['score']:.3f}" if "cut" in result else ""
    if result.get("cut", {}).get("by") is not None:
        at = f", decided at a cut for each group of {result['cut']['by']}"
    whole = BareTable(f"ranking and decisions on {rows} rows{at}")
    for column in ("metric", "value", "95 % interval"):
        whole.add_column(column, no_wrap=True)
    for name, (value, low, high) in found[0]["metrics"].items():
        interval = "" if low is None else f"{low:.4f} to {high:.4f}"
        whole.add_row(name, _cell(value), interval)
    _explained(whole, {name: PERFORMANCE[name] for name in found[0]["metrics"]})
    if len(found) == 1:
        return [whole]
    groups = BareTable("the same by group: value and half the width of its 95 % interval")
    groups.add_column("group", overflow="fold")
    groups.add_column("rows", justify="right", no_wrap=True)
    for name in SHORT.values():
        groups.add_column(name, justify="right", no_wrap=True)
    for one in found[1:]:
        cells = [_with_spread(one["metrics"][name]) for name in SHORT]
        groups.add_row(as_text(f"{one['attribute']} {one['group']}"), f"{one['rows']:,}", *cells)
    return [whole, groups]


SHORT: Final = {
    "base_rate": "base rate",
    "selection_rate": "selected",
    "recall": "recall",
    "precision": "precision",
    "AUC": "AUC",
}
"""Metrics of a group that fit into 80 columns, and what heads them."""


MOST_PREDICTED: Final = 5
"""Classes whose confusion matrix fits into 80 columns; the page has every one."""


def _with_spread(one: Sequence[float | None]) -> str:
    value, low, high = one
    if value is None:
        return ""
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f}±{(high - low) / 2:.2f}"


def constraints_table(result: Mapping[str, Any]) -> Table | None:
    """Return how far the constraints hold on training and held-out rows; None if nothing was measured."""
    found = [(part, one) for part, held in result.get("constraints", {}).items() for one in held]
    if not found:
        return None
    table = BareTable("constraints")
    for name in ("rows", "asked", "value", "± s.e.", "≤ 95 %"):
        table.add_column(name, no_wrap=True)
    # The longest column comes last, where it can wrap.
    table.add_column("constraint, and where it is tightest", overflow="fold")
    for part, one in found:
        numbers = [_cell(one[name]) for name in ("estimate", "standard_error", "bound")]
        table.add_row(part, f"{one['asked']:g}", *numbers, as_text(f"{one['constraint']}: {one['row']}"))
    return table


def proofs_table(result: Mapping[str, Any]) -> Table | None:
    """Return what the training rows prove for new people; None if no constraint asks for confidence."""
    if not (found := result.get("proofs")):
        return None
    table = BareTable("proven for new people, from the training rows")
    for name in ("asked", "proven", ""):
        table.add_column(name, no_wrap=True)
    table.add_column("constraint that needs it", overflow="fold")
    for one in found:
        verdict = "holds" if one["holds"] else "not proven"
        table.add_row(f"{one['asked']:g}", _cell(one["bound"]), verdict, as_text(one["row"]))
    return table


class BareTable(Table):
    """A table with a heading and notes, which are as wide as the terminal and not as the table."""

    def __init__(self, heading: str | None, *columns: str, show_header: bool = True) -> None:
        super().__init__(*columns, show_header=show_header, box=SIMPLE_HEAD, pad_edge=False)
        self.heading = heading
        self.notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.heading is not None:
            yield Text(printable(self.heading), style="italic")
        yield from super().__rich_console__(console, options)
        if self.notes:
            yield Text("\n".join([*map(printable, self.notes), ""]), style="dim")


def as_text(name: str) -> Text:
    """Return a name as plain text, without markup or control characters."""
    return Text(printable(name))


DISTANCES = {"bound": "distance from optimum, at most", "estimate": "distance from optimum, estimated"}


def certificate_table(certificate: Mapping[str, Any]) -> Table:
    """Return the certificate as a table, without what was not measured."""
    table = BareTable("certificate", show_header=False)
    for name, value in certificate.items():
        if value is not None:
            shown = f"{value:.3e}" if isinstance(value, float) else str(value)
            table.add_row(as_text(DISTANCES.get(name, name)), shown)
    return table


def links_table(transcript: Transcript) -> Table:
    table = BareTable("communication", "from", "to", "messages", "bytes")
    for sender, receiver, messages, nbytes in transcript.by_link().reset_index().itertuples(index=False, name=None):
        table.add_row(as_text(sender), as_text(receiver), str(messages), decimal(int(nbytes)))
    return table


# A cell becomes a formula by its first character, or by one after a separator that some spreadsheets honour.
_FORMULA: Final = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r＝＋－＠])")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?")


def csv_text(table: pd.DataFrame, *, as_is: bool = False) -> str:
    """Return a table and its index as CSV.

    Parameters
    ----------
    as_is
        Do not escape text. By default an apostrophe is put before text that a spreadsheet would run as a formula:
        text that begins with ``= + - @`` or a tab and is not a number.
    """
    if as_is:
        return _written(table, index=True)
    levels = [table.index.get_level_values(level) for level in range(table.index.nlevels)]
    columns = [level.to_series(index=pd.RangeIndex(len(table))) for level in levels]
    columns += [table.iloc[:, place].reset_index(drop=True) for place in range(table.shape[1])]
    names = [harmless("" if name is None else name) for name in (*table.index.names, *table.columns)]
    whole = pd.concat([_harmless_column(column) for column in columns], axis=1)
    return _written(whole, index=False, header=names)


def _written(table: pd.DataFrame, **settings: Any) -> str:
    text = table.to_csv(**settings)
    # Python before 3.13 does not quote a carriage return, which most programs read as a row end.
    return table.to_csv(quoting=csv.QUOTE_NONNUMERIC, **settings) if "\r" in text else text


def harmless(cell: Any) -> Any:
    """Return a cell that a spreadsheet does not run as a formula."""
    return _FORMULA.sub("'", cell) if isinstance(cell, str) and _NUMBER.fullmatch(cell) is None else cell


def _harmless_column(column: pd.Series) -> pd.Series:
    is_text = isinstance(column.dtype, pd.CategoricalDtype) or not pd.api.types.is_numeric_dtype(column)
    return column.astype(object).map(harmless) if is_text else column


class Progress:
    """Show a progress bar; the solver may stop long before the round limit."""

    def __init__(self, max_rounds: int, *, title: str = "training", enabled: bool = True) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("objective {task.fields[objective]:.5f}  violation {task.fields[violation]:.1e}"),
            TextColumn("{task.fields[distance]}"),
            TimeElapsedColumn(),
        )
        self._bar = Bar(*columns, console=Console(stderr=True), disable=not enabled)
        nothing = float("nan")
        self._task = self._bar.add_task(title, total=max_rounds, objective=nothing, violation=nothing, distance="")
        self._enabled = enabled

    def round(self, report: Report) -> None:
        if self._enabled:
            # Messages between machines carry finite numbers only, so a value may be missing.
            objective, violation = (report.get(name, float("nan")) for name in ("objective", "violation"))
            distance = _distance(report)
            done = report["round"]
            self._bar.update(self._task, completed=done, objective=objective, violation=violation, distance=distance)

    def __enter__(self) -> Self:
        # Older versions of rich print a line end even without a bar.
        if self._enabled:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._bar.stop()


def _distance(report: Report) -> str:
    """Return the distance from the optimum as text, if it is known."""
    if "bound" in report:
        return f"distance ≤ {report['bound']:.1e}"
    return f"distance ≈ {report['estimate']:.1e}" if "estimate" in report else ""


_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return values as a sparkline of at most `width` characters; the last value is kept."""
    kept = np.asarray(values, dtype=float)[np.unique(np.linspace(0, len(values) - 1, width).astype(int))]
    finite = kept[np.isfinite(kept)]
    if not len(finite):
        return ""
    low, spread = float(finite.min()), float(np.ptp(finite)) or 1.0
    return "".join(
        _LEVELS[int((len(_LEVELS) - 1) * (value - low) / spread)] if math.isfinite(value) else " " for value in kept
    )


def standing(record: RunRecord) -> RenderableType:
    """Return the round, the objective and violation so far, and what each participant has sent."""
    running = "" if record.finished else ", running"
    if not record.history.empty:
        head = Text(f"{printable(record.name)}: round {record.history.iloc[-1]['round']:.0f}{running}")
    elif record.messages:
        # A party knows no rounds; the server counts them.
        head = Text(f"{printable(record.name)}: the side of {printable(record.side or 'a participant')}{running}")
    else:
        return Text(f"{printable(record.name)}: no round has finished yet")
    lines = Table(box=None, show_header=False, pad_edge=False)
    for name in ("objective", "violation"):
        if name in record.history:
            line = record.history[name].astype(float).tolist()
            lines.add_row(name, f"{line[-1]:.5g}", Text(sparkline(line), style="cyan"))
    sent = Table("sent by", "messages", "bytes", box=SIMPLE_HEAD, pad_edge=False)
    for sender, found in record.traffic.groupby("sender", sort=False)[["messages", "nbytes"]].sum().iterrows():
        sent.add_row(Text(printable(str(sender))), f"{found['messages']:,.0f}", decimal(int(found["nbytes"])))
    return Group(head, lines, sent)
