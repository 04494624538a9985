"""Draft a job file for new tables: guess id, label and groups, and mark each guess."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from evenhand.data.tables.numerals import guessed_numbers
from evenhand.data.tables.raw import is_text
from evenhand.data.tables.readers import TableSource, is_csv, local_file, read_table
from evenhand.errors import InputError
from evenhand.jobs.label_keys import LabelSection
from evenhand.jobs.proposals import Proposal, proposals
from evenhand.jobs.tables import two_labels
from evenhand.printing import listed, quoted

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
_MOST_NUMBERED: Final = 5
"""Numbers with more different values are counts or amounts, and no classes."""
_MOST_MISSING: Final = 0.2
"""A label or a sensitive column that is guessed lacks at most this share of its values."""
_LEAST_DISTINCT: Final = 0.5
"""An id that is guessed has at least this share of different values."""
_LEAST_GAP: Final = 0.05
"""The drafted bound on gaps between mean predictions, as a share of the mean target."""
_RARE: Final = 0.2
"""A label with a smaller share of positives is rare: the draft chooses a cut by costs."""


@dataclass(frozen=True, eq=False)
class DraftTable:
    """A table, its file format, and the guessed roles of its columns."""

    name: str
    source: TableSource
    frame: pd.DataFrame

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
    """Content of a drafted job file.

    Attributes
    ----------
    common
        Number of ids that all parties have.
    share
        Share of the rows with a label that are positive; zero unless there are two labels.
    classes
        All labels, if there are three or more.
    loss
        The loss, if the label is a number, and the job's bound on gaps in its unit.
    proposed
        Keys of each table's section, by the table's name; clients share those of the first.
    job
        More keys of `[job]`.
    given
        What a person said, and is no guess: ``"id"``, ``"label"``, ``"sensitive"``.
    """

    split: Split
    tables: Sequence[DraftTable]
    ids: Mapping[str, str]
    holder: str
    label: str
    positive: Any
    sensitive: Sequence[str]
    common: int
    share: float
    proposed: Mapping[str, Sequence[Proposal]] = field(default_factory=dict)
    job: Sequence[Proposal] = ()
    given: Set[str] = frozenset()
    classes: Sequence[Any] = ()
    loss: tuple[str, float] | None = None

    @property
    def is_binary(self) -> bool:
        return not self.classes and self.loss is None


def draft_job(
    tables: Sequence[DraftTable],
    *,
    split: Split | None = None,
    id: Sequence[str] = (),
    label: str | None = None,
    positive: str | None = None,
    sensitive: Sequence[str] | None = None,
) -> Draft:
    """Guess what is not given; if that fails, raise an error that names the option to use.

    Parameters
    ----------
    id
        Names of id columns: for all tables that have them, or for one table as ``"bank=customer"``.
    """
    names = [table.name for table in tables]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"two files are named {twice[0]!r}; parties are named after their files, so rename one of them"
        )
    columns = [set(map(str, table.frame.columns)) for table in tables]
    if split is None:
        split = "horizontal" if len(tables) > 1 and all(one == columns[0] for one in columns) else "vertical"
    named = _named_ids(tables, id)
    given = {"id": bool(id), "label": label is not None, "sensitive": sensitive is not None}
    ids = _same_id(tables, named) if split == "horizontal" else _ids(tables, named)
    holder, label = _label(tables, ids, label)
    frame = next(table.frame for table in tables if table.name == holder)
    frames = {one.name: one.frame for one in tables} if split == "horizontal" else {holder: frame}
    section = LabelSection(column=label)
    values = {f"table {name!r}": _known_labels(one, label) for name, one in frames.items()}
    classes, loss = ((), None) if positive is not None else _more_than_two(label, values)
    positive_: Any = None
    if not classes and loss is None:
        negative, positive_ = two_labels(values, section)
        if positive is not None:
            if positive not in (str(negative), str(positive_)):
                raise InputError(f"--positive {positive}: the values of {label} are {listed([negative, positive_])}")
            positive_ = negative if positive == str(negative) else positive_
        elif str(negative).lower() in _POSITIVE:
            positive_ = negative
    groups = _groups(frame, {label, *ids.values()}) if sensitive is None else list(dict.fromkeys(sensitive))
    for name in groups:
        if name not in frame.columns:
            raise InputError(f"{holder} has no column {quoted(name)} for groups; it has {listed(frame.columns)}")
        if name in (label, ids.get(holder)):
            role = "label" if name == label else "id"
            raise InputError(f"--sensitive {name}: this column is the {role}; name a column of groups")
    common = 0
    if split == "vertical":
        common = len(set.intersection(*(id_texts(one.frame[ids[one.name]]) for one in tables)))
        if len(tables) > 1 and common == 0:
            raise InputError(_nothing_common(tables, ids))
    two = positive_ is not None
    share = float(np.mean(np.concatenate([(one == positive_).to_numpy() for one in values.values()]))) if two else 0.0
    said = frozenset(name for name, is_given in given.items() if is_given)
    return Draft(
        split, tables, ids, holder, label, positive_, groups, common, share, given=said, classes=classes, loss=loss
    )


def _more_than_two(label: str, values: Mapping[str, pd.Series]) -> tuple[Sequence[Any], tuple[str, float] | None]:
    """Return the labels if there are few, or the loss for a number and a bound on gaps of its mean."""
    whole = pd.concat(list(values.values()), ignore_index=True)
    found, is_number = whole.unique().tolist(), pd.api.types.is_numeric_dtype(whole)
    if 2 < len(found) <= (_MOST_NUMBERED if is_number else _MOST_GROUPS) and len({type(one) for one in found}) == 1:
        return sorted(found), None
    if len(found) <= 2 or not is_number:
        return (), None
    if not np.isfinite(whole.astype(float)).all():
        raise InputError(f"label column {label!r} has infinite values; remove or correct these rows")
    counts = bool((whole >= 0).all() and (whole == whole.round()).all())
    bound = float(f"{_LEAST_GAP * max(float(whole.abs().mean()), 1e-300):.1g}")
    return (), ("poisson" if counts else "squared", bound)


def complete_draft(draft: Draft) -> Draft:
    """Return the draft with what each table's section needs beside id, label and groups, and with keys of the job."""
    if draft.split == "horizontal":
        whole = pd.concat([one.frame for one in draft.tables], ignore_index=True)
        first = draft.tables[0]
        proposed = {first.name: _proposed(draft, first, whole, draft.ids.get(first.name), holds=True)}
    else:
        proposed = {
            one.name: _proposed(draft, one, one.frame, draft.ids.get(one.name), holds=one.name == draft.holder)
            for one in draft.tables
        }
    return replace(draft, proposed=proposed, job=_job_keys(draft.share))


def _known_labels(frame: pd.DataFrame, label: str) -> pd.Series:
    if label not in frame.columns:
        raise InputError(f"--label {label}: no table has such a column; name a column of one of the tables")
    return frame[label].dropna()


def _proposed(draft: Draft, table: DraftTable, frame: pd.DataFrame, id: str | None, holds: bool) -> list[Proposal]:
    beside = {id, *((draft.label, *draft.sensitive) if holds else ())}
    return proposals(
        frame,
        id=id,
        features=[str(name) for name in frame.columns if name not in beside],
        label=draft.label if holds else None,
        sensitive=draft.sensitive if holds else (),
        decimal=table.source.decimal,
        by_name=draft.split == "horizontal",
    )


def _job_keys(share: float) -> list[Proposal]:
    """Return keys for a rare label: nearly nobody has a probability above a half of it."""
    if not 0.0 < share < _RARE:
        return []
    costs = {"missed": round((1 - share) / share), "false_alarm": 1}
    why = f"{share:.1%} of the rows are positive; a cut at 0.5 would select nearly nobody"
    return [Proposal("threshold", "cost", why), Proposal("costs", costs, "a missed positive costs so much more")]


def _nothing_common(tables: Sequence[DraftTable], ids: Mapping[str, str]) -> str:
    shown = "; ".join(f"{one.name}: {listed(one.frame[ids[one.name]].dropna().tolist(), most=2)}" for one in tables)
    return (
        f"no id is in all tables ({shown}); ids must be written alike, leading zeros and spaces included. Name the "
        f"columns with --id {tables[0].name}=COLUMN"
    )


def id_texts(column: pd.Series) -> set[str]:
    return set(column.dropna().astype(str))


def _named_ids(tables: Sequence[DraftTable], given: Sequence[str]) -> dict[str, str]:
    """Return the id columns that are named, by table."""
    names = {table.name: list(map(str, table.frame.columns)) for table in tables}
    found: dict[str, str] = {}
    for one in given:
        owner, separator, column = one.partition("=")
        if separator and owner in names:
            if column not in names[owner]:
                raise InputError(f"--id {one}: {owner} has no column {quoted(column)}; it has {listed(names[owner])}")
            owners = [owner]
        else:
            column, owners = one, [name for name, columns in names.items() if one in columns]
            if not owners:
                raise InputError(f"--id {one}: no table has such a column; write TABLE=COLUMN for one table")
        for owner in owners:
            if found.setdefault(owner, column) != column:
                raise InputError(
                    f"--id names two columns of {owner}, {found[owner]} and {column}; write --id {owner}=COLUMN"
                )
    return found


def _ids(tables: Sequence[DraftTable], given: Mapping[str, str]) -> dict[str, str]:
    """Return each table's id column: of unique values, or nearly, and the most in common with the other tables."""
    for strict in (True, False):
        candidates = {table.name: _id_columns(table, given.get(table.name), strict) for table in tables}
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
        if best[1]:
            return best[1]
    if len(given) == len(tables):
        return dict(given)
    lacking = [table.name for table in tables if table.name not in given]
    raise InputError(
        f"no id column was found in {', '.join(lacking)}: it must have values that all tables share, and most of them "
        f"once. Name it with --id, or for one table --id {lacking[0]}=COLUMN"
    )


def _id_columns(table: DraftTable, given: str | None, strict: bool) -> dict[str, set[str]]:
    """Return the columns that may be ids, with their values; one that is given may have duplicates and gaps."""
    if given is not None:
        return {given: id_texts(table.frame[given])}
    found = {}
    for name in map(str, table.frame.columns):
        column = table.frame[name]
        if pd.api.types.is_float_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype) or column.isna().any():
            continue
        if column.is_unique if strict else column.nunique() > _LEAST_DISTINCT * len(column):
            found[name] = id_texts(column)
    return found


def _same_id(tables: Sequence[DraftTable], given: Mapping[str, str]) -> dict[str, str]:
    """Return the clients' id column: unique in each table, and text unless it is given. Empty if there is none."""
    if len(set(given.values())) > 1:
        raise InputError(
            f"--id names {listed(sorted(set(given.values())))}, but clients have the same columns; name one"
        )
    if given:
        column = next(iter(given.values()))
        if lacking := [table.name for table in tables if column not in table.frame.columns]:
            raise InputError(f"--id {column}: {lacking[0]} has no such column; clients have the same columns")
        return {table.name: column for table in tables}
    unique = [set(_id_columns(table, None, strict=True)) for table in tables]
    common = [str(name) for name in tables[0].frame.columns if all(str(name) in one for one in unique)]
    chosen = next((one for one in common if is_text(tables[0].frame[one])), None)
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
        if name != ids.get(table.name) and _mostly_known(table.frame[name]) and table.frame[name].nunique() == 2
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
        if hint in name.lower() and _mostly_known(frame[name]) and 2 <= frame[name].nunique() <= _MOST_GROUPS
    ]


def _mostly_known(column: pd.Series) -> bool:
    """Tell whether a column may be a label or groups: rows without one can be dropped, if they are few."""
    return bool(column.isna().mean() <= _MOST_MISSING)
