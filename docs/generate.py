"""Generate the pages of the documentation that come from the code: `python docs/generate.py`.

With --check, write nothing, and fail if a page differs from what the code gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from job_keys import job_keys_page

from evenhand.metrics.gaps import METRICS
from evenhand.protocol.disclosure import NOT_SENT
from evenhand.protocol.job import PROTECTIONS, Protection
from evenhand.protocol.messages import TEXT, Schema
from evenhand.solvers.announcing import schemas, trained_with, vocabularies
from evenhand.solvers.registry import HORIZONTAL, VERTICAL
from evenhand.vertical.protected.messages import OWN_WEIGHTS, SCORE_CIPHERTEXTS, SCORE_SHARES, SCORE_TRIPLES

HERE = Path(__file__).parent
AFTER_TRAINING = {
    "dealer": (OWN_WEIGHTS, SCORE_SHARES, SCORE_TRIPLES),
    "encrypted": (OWN_WEIGHTS, SCORE_SHARES, SCORE_CIPHERTEXTS),
}
"""Messages about shared weights after training, by level; other levels have none of them."""
SYMBOLS = {"rows": "n", "constraints": "R", "basis": "(h + b)", "bands": "b", "batch": "B"}


def messages_page() -> str:
    lines = [
        "# What each message reveals",
        "",
        "Made from the schemas in `src/evenhand/protocol/`, `vertical/` and `horizontal/` by",
        "`python docs/generate.py`. `n` is the number of aligned rows, `R` the number of inequalities, `h` the",
        "number of past steps that `subspace` keeps, `b` of the bands of its directions, `B` the most rows in a step",
        "of VFB²; other sizes are named. A number or integer takes 8 bytes, a short number 4.",
        "",
    ]
    lines += _levels_table()
    told: set[str] = set()
    for vocabulary in vocabularies():
        lines += [f"## {vocabulary.title}", ""]
        for schema in vocabulary:
            lines += [f"### {schema.kind}", ""]
            if schema.kind in told:
                lines += ["As above.", ""]
                continue
            told.add(schema.kind)
            lines += [schema.reveals, "", "| field | content |", "|---|---|"]
            lines += [f"| `{name}` | {_content(schema, name)} |" for name in schema.fields]
            lines.append("")
    return "\n".join(lines)


def _levels_table() -> list[str]:
    """Every kind of message in one table: where it goes, and what protection makes of it."""
    lines = [
        "## Who sees what, at each level of protection",
        "",
        "What a message reveals where it is sent as it is, is said below. A dash: not sent at this level.",
        "",
        " | ".join(["| message", "from → to", *(f'`"{level}"`' for level in PROTECTIONS), "with `label_privacy` |"]),
        "|---|---|---|---|---|---|---|",
    ]
    solvers = [*VERTICAL.values(), *HORIZONTAL.values()]
    sent = {level: _kinds(level, [one for one in solvers if level in one.protections]) for level in PROTECTIONS}
    by_level = set().union(*sent.values())
    for schema in schemas().values():
        levels = [
            NOT_SENT if schema.kind in by_level - sent[level] else schema.at_level(level) for level in PROTECTIONS
        ]
        cells = (schema.kind, str(schema.direction), *levels, schema.with_label_privacy())
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _kinds(level: Protection, solvers: Iterable[Any]) -> set[str]:
    """The kinds of messages that follow from a level: those of its solvers in training, and of shared weights after."""
    found = [vocabulary for one in solvers for vocabulary in trained_with(one, level)]
    return {schema.kind for vocabulary in (*found, *AFTER_TRAINING.get(level, ())) for schema in vocabulary}


def _content(schema: Schema, name: str) -> str:
    field = schema.fields[name]
    kind = {"f8": "number", "f4": "short number", "f2": "number of two bytes", "i8": "integer", "u1": "byte"}[
        field.dtype
    ]
    shape = " × ".join("any number of" if size is None else SYMBOLS.get(str(size), str(size)) for size in field.shape)
    if field == TEXT:
        return "text"
    many = kind.replace("number", "numbers") if field.dtype == "f2" else f"{kind}s"
    return f"{shape} {many}" if shape else f"one {kind}"


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        "What printed tables, `result.json` and `evenhand.metrics.summary` call things; made from `metrics/gaps.py`",
        "by `python docs/generate.py`. A gap is the largest difference between two groups of an attribute, the worst",
        "over attributes. Each has a standard error and a 95 % bound; [Concepts](concepts.md) says what these mean.",
        "",
        "| name | in a line | what is computed |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {name} | {one.meaning} | {one.definition} |" for name, one in METRICS.items()), ""])


PAGES = {HERE / "metrics.md": metrics_page, HERE / "messages.md": messages_page, HERE / "job-keys.md": job_keys_page}

if __name__ == "__main__":
    if "--check" in sys.argv:
        stale = [path.name for path, made in PAGES.items() if path.read_text(encoding="utf-8") != made()]
        sys.exit(f"out of date: {', '.join(stale)}; run python docs/generate.py" if stale else 0)
    for path, made in PAGES.items():
        path.write_text(made(), encoding="utf-8")
