"""Make the pages of the documentation that come from the code: `python docs/generate.py`.

With --check, fail if a page is not what the code says now.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evenhand.protocol.messages import TEXT, Schema
from evenhand.report.disclosure import FAMILIES

PAGE = Path(__file__).parent / "messages.md"
SYMBOLS = {"rows": "n", "constraints": "R", "basis": "(h + 1)", "batch": "B"}


def messages_page() -> str:
    lines = [
        "# What each message reveals",
        "",
        "Made from the schemas in `src/evenhand/protocol/`, `vertical/` and `horizontal/` by",
        "`python docs/generate.py`. `n` is the number of aligned rows, `R` the number of constraint rows, `h` the",
        "number of past steps that `subspace` keeps, `B` the most rows in a step of VFB²; other sizes are named. A",
        "number or integer takes 8 bytes, a short number 4.",
        "",
    ]
    told: set[str] = set()
    for family, vocabulary in FAMILIES.items():
        lines += [f"## {family}", ""]
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


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != messages_page() and "docs/messages.md is out of date")
    PAGE.write_text(messages_page(), encoding="utf-8")
