"""Show feature weights, certificate, configuration, versions and checksums."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import tomli_w

from evenhand.report.page.bars import Bar, bar_chart
from evenhand.report.page.charts import number
from evenhand.report.page.markup import Markup, details, joined, section, table, tag
from evenhand.report.record import RunRecord

MOST_WEIGHTS = 15
"""Weights drawn for each owner; the table has all of them."""
CERTIFICATE: Final = {
    "objective": "The training objective: the mean loss with the regulariser. It compares runs on the same rows.",
    "stationarity": "Norm of the Lagrangian's gradient. It is zero at an optimum; solvers stop below a tolerance.",
    "violation": "How far the worst constraint is above its bound on the training rows; 0 if all hold.",
    "complementarity": (
        "The largest product of a multiplier and the slack of its constraint. Near zero, constraints either hold with "
        "equality or do not act: a constraint that could give way is not paid for."
    ),
    "converged": "Whether the solver's stopping test passed. If not, more rounds may give another model.",
    "rounds": "How often the participants exchanged messages to improve the model.",
    "bound": (
        "A proof: the objective is above the best possible one by at most this share. 0.001 means that no other model "
        "of this kind is better by more than 0.1 %."
    ),
    "estimate": (
        "An estimate, not a proof, of the share by which the objective is above the best possible one. It is seldom "
        "too small, and often much nearer than the bound. Where the problem is not convex, no bound is known."
    ),
    "without": "Parties that were gone in the middle of training. The certificate is of the model without them.",
    "unmet": "Which part of the stopping test failed.",
}
"""What each value of the certificate means."""


def weights(record: RunRecord, identifier: str) -> Markup:
    if record.weights:
        shown, what = record.weights, "weight"
        words = "Weights of the encoded features. All participants' bars have one scale."
        drawn = "Largest weights of {}; positive weights favour the positive label"
        if record.target == "classes":
            words += " A positive weight favours its class. Bars show how far a feature's weights lie apart."
            drawn = "Largest distances between weights of {}"
    elif record.importances:
        own = record.job.get("solver") == "learners" or record.job.get("model") == "own"
        what = "change of score" if own else "gain"
        shown = {owner: found.to_frame(what) for owner, found in record.importances.items()}
        words = "Columns by gain: how much splits on them reduced the objective. All bars have one scale."
        if own:
            words = (
                "Columns by permutation: how much a row's score changes, on average over some training rows, when the "
                "column has another row's value. Each party computed its own. All bars have one scale."
            )
        drawn = "Gain of splits on the columns of {}"
    else:
        return Markup("")
    amounts = {owner: _amounts(found) for owner, found in shown.items() if len(found)}
    most = max((float(found.abs().max()) for found in amounts.values()), default=1.0)
    parts = [
        joined([tag("h4", owner), _bars(drawn.format(owner), found, most), _all(owner, what, shown[owner])])
        for owner, found in amounts.items()
    ]
    return section(identifier, "Feature weights", tag("p", words), *parts, level=3)


def _amounts(found: pd.DataFrame) -> pd.Series[float]:
    """Return the amount that a bar shows of each feature: its weight, or the distance between those of classes."""
    return found.iloc[:, 0] if found.shape[1] == 1 else found.max(axis=1) - found.min(axis=1)


def _bars(words: str, found: pd.Series[float], most: float) -> Markup:
    """Draw the largest amounts; the longest bar of all owners is `most`."""
    largest = found.reindex(found.abs().sort_values(ascending=False).index)[:MOST_WEIGHTS]
    rows = [Bar(str(name), float(value), number(float(value))) for name, value in largest.items()]
    return bar_chart(words, rows, most, signed=bool((found < 0).any()))


def _all(owner: str, what: str, found: pd.DataFrame) -> Markup:
    rows = [[str(name), *((number(one, 4), one) for one in line)] for name, *line in found.itertuples(name=None)]
    columns, numbers = ["column", *map(str, found.columns)], range(1, found.shape[1] + 1)
    return details(f"All {len(found)}", table(columns, rows, caption=f"{owner}: {what}", numbers=numbers))


def particulars(record: RunRecord, identifier: str) -> Markup:
    certificate = [
        tag("li", details(f"{name}: {_shown(value)}", tag("p", CERTIFICATE[name])))
        if name in CERTIFICATE
        else tag("li", f"{name}: {_shown(value)}")
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
        joined([tag("h4", "Certificate"), tag("ul", *certificate, klass="facts")]) if certificate else "",
        details("Job file, with the version that ran it", tag("pre", written, tabindex=0)),
        details(
            "Files of the run, with SHA-256",
            table(["file", "belongs to", "bytes", "SHA-256"], files, caption="Files of the run", numbers=(2,)),
        )
        if files
        else "",
        level=3,
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return {True: "yes", False: "no", None: "–"}.get(value, str(value))
    return number(value, 5)
