"""Generate the pages of the documentation that come from the code: `python docs/generate.py`.

With --check, write nothing, and fail if a page differs from what the code gives.
"""

from __future__ import annotations

import sys
from pathlib import Path

from job_keys import job_keys_page

from evenhand.metrics.names import METRICS
from evenhand.protocol.messages import TEXT, Schema
from evenhand.report.disclosure import VOCABULARIES, schemas

HERE = Path(__file__).parent
SYMBOLS = {"rows": "n", "constraints": "R", "basis": "(h + b)", "bands": "b", "batch": "B"}


def messages_page() -> str:
    lines = [
        "# What each message reveals",
        "",
        "Made from the schemas in `src/evenhand/protocol/`, `vertical/` and `horizontal/` by",
        "`python docs/generate.py`. `n` is the number of aligned rows, `R` the number of constraint rows, `h` the",
        "number of past steps that `subspace` keeps, `b` of the bands of its directions, `B` the most rows in a step",
        "of VFB²; other sizes are named. A number or integer takes 8 bytes, a short number 4.",
        "",
    ]
    lines += _levels_table()
    told: set[str] = set()
    for vocabulary in VOCABULARIES:
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
    """Every kind of message in one table: who sees it, and what protection makes of it."""
    lines = [
        "## Who sees what, at each level of protection",
        "",
        'With `protection = "none"` every message goes as it is; what it then reveals is said below.',
        "",
        '| message | goes | `"masked"` | `"dealer"`, `"encrypted"` | with `label_privacy` |',
        "|---|---|---|---|---|",
    ]
    for schema in schemas().values():
        cells = (schema.direction, schema.at_level("masked"), schema.at_level("dealer"), schema.with_label_privacy())
        lines.append(f"| {schema.kind} | {' | '.join(map(str, cells))} |")
    return [*lines, ""]


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
        "What printed tables, `result.json` and `evenhand.metrics.summary` call things; made from `metrics/names.py`",
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
