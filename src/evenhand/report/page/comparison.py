"""Compare several runs: a sentence and a line for each, and accuracy against the gap that the constraint bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.filesize import decimal

from evenhand.metrics.gaps import METRICS
from evenhand.report.frontier import LABELS, best_balance
from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.markup import Markup, definitions, details, section, table, tag
from evenhand.report.page.plane import PlanePoint, plane_chart
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import in_short

QUALITY: Final = ("accuracy", "DFP", "DFN", "DP", "DEO")


def comparison(records: Sequence[RunRecord], identifier: str) -> Markup:
    """Compare several runs; one without a constraint shows what the constraint costs."""
    columns = ["run", *QUALITY, "rounds", "bytes"]
    rows = [[record.name, *(_quality(record, key) for key in QUALITY), *_price(record)] for record in records]
    said = [
        tag("li", tag("strong", record.name), ": ", in_short(record.result, record.constrained)) for record in records
    ]
    return section(
        identifier,
        "Comparison of runs",
        tag("ul", *said),
        _plane(records),
        table(columns, rows, caption=f"on {_rows(records)}, ± standard error", numbers=range(1, len(columns))),
        details("What these mean", definitions({name: METRICS[name].meaning for name in QUALITY})),
    )


def _rows(records: Sequence[RunRecord]) -> str:
    parts = dict.fromkeys(PARTS[part_shown(record)] for record in records)
    return f"{' or '.join(parts)} rows"


def _plane(records: Sequence[RunRecord]) -> Markup:
    """Plot accuracy against the gap; runs under different bounds form a frontier."""
    moved, others = _moved(records)
    gap = _gap_of(moved)
    points, asked = {}, {}
    for record in records:
        part = part_shown(record)
        quality, ranges = record.result["quality"][part], record.result.get("intervals", {}).get(part, {})
        if quality.get(gap) is None:
            continue
        bound = next((one["asked"] for one in _constraints(record) if _same(one, moved)), None)
        if bound is not None:
            asked[record.name] = bound
        accuracy = ranges.get("accuracy")
        points[record.name] = PlanePoint(
            quality[gap],
            100 * quality["accuracy"],
            ranges.get(gap),
            None if accuracy is None else (100 * accuracy[0], 100 * accuracy[1]),
        )
    if not points:
        return Markup("")
    names = sorted(asked, key=lambda name: -asked[name]) if len(set(asked.values())) > 2 else []
    places = {name: (point.x, point.y / 100) for name, point in points.items()}
    without = next((place for name, place in places.items() if name not in asked), None)
    best = best_balance({name: places[name] for name in names}, without)
    words = "What fairness costs, with 95 % intervals"
    if names and others:
        words += f". The bound of {_named(moved)} changes; the job also keeps {others}"
    if best is not None:
        words += (
            f". {best} (ringed) has the best balance of accuracy and 1 − gap on these rows"
            f"{'' if without is None else ', among bounds that change the model'}"
        )
    elif names:
        words += ". No bound changes the model on these rows"
    axes = {"x_label": LABELS.get(gap, gap), "y_label": "accuracy, %"}
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


def _gap_of(one: Mapping[str, Any] | None) -> str:
    """Return the metric that a constraint bounds."""
    if one is None or one["measure"] == "loss":
        return "DEO"
    if one["measure"] == "positive":
        return "DP"
    return "equalized_odds" if one["constraint"] == "equalized-odds" else "DFN"


def _quality(record: RunRecord, key: str) -> Any:
    part = part_shown(record)
    value = record.result["quality"][part].get(key)
    if value is None:
        return ("–", "")
    error = record.result.get("standard_errors", {}).get(part, {}).get(key)
    return (f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}"), value)


def _price(record: RunRecord) -> list[Any]:
    return [record.result["certificate"]["rounds"], (decimal(record.result["bytes"]), record.result["bytes"])]
