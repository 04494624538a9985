"""Draft a job file for new tables: guess id, label and groups, and mark each guess."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd

from evenhand.data.tables.columns import ID_ROWS, MANY_LEVELS
from evenhand.data.tables.numerals import guessed_numbers
from evenhand.data.tables.raw import TypeName, as_types, is_text
from evenhand.data.tables.readers import TableSource, is_csv, local_file, read_table
from evenhand.errors import DataError, InputError
from evenhand.jobs.schema import LabelSection
from evenhand.jobs.tables import label_column, two_labels
from evenhand.printing import listed, quoted, toml_key

Split = Literal["vertical", "horizontal"]

# Column names that reveal a column's role, in order of preference.
_LABELS: Final = (
    "label",
    "target",
    "outcome",
    "class",
    "default",
    "repaid",
    "churn",
    "readmit",
    "ill",
    "approved",
    "y",
)
_GROUPS: Final = ("sex", "gender", "race", "ethnic", "origin", "national", "religion", "disab", "age_group", "minority")
_POSITIVE: Final = ("yes", "true", "1", "positive", "y", "ja", "oui", "si")
_MOST_GROUPS: Final = 12
_KEPT_LEVELS: Final = 100


@dataclass(frozen=True, eq=False)
class DraftTable:
    """A table, its file format, and the guessed roles of its columns."""

    name: str
    source: TableSource
    frame: pd.DataFrame
    types: Mapping[str, TypeName] = field(default_factory=dict)

    @classmethod
    def look(cls, path: Path) -> DraftTable:
        """Read a table; guess encoding and decimal sign of a CSV file."""
        source = TableSource(table=path)
        if is_csv(path):
            source = replace(source, encoding=_encoding(local_file(str(path))))
        frame = read_table(source)
        if is_csv(path) and _has_decimal_commas(frame):
            source = replace(source, decimal=",")
            frame = read_table(source)
        return cls(path.stem, source, frame)

    def with_types(self, features: Iterable[str]) -> DraftTable:
        """Return the table with the column types that must be stated."""
        types = {name: kind for name in features if (kind := self._type(name)) is not None}
        return replace(self, types=types)

    def _type(self, name: str) -> TypeName | None:
        column = self.frame[name]
        if not is_text(column):
            return None
        found = guessed_numbers(column)
        if found is not None:
            return "number" if found.decimal == self.source.decimal else None
        try:
            as_types(self.frame[[name]], {name: "date"}, self.source.decimal, "")
        except DataError:
            known = column.dropna()
            return "leave out" if len(known) >= ID_ROWS and known.is_unique else None
        return "date"


def _encoding(path: Path) -> str:
    content = path.read_bytes()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _has_decimal_commas(frame: pd.DataFrame) -> bool:
    found = (guessed_numbers(frame[name]) for name in frame if is_text(frame[name]))
    return any(one is not None and one.decimal == "," for one in found)


@dataclass(frozen=True)
class Draft:
    """Content of a drafted job file."""

    split: Split
    tables: Sequence[DraftTable]
    ids: Mapping[str, str]
    holder: str
    label: str
    positive: Any
    sensitive: Sequence[str]
    common: int


def draft_job(
    tables: Sequence[DraftTable],
    *,
    split: Split | None = None,
    id: str | None = None,
    label: str | None = None,
    sensitive: Sequence[str] | None = None,
) -> Draft:
    """Guess what is not given; if that fails, raise an error that names the option to use."""
    names = [table.name for table in tables]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"two files are named {twice[0]!r}; parties are named after their files, so rename one of them"
        )
    columns = [set(map(str, table.frame.columns)) for table in tables]
    if split is None:
        split = "horizontal" if len(tables) > 1 and all(one == columns[0] for one in columns) else "vertical"
    ids = _same_id(tables, id) if split == "horizontal" else _ids(tables, id)
    holder, label = _label(tables, ids, label)
    frame = next(table.frame for table in tables if table.name == holder)
    found = [label_column(frame, LabelSection(column=label), list(frame.columns))]
    if split == "horizontal":
        found = [label_column(one.frame, LabelSection(column=label), list(one.frame.columns)) for one in tables]
    negative, positive = two_labels(found, LabelSection(column=label))
    if str(negative).lower() in _POSITIVE:
        positive = negative
    groups = _groups(frame, {label, *ids.values()}) if sensitive is None else list(sensitive)
    for name in groups:
        if name not in frame.columns:
            raise InputError(f"{holder} has no column {quoted(name)} for groups; it has {listed(frame.columns)}")
    beside = {label, *groups}
    typed = [
        table.with_types(
            str(name) for name in table.frame.columns if name != ids.get(table.name) and name not in beside
        )
        for table in tables
    ]
    common = len(set.intersection(*(_texts(one.frame[ids[one.name]]) for one in tables))) if split == "vertical" else 0
    return Draft(split, typed, ids, holder, label, positive, groups, common)


def _texts(column: pd.Series) -> set[str]:
    return set(column.dropna().astype(str))


def _ids(tables: Sequence[DraftTable], given: str | None) -> dict[str, str]:
    """Return each table's id column: unique, and with the most values in common with the other tables."""
    candidates = {table.name: _unique_columns(table, given) for table in tables}
    best: tuple[int, dict[str, str]] = (0, {})
    first, *others = tables
    for own, values in candidates[first.name].items():
        chosen, least = {first.name: own}, len(values)
        for other in others:
            shared = {name: len(values & theirs) for name, theirs in candidates[other.name].items()}
            column = max(shared, key=lambda name: shared[name], default="")
            chosen[other.name], least = column, min(least, shared.get(column, 0))
        if least > best[0]:
            best = least, chosen
    if not best[1]:
        wanted = f"the column {quoted(given)}" if given else "a column of unique values that all tables share"
        owners = ", ".join(table.name for table in tables)
        raise InputError(f"no id column was found in {owners}: it must be {wanted}; name it with --id")
    return best[1]


def _unique_columns(table: DraftTable, given: str | None) -> dict[str, set[str]]:
    names = [str(name) for name in table.frame.columns]
    if given in names:
        names = [given]
    found = {}
    for name in names:
        column = table.frame[name]
        if not pd.api.types.is_float_dtype(column.dtype) and column.notna().all() and column.is_unique:
            found[name] = _texts(column)
    return found


def _same_id(tables: Sequence[DraftTable], given: str | None) -> dict[str, str]:
    """Return the clients' id column: unique in each table, and text unless it is given. Empty if there is none."""
    unique = [set(_unique_columns(table, None)) for table in tables]
    common = [str(name) for name in tables[0].frame.columns if all(str(name) in one for one in unique)]
    if given is not None and given not in common:
        raise InputError(f"--id {given}: the column must be in every table and have a different value in each row")
    texts = [one for one in common if is_text(tables[0].frame[one])]
    chosen = given or next(iter(texts), None)
    return {} if chosen is None else {table.name: chosen for table in tables}


def _label(tables: Sequence[DraftTable], ids: Mapping[str, str], given: str | None) -> tuple[str, str]:
    """Return the label holder and its label column."""
    if given is not None:
        holder = next((table.name for table in tables if given in table.frame.columns), None)
        if holder is None:
            raise InputError(f"--label {given}: no table has such a column; name a column of one of the tables")
        return holder, given
    found = [
        (table.name, str(name))
        for table in tables
        for name in table.frame.columns
        if name != ids.get(table.name) and table.frame[name].notna().all() and table.frame[name].nunique() == 2
    ]
    hinted = [one for hint in _LABELS for one in found if any(part.startswith(hint) for part in _words(one[1]))]
    if hinted:
        return hinted[0]
    if len({name for _, name in found}) == 1:
        return found[0]
    choice = f"columns with two values are {listed(name for _, name in found)}" if found else "no column has two values"
    raise InputError(f"cannot guess the label column ({choice}); name it with --label")


def _words(name: str) -> list[str]:
    return re.split(r"[\W_]+", name.lower())


def _groups(frame: pd.DataFrame, taken: set[str]) -> list[str]:
    names = [str(name) for name in frame.columns if name not in taken]
    return [
        name
        for hint in _GROUPS
        for name in names
        if hint in name.lower() and frame[name].notna().all() and 2 <= frame[name].nunique() <= _MOST_GROUPS
    ]


# -- the text of the job file


def draft_text(draft: Draft, base: Path) -> str:
    """Return the text of the job file, with a comment on each guess; paths are relative to its folder."""
    lines = [
        "# A first draft by `evenhand init`. Review the values marked (guessed).",
        "# Next: `evenhand check` validates the job and its tables, `evenhand train` trains it.",
        "",
        "[job]",
    ]
    if draft.split == "horizontal":
        lines.append('split = "horizontal"                # the tables have the same columns of different people')
    elif any(len(_texts(table.frame[draft.ids[table.name]])) != draft.common for table in draft.tables):
        lines.append(
            f'ids = "inner"                       # {draft.common:,} ids are in all tables; others are left out'
        )
    lines.append("test_fraction = 0.25                # share of rows held out for testing")
    bound = 'constraint = { kind = "equal-opportunity", epsilon = 0.05, measure = "error" }'
    if draft.sensitive:
        lines += [
            "# False-negative rates of any two groups differ by at most epsilon.",
            "# Others: equalized-odds, demographic-parity, loss-parity, group-against-overall; see docs/concepts.md.",
            bound,
        ]
    else:
        lines.append(f"# {bound}   # once `sensitive` names columns")
    described = [
        f"label = {{ column = {_value(draft.label)}, positive = {_value(draft.positive)} }}   # (guessed)",
        f"sensitive = {_value(list(draft.sensitive))}   # (guessed) groups to compare; not features",
    ]
    if draft.split == "horizontal":
        lines += ["", "[data]", *described, *_id_line(draft, draft.tables[0]), *_taken(draft.tables)]
    for table in draft.tables:
        lines += ["", "[[client]]" if draft.split == "horizontal" else "[[party]]", f"name = {_value(table.name)}"]
        if draft.split == "vertical" and table.name == draft.holder:
            lines.append('role = "active"                     # holds the label')
        lines += _where(table, base)
        if draft.split == "vertical":
            lines += [
                *_id_line(draft, table),
                *(described if table.name == draft.holder else []),
                *_taken([table]),
            ]
    return "\n".join(lines) + "\n"


def _id_line(draft: Draft, table: DraftTable) -> list[str]:
    return [f"id = {_value(draft.ids[table.name])}   # (guessed)"] if table.name in draft.ids else []


def _where(table: DraftTable, base: Path) -> list[str]:
    path = Path(str(table.source.table)).absolute()
    shown = path.relative_to(base.absolute()) if path.is_relative_to(base.absolute()) else path
    lines = [f"table = {_value(shown.as_posix())}   # {len(table.frame):,} rows"]
    if table.source.encoding != "utf-8":
        lines.append(f"encoding = {_value(table.source.encoding)}   # (guessed)")
    if table.source.decimal != ".":
        lines.append(f"decimal = {_value(table.source.decimal)}   # (guessed)")
    return lines


def _taken(tables: Sequence[DraftTable]) -> list[str]:
    """Return the column types that must be stated."""
    types = {name: kind for table in tables for name, kind in table.types.items()}
    lines = []
    if types:
        inside = ", ".join(f"{toml_key(name)} = {_value(kind)}" for name, kind in types.items())
        lines.append(f"types = {{ {inside} }}   # (guessed)")
    if any(_many(table.frame[name]) for table in tables for name in table.frame if name not in types):
        lines.append(f"max_levels = {_KEPT_LEVELS}                    # a column has more; the most frequent are kept")
    return lines


def _many(column: pd.Series) -> bool:
    return bool(is_text(column) and MANY_LEVELS < column.nunique() < len(column))


def _value(value: Any) -> str:
    """Return a value as TOML text, which equals JSON for these types."""
    return json.dumps(value, ensure_ascii=False)
