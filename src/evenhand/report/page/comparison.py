"""Compare several runs: a sentence and a line for each, and accuracy against the gap that the constraint bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.filesize import decimal

from evenhand.metrics.classes import GAPS_OF_CLASSES
from evenhand.metrics.gaps import METRICS
from evenhand.metrics.performance import PERFORMANCE
from evenhand.metrics.regression import MEANINGS
from evenhand.report.frontier import LABELS, best_balance
from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.charts import number
from evenhand.report.page.markup import Markup, definitions, details, section, table, tag
from evenhand.report.page.plane import PlanePoint, plane_chart
from evenhand.report.record import RunRecord, Target
from evenhand.report.tables import SHORT
from evenhand.report.verdicts import in_short

QUALITY: Final[Mapping[Target, tuple[str, ...]]] = {
    "binary": ("accuracy", "AUC", "recall", "selection_rate", "DFP", "DFN", "DP", "DEO"),
    "classes": ("accuracy", "DP", "DFN"),
    "numbers": ("D2", "MAE", "mean_loss", "prediction_gap", "loss_gap"),
}
"""Metrics of the table, for each kind of target."""
MEANING: Final = {**{name: metric.meaning for name, metric in METRICS.items()}, **MEANINGS, **PERFORMANCE}


def comparison(records: Sequence[RunRecord], identifier: str) -> Markup:
    """Compare several runs; one without a constraint shows what the constraint costs."""
    targets = dict.fromkeys(record.target for record in records)
    every = dict.fromkeys(name for target in targets for name in QUALITY[target])
    metrics = [name for name in every if any(_value(record, name) is not None for record in records)]
    bounded = [_gap_of(one, record.target) for record in records for one in _constraints(record)]
    if bounded and "DEO" in metrics and "DEO" not in bounded:
        metrics.remove("DEO")
    columns = ["run", *(SHORT.get(name, name) for name in metrics), "rounds", "bytes"]
    rows = [[record.name, *(_quality(record, key) for key in metrics), *_price(record)] for record in records]
    meanings = {**MEANING, **(GAPS_OF_CLASSES if list(targets) == ["classes"] else {})}
    said = [
        tag("li", tag("strong", record.name), ": ", in_short(record.result, record.constrained)) for record in records
    ]
    return section(
        identifier,
        "Comparison of runs",
        tag("ul", *said),
        _plane(records),
        table(columns, rows, caption=f"on {_rows(records)}; ± standard error", numbers=range(1, len(columns))),
        details("What these mean", definitions({SHORT.get(name, name): meanings[name] for name in metrics})),
    )


def _rows(records: Sequence[RunRecord]) -> str:
    parts = dict.fromkeys(PARTS[part_shown(record)] for record in records)
    return f"{' or '.join(parts)} rows"


def _plane(records: Sequence[RunRecord]) -> Markup:
    """Plot accuracy against the gap; runs under different bounds form a frontier."""
    if len({record.target for record in records}) > 1:
        return Markup("")
    moved, others = _moved(records)
    gap, good = _gap_of(moved, records[0].target), "D2" if records[0].target == "numbers" else "accuracy"
    points, asked = {}, {}
    for record in records:
        part = part_shown(record)
        quality, ranges = record.result["quality"][part], record.result.get("intervals", {}).get(part, {})
        if quality.get(gap) is None:
            continue
        bound = next((one["asked"] for one in _constraints(record) if _same(one, moved)), None)
        if bound is not None:
            asked[record.name] = bound
        height = ranges.get(good)
        points[record.name] = PlanePoint(
            quality[gap],
            100 * quality[good],
            ranges.get(gap),
            None if height is None else (100 * height[0], 100 * height[1]),
        )
    if not points:
        return Markup("")
    names = sorted(asked, key=lambda name: -asked[name]) if len(set(asked.values())) > 2 else []
    places = {name: (point.x, point.y / 100) for name, point in points.items()}
    without = next((place for name, place in places.items() if name not in asked), None)
    # A gap between mean predictions has a unit, so it cannot be weighed against a share.
    weighed = [] if good == "D2" else names
    best = best_balance({name: places[name] for name in weighed}, without)
    words = "What fairness costs, with 95 % intervals"
    if names and others:
        words += f". The bound of {_named(moved)} changes; the job also keeps {others}"
    if best is not None:
        words += (
            f". {best} (ringed) has the best balance of accuracy and 1 − gap on these rows"
            f"{'' if without is None else ', among bounds that change the model'}"
        )
    elif weighed:
        words += ". No bound changes the model on these rows"
    axes = {"x_label": LABELS.get(gap, gap), "y_label": "accuracy, %" if good == "accuracy" else "D², %"}
    return plane_chart(words, points, **axes, y_least=2.0, joined_names=names, chosen=best)


def _constraints(record: RunRecord) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = record.result.get("constraints", {}).get("train", [])
    return found


def _moved(records: Sequence[RunRecord]) -> tuple[Mapping[str, Any] | None, str]:
    """Return the first constraint of which runs have different bounds, or the first of all; and the others in words."""
    every = [one for record in records for one in _constraints(record)]
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    bounds: dict[tuple[str, str], set[float]] = {}
    for one in every:
        first.setdefault((one["constraint"], one["measure"]), one)
        bounds.setdefault((one["constraint"], one["measure"]), set()).add(one["asked"])
    moved = next((name for name, asked in bounds.items() if len(asked) > 1), next(iter(bounds), None))
    kept = (f"{_named(one)} within {one['asked']:g}" for name, one in first.items() if name != moved)
    return None if moved is None else first[moved], " and ".join(kept)


def _same(one: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and all(one[key] == other[key] for key in ("constraint", "measure"))


def _named(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else str(one["constraint"]).replace("-", " ")


def _gap_of(one: Mapping[str, Any] | None, target: Target) -> str:
    """Return the metric that a constraint bounds."""
    if target == "numbers":
        return "loss_gap" if one is not None and one["measure"] == "loss" else "prediction_gap"
    if target == "classes":
        return "DP" if one is not None and one["measure"] == "positive" else "DFN"
    if one is None or one["measure"] == "loss":
        return "DEO"
    if one["measure"] == "positive":
        return "DP"
    return "equalized_odds" if one["constraint"] == "equalized-odds" else "DFN"


def _value(record: RunRecord, key: str) -> float | None:
    """Return a metric of the rows that are shown: of decisions and gaps, or of everybody's ranking."""
    part = part_shown(record)
    found = record.result["quality"][part].get(key)
    if found is None and (ranked := record.result.get("performance", {}).get(part)):
        found = ranked[0]["metrics"].get(key, (None,))[0]
    return None if found is None else float(found)


def _quality(record: RunRecord, key: str) -> Any:
    part, value = part_shown(record), _value(record, key)
    if value is None:
        return ("–", "")
    error = record.result.get("standard_errors", {}).get(part, {}).get(key)
    shown = number(value) if abs(value) >= 1000.0 else f"{value:.3f}"
    spread = "" if error is None else f" ± {number(error) if abs(value) >= 1000.0 else f'{error:.3f}'}"
    return (shown + spread, value)


def _price(record: RunRecord) -> list[Any]:
    return [record.result["certificate"]["rounds"], (decimal(record.result["bytes"]), record.result["bytes"])]
