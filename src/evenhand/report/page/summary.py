"""Summarise a run in plain words: what the model predicts, from which data, and what it uses (Mitchell et al., 2019).

Facts that only people know come from `[card]` in the job; the summary names those that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.markup import Markup, definitions, details, joined
from evenhand.report.record import RunRecord

MOST_NAMES: Final = 12
"""Names of columns listed at once; the others are a click away."""
_MODELS: Final = {
    "linear": "linear model",
    "mlp": "neural network",
    "trees": "trees",
    "own": "models of the parties' own choice",
    "resnet18": "ResNet-18",
}


def summary(record: RunRecord) -> Markup:
    """Return the facts that a reader needs first."""
    card = record.description.get("card") or {}
    lines: dict[str, Any] = {
        "Model": _model(record),
        "Owner": card.get("owner") or _missing("owner"),
        "Use": card.get("use") or _missing("use"),
        "Trained": record.started or "the run does not say when",
        "Data period": card.get("period") or _missing("period"),
        "Rows": _rows(record),
        **_outcome(record),
        "Constraint": _asked(record.job),
        "Features used": _used(record),
        "Left out": _left_out(record),
        "Disclosure": record.result.get("disclosure"),
    }
    return definitions({name: words for name, words in lines.items() if words})


def _missing(key: str) -> str:
    return f"not stated; add card.{key} to the job"


def _model(record: RunRecord) -> str:
    given = record.job.get("model", "linear")
    kind = str(given.get("kind", "linear") if isinstance(given, Mapping) else given)
    kind = "trees" if record.job.get("solver") == "trees" else kind
    across = "the same columns, different people" if record.horizontal else "the same people, different columns"
    labels = record.result.get("labels", {})
    said = f"{_MODELS.get(kind, kind)} across {len(record.owners)} participants ({across})"
    if "classes" in labels:
        return f"{said}, which predicts one of {', '.join(map(str, labels['classes']))}"
    if "loss" in labels:
        return f"{said}, which predicts a number ({labels['loss']} loss)"
    return f"{said}, which predicts {labels['positive']} or {labels['negative']}" if "positive" in labels else said


def _rows(record: RunRecord) -> str:
    counts = [f"{rows:,} {PARTS[part]}" for part in record.parts if (rows := record.rows(part))]
    return ", ".join(counts)


def _outcome(record: RunRecord) -> dict[str, str]:
    """Return the base rate, and where the cut is."""
    part, labels = part_shown(record), record.result.get("labels", {})
    found, cut = record.result.get("performance", {}).get(part), record.result.get("cut")
    lines = {}
    if (classes := record.result.get("classes", {}).get(part)) is not None:
        shares = ", ".join(f"{one['label']} {100 * one['positives'] / one['rows']:.1f} %" for one in classes["metrics"])
        lines["Base rates"] = f"{shares} of the {PARTS[part]} rows"
        lines["Decision"] = "the class with the highest score"
    if found:
        rows, positives = found[0]["rows"], found[0]["positives"]
        share = positives / rows if rows else 0.0
        lines["Base rate"] = f"{100 * share:.1f} % of the {PARTS[part]} rows are {labels.get('positive', 'positive')}"
    if cut:
        by = "" if cut["chosen_on"] is None else f", by the rule {cut['rule']} on {cut['chosen_on']}"
        lines["Cut"] = f"selected above score {cut['score']:.3f}, probability {cut['probability']:.3f}{by}"
        if cut.get("by") is not None:
            cuts = ", ".join(f"{group} above score {score:.3f}" for group, score in cut["groups"].items())
            lines["Cut"] = f"a cut for each group of {cut['by']}: {cuts}{by}. Decisions use this attribute"
        if found:
            share = found[0]["selected"] / found[0]["rows"]
            lines["Selected"] = f"{100 * share:.1f} % of the {PARTS[part]} rows"
    return lines


def _asked(job: Mapping[str, Any]) -> str:
    asked = job.get("constraint", [])
    asked = asked if isinstance(asked, list) else [asked]
    words = [", ".join(f"{key} {value}" for key, value in one.items()) for one in asked if isinstance(one, Mapping)]
    return "; ".join(words) or "no constraint"


def _used(record: RunRecord) -> Markup:
    lines = []
    for owner, kinds in record.columns.items():
        names = [name for name, kind in kinds.items() if kind != "nothing"]
        shown, rest = ", ".join(names[:MOST_NAMES]), names[MOST_NAMES:]
        lines.append(joined([f"{owner}: {shown}" + (f" and {len(rest):,} more" if rest else "")]))
        if rest:
            lines.append(details(f"All {len(names):,} of {owner}", ", ".join(names)))
        else:
            lines.append(Markup("<br/>"))
    return joined(lines)


def _left_out(record: RunRecord) -> str:
    """Name the columns that the model does not see, with the reason."""
    used = {name for kinds in record.columns.values() for name, kind in kinds.items() if kind != "nothing"}
    data = record.description.get("data")
    sections = [*record.owners, *([data] if isinstance(data, Mapping) else [])]
    reasons: dict[str, str] = {}
    for one in sections:
        label = one.get("label")
        for name, why in (
            *((name, "sensitive") for name in _names(one.get("sensitive"))),
            *((name, "label") for name in _names(label.get("column") if isinstance(label, Mapping) else None)),
            *((name, "id") for name in _names(one.get("id"))),
            *((name, "sample weight") for name in _names(one.get("weight"))),
            *((name, "by the job") for name, kind in (one.get("types") or {}).items() if kind == "leave out"),
        ):
            reasons.setdefault(name, why)
    reasons |= {
        name: "no use" for kinds in record.columns.values() for name, kind in kinds.items() if kind == "nothing"
    }
    said = [f"{name} ({why})" for name, why in reasons.items() if name not in used or why == "no use"]
    if any(one.get("columns") is not None for one in sections):
        said.append("every column that the job does not list")
    return ", ".join(said)


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []
