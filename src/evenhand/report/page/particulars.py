"""The rest: named weights, certificate, configuration, versions, checksums, and the model card."""

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
"""Drawn of each owner; all are in the table."""
CERTIFICATE: Final = {
    "objective": "what training made small",
    "stationarity": "length of the Lagrangian's gradient: zero at an optimum",
    "violation": "by how much the worst constraint row is missed",
    "complementarity": "largest product of a multiplier and the room its row has",
    "converged": "whether the solver's own test was met",
    "rounds": "communication rounds",
}


def weights(record: RunRecord, identifier: str) -> Markup:
    if record.weights:
        shown, what = record.weights, "weight"
        words = "Weights of the encoded columns: numbers are scaled to unit spread, so that sizes can be compared."
        drawn = "Largest weights of {}; to the right they speak for the positive label"
    elif record.importances:
        shown, what = record.importances, "gain"
        words = "Columns by gain: by how much splits on them lowered what training made small."
        drawn = "What splits on the columns of {} gained"
    else:
        return Markup("")
    parts = [
        joined([tag("h4", owner), _bars(drawn.format(owner), found), _all(owner, what, found)])
        for owner, found in shown.items()
        if len(found)
    ]
    return section(identifier, "What the model goes by", tag("p", words), *parts, level=3)


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
    ]
    files = [
        [name, entry.owner, (f"{entry.bytes:,}", entry.bytes), tag("code", entry.sha256)]
        for name, entry in record.files.items()
    ]
    written = tomli_w.dumps({key: value for key, value in record.description.items() if key != "base"})
    return section(
        identifier,
        "Particulars",
        joined([tag("h4", "Certificate"), tag("dl", *certificate)]) if certificate else "",
        details("The job, as it was asked for, with the version that ran it", tag("pre", written, tabindex=0)),
        details(
            "Files of the run and their SHA-256 digests",
            table(["file", "belongs to", "bytes", "SHA-256"], files, caption="Files of the run", numbers=(2,)),
        )
        if files
        else "",
        level=3,
    )


def card(record: RunRecord, identifier: str) -> Markup:
    """A model card (Mitchell et al., 2019) from what the run knows; what it does not know, it says so."""
    job = record.job
    owners = [one for key in ("party", "client") for one in record.description.get(key, []) if isinstance(one, Mapping)]
    labels = record.result.get("labels", {})
    sensitive = sorted({name for one in owners for name in _names(one.get("sensitive"))})
    counts = [f"{rows:,} {PARTS[part]}" for part in record.parts if (rows := record.rows(part))]
    split = (
        "the same people, different columns" if job.get("split") != "horizontal" else "the same columns, other people"
    )
    lines: dict[str, str] = {
        "Model": f"{job.get('model', 'linear')}, trained across {len(owners)} holders of data ({split})",
        "Decides": f"{labels.get('positive', '?')} or {labels.get('negative', '?')}",
        "Rows": ", ".join(counts) or "not counted",
        "Groups looked at": ", ".join(sensitive) or "none were named",
        "Asked for": _asked(job),
        "Does not promise": "that gaps among new people are within what was asked: the 95 % bound says what is proven",
        "Intended use": "not stated in the job; whoever puts the model to use says it here",
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
