"""Make the pages of the documentation that come from the code: `python docs/generate.py`.

With --check, fail if a page is not what the code says now.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evenhand.messages import Schema
from evenhand.vertical.messages import VOCABULARY

PAGE = Path(__file__).parent / "messages.md"


def messages_page() -> str:
    lines = [
        "# What each message reveals",
        "",
        "Made from the schemas in `src/evenhand/vertical/messages.py` by `python docs/generate.py`.",
        "`n` is the number of aligned rows, `R` the number of constraint rows, `h` the number of past steps that",
        "`subspace` keeps. A number takes 8 bytes.",
        "",
    ]
    for schema in VOCABULARY:
        lines += [f"## {schema.kind}", "", schema.reveals, "", "| field | content |", "|---|---|"]
        lines += [f"| `{name}` | {_content(schema, name)} |" for name in schema.fields]
        lines.append("")
    return "\n".join(lines)


def _content(schema: Schema, name: str) -> str:
    field = schema.fields[name]
    kind = {"f8": "number", "i8": "integer"}[field.dtype]
    symbols = {"rows": "n", "constraints": "R", "basis": "(h + 1)"}
    shape = " × ".join(symbols.get(str(size), str(size)) for size in field.shape)
    return f"{shape} {kind}s" if shape else f"one {kind}"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != messages_page() and "docs/messages.md is out of date")
    PAGE.write_text(messages_page(), encoding="utf-8")
