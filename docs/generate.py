"""Make the pages of the documentation that come from the code: `python docs/generate.py`.

With --check, fail if a page is not what the code says now.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evenhand.data.tables.addresses import Address
from evenhand.jobs.federation.files import FederationFile, FederationJob, PartyFile
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.vertical.file import VerticalJobFile
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


FILES = {
    "A job across columns": VerticalJobFile,
    "A job across rows": HorizontalJobFile,
    "Between organisations: `federation.toml`": FederationFile,
    "Between organisations: `job.toml`": FederationJob,
    "Between organisations: `party.toml`": PartyFile,
}
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Address: "text"}


def job_keys_page() -> str:
    lines = [
        "# Every key of a job file",
        "",
        "Made from the schema that checks them, by `python docs/generate.py`. [Job files](job-files.md) says what they",
        "mean and shows whole files; whatever is not listed here is refused by name.",
        "",
    ]
    for title, file in FILES.items():
        lines += [f"## {title}", ""]
        for heading, section in _sections(file, "", many=False):
            said = (section.__doc__ or "").split("\n")[0].removeprefix(f"{heading}: ")
            lines += [f"### {heading}", "", said, "", "| key | what it is | default |", "|---|---|---|"]
            lines += [f"| `{name}` | {_kind(field.annotation)} | {_default(field)} |" for name, field in _own(section)]
            lines.append("")
    return "\n".join(lines)


def _sections(section: type[BaseModel], path: str, *, many: bool) -> Iterator[tuple[str, type[BaseModel]]]:
    """A section that has keys of its own, and those below it."""
    if _own(section) and path:
        yield f"`[[{path}]]`" if many else f"`[{path}]`", section
    for name, field in section.model_fields.items():
        below = _below(field.annotation)
        if below is not None:
            whole = any(get_origin(part) is list for part in (field.annotation, *get_args(field.annotation)))
            yield from _sections(below, f"{path}.{name}".strip("."), many=whole)


def _own(section: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return [(name, field) for name, field in section.model_fields.items() if _below(field.annotation) is None]


def _below(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, if it holds one or a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _below(part)) is not None), None)


def _kind(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " or ".join(f"`{_toml(part)}`" for part in parts)
    if origin in (Union, UnionType):
        return ", ".join(_kind(part) for part in parts if part is not NoneType)
    if origin is list:
        return "tables" if get_origin(parts[0]) is dict else f"list ({_kind(parts[0])})"
    if origin is dict:
        return f"table ({_kind(parts[1])})"
    return WORDS.get(annotation, "any")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return "" if value is None or value in ([], {}) else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


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
