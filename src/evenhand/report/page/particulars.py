"""Show feature weights, certificate, configuration, versions, checksums and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import tomli_w

from evenhand.report.page.answers import PARTS
from evenhand.report.page.charts import number
from evenhand.report.page.markup import Markup, details, joined, section, table, tag, void
from evenhand.report.record import RunRecord

MOST_WEIGHTS = 15
"""Weights drawn for each owner; the table has all of them."""
CERTIFICATE: Final = {
    "objective": "the training objective",
    "stationarity": "norm of the Lagrangian's gradient: zero at an optimum",
    "violation": "the largest violation of a constraint",
    "complementarity": "complementary slackness: the largest multiplier × slack",
    "converged": "whether the solver's stopping test passed",
    "rounds": "communication rounds",
    "bound": "the relative distance of the objective from the optimum is at most this",
    "estimate": "estimated relative distance of the objective from the optimum",
    "unmet": "which part of the stopping test failed",
}


def weights(record: RunRecord, identifier: str) -> Markup:
    if record.weights:
        shown, what = record.weights, "weight"
        words = "Weights of the encoded features. Numeric columns are standardised, so that sizes can be compared."
        drawn = "Largest weights of {}; positive weights favour the positive label"
    elif record.importances:
        shown, what = record.importances, "gain"
        words = "Columns by gain: how much splits on them reduced the objective."
        drawn = "Gain of splits on the columns of {}"
    else:
        return Markup("")
    parts = [
        joined([tag("h4", owner), _bars(drawn.format(owner), found), _all(owner, what, found)])
        for owner, found in shown.items()
        if len(found)
    ]
    return section(identifier, "Feature weights", tag("p", words), *parts, level=3)


def _bars(words: str, found: pd.Series[float]) -> Markup:
    largest = found.reindex(found.abs().sort_values(ascending=False).index)[:MOST_WEIGHTS]
    step, left, width = 22, 230, 640
    most = float(largest.abs().max()) or 1.0
    middle, reach = left + (width - left) / 2, (width - left) / 2 - 60
    drawn = []
    for place, (name, value) in enumerate(largest.items()):
        y, length = step * place + 4, reach * abs(value) / most
        shown = str(name) if len(str(name)) <= 34 else f"{str(name)[:33]}…"
        drawn += [
            tag("text", shown, x=left - 8, y=y + 12, text_anchor="end"),
            void(
                "rect",
                klass="bar" if value >= 0 else "bar below",
                x=round(middle if value >= 0 else middle - length, 1),
                y=y,
                width=round(length, 1),
                height=step - 7,
            ),
            tag(
                "text",
                number(float(value)),
                klass="tick",
                x=round(middle + (length + 5 if value >= 0 else -length - 5), 1),
                y=y + 12,
                text_anchor="start" if value >= 0 else "end",
            ),
        ]
    svg = tag(
        "svg",
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {step * len(largest) + 6}",
        role="img",
        aria_label=words,
        klass="chart",
    )
    return tag("figure", tag("figcaption", words), svg)


def _all(owner: str, what: str, found: pd.Series[float]) -> Markup:
    rows = [[str(name), (number(value, 4), value)] for name, value in found.items()]
    return details(f"All {len(found)}", table(["column", what], rows, caption=f"{owner}: {what}", numbers=(1,)))


def particulars(record: RunRecord, identifier: str) -> Markup:
    certificate = [
        joined(
            [
                tag("dt", name),
                tag("dd", f"{_shown(value)} – {CERTIFICATE[name]}" if name in CERTIFICATE else _shown(value)),
            ]
        )
        for name, value in record.result.get("certificate", {}).items()
        if value is not None
    ]
    files = [
        [name, entry.owner, (f"{entry.bytes:,}", entry.bytes), tag("code", entry.sha256)]
        for name, entry in record.files.items()
    ]
    written = tomli_w.dumps({key: value for key, value in record.description.items() if key != "base"})
    return section(
        identifier,
        "Details",
        joined([tag("h4", "Certificate"), tag("dl", *certificate)]) if certificate else "",
        details("Job file, with the version that ran it", tag("pre", written, tabindex=0)),
        details(
            "Files of the run, with SHA-256",
            table(["file", "belongs to", "bytes", "SHA-256"], files, caption="Files of the run", numbers=(2,)),
        )
        if files
        else "",
        level=3,
    )


def card(record: RunRecord, identifier: str) -> Markup:
    """Return a model card (Mitchell et al., 2019) from the run's records; gaps in it are named."""
    job = record.job
    owners = [one for key in ("party", "client") for one in record.description.get(key, []) if isinstance(one, Mapping)]
    labels = record.result.get("labels", {})
    sensitive = sorted({name for one in owners for name in _names(one.get("sensitive"))})
    counts = [f"{rows:,} {PARTS[part]}" for part in record.parts if (rows := record.rows(part))]
    split = (
        "the same people, different columns"
        if job.get("split") != "horizontal"
        else "the same columns, different people"
    )
    lines: dict[str, str] = {
        "Model": f"{job.get('model', 'linear')}, trained across {len(owners)} participants ({split})",
        "Predicts": f"{labels.get('positive', '?')} or {labels.get('negative', '?')}",
        "Rows": ", ".join(counts) or "not counted",
        "Sensitive attributes": ", ".join(sensitive) or "none named",
        "Constraint": _asked(job),
        "Not promised": "that gaps for new people are within the bound: the 95 % bound says what is proven",
        "Intended use": "not stated in the job; to be filled in by the model's owner",
    }
    content = joined(joined([tag("dt", name), tag("dd", words)]) for name, words in lines.items())
    return section(identifier, "Model card", tag("dl", content), level=3)


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []


def _asked(job: Mapping[str, Any]) -> str:
    asked = job.get("constraint", [])
    asked = asked if isinstance(asked, list) else [asked]
    words = [", ".join(f"{key} {value}" for key, value in one.items()) for one in asked if isinstance(one, Mapping)]
    return "; ".join(words) or "no constraint"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return {True: "yes", False: "no", None: "–"}.get(value, str(value))
    return number(value, 5)
