"""Tables of both splits: owners in errors, held-out rows, and labels."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.families import check_targets, find_loss
from evenhand.constraints.losses import Loss
from evenhand.errors import ColumnWarning, ConstraintError, DataError, InputError, JobError
from evenhand.jobs.label_keys import LabelSection
from evenhand.jobs.schema import TrainingSection
from evenhand.printing import listed, quoted
from evenhand.protocol.job import Job

_BLOCK: Final = 4096


@contextmanager
def naming(owner: str) -> Iterator[None]:
    """Add the owner of the table to errors."""
    try:
        yield
    except (DataError, ConstraintError) as error:
        raise type(error)(f"{owner}: {error}") from error


def tell(owner: str, remarks: Iterable[str]) -> None:
    """Warn about how an owner's columns were encoded."""
    for remark in remarks:
        warnings.warn(f"{owner}: {remark}", ColumnWarning, stacklevel=3)


def complete_rows(table: pd.DataFrame, needed: Sequence[str], owner: str) -> Booleans:
    """Return which rows have a label and groups; warn of how many have not, and refuse to drop all."""
    known = table[[name for name in needed if name in table.columns]].notna()
    whole: Booleans = known.all(axis=1).to_numpy()
    if not whole.all():
        lacking = ", ".join(f"{int((~has).sum()):,} without {name}" for name, has in known.items() if not has.all())
        said = f"{int((~whole).sum()):,} of {len(whole):,} rows are dropped: {lacking}"
        if not whole.any():
            raise DataError(f"{owner}: {said}; none is left")
        warnings.warn(f"{owner}: {said}", ColumnWarning, stacklevel=3)
    return whole


def not_used(sizes: Mapping[str, int], used: int, what: str) -> list[str]:
    """Return a remark on how many of each party's rows are not used, if there are any."""
    lacking = [f"{rows - used:,} of {name}'s {rows:,} rows" for name, rows in sizes.items() if rows > used]
    if not lacking:
        return []
    return [
        f"{used:,} rows are in all tables and {what}; {', '.join(lacking)} are not, "
        "because not every party has these rows"
    ]


def absent_rows(there: Mapping[str, int], used: int, what: str) -> list[str]:
    """Return a remark on how many of the label holder's rows other parties lack, if they lack any."""
    lacking = [f"{name} has {rows:,}" for name, rows in there.items() if rows < used]
    if not lacking:
        return []
    return [
        f"all {used:,} rows of the label holder are {what}; of these, {', '.join(lacking)}. A party adds one learned "
        "number to the score of a row that it lacks"
    ]


FEWEST_ROWS: Final = 200
"""Smallest table of which rows are held out if the job file does not ask for it: fewer would show nothing."""


def hold_out(ids: pd.Index | Sequence[Any], section: TrainingSection, *, none_is_fine: bool = False) -> Booleans:
    """Return which rows are held out, by a hash of the id; refuse to hold out all rows.

    Parameters
    ----------
    none_is_fine
        Whether no row may be held out, although the job file asks for it.
    """
    fraction, asked = section.test_fraction, section.asks_for_test_rows
    if fraction == 0 or (len(ids) < FEWEST_ROWS and not asked):
        return np.zeros(len(ids), dtype=bool)
    test = held_out(ids, fraction, section.seed)
    if test.all() or not (none_is_fine or not asked or test.any()):
        part = "all" if test.all() else "none"
        raise DataError(f"test_fraction = {fraction} holds out {part} of the {len(ids)} rows; change it, or the seed")
    return test


def held_out(ids: Sequence[Any] | pd.Index, fraction: float, seed: int) -> Booleans:
    """Tell for each id whether it belongs to the test rows.

    The answer depends only on the id and the seed. Parties that share the seed therefore hold out the same people
    without a message, in whatever order their rows are. The share is `fraction` on average.
    """
    if not 0.0 < fraction < 1.0:
        raise InputError(f"the test fraction is between 0 and 1, not {fraction}")
    return np.asarray(_places(ids, seed) < fraction)


def fold_numbers(ids: Sequence[Any] | pd.Index, folds: int, seed: int) -> Integers:
    """Tell for each id which of `folds` folds it belongs to, by the same rule as :func:`held_out`."""
    if folds < 2:
        raise InputError(f"folds is {folds}; there must be at least two")
    return np.floor(_places(ids, seed) * folds).astype(np.int64)


def _places(ids: Sequence[Any] | pd.Index, seed: int) -> Array:
    """Return a pseudo-random number between 0 and 1 for each id, always the same."""
    key = hashlib.blake2b(str(int(seed)).encode(), digest_size=32).digest()
    # Parties have the text of an id in common: 7 from a CSV file and numpy's int64(7) must agree.
    digests = b"".join(hashlib.blake2b(str(one).encode(), digest_size=8, key=key).digest() for one in _each(ids))
    # The top 53 of 64 bits fill a float exactly.
    return (np.frombuffer(digests, dtype=">u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _each(ids: Sequence[Any] | pd.Index) -> Iterator[Any]:
    """Yield ids, those of an index a block at a time: an index of text yields single ids slowly."""
    if not isinstance(ids, pd.Index):
        yield from ids
        return
    for start in range(0, len(ids), _BLOCK):
        yield from ids[start : start + _BLOCK].to_numpy(dtype=object)


def parts_of(test: Booleans) -> dict[str, Booleans]:
    """Return the masks of ``"train"`` and ``"test"`` rows, without empty parts."""
    return {name: rows for name, rows in {"train": ~test, "test": test}.items() if rows.any()}


# A job file may write "true" in quotes for a column of booleans.
_WORDS: Final = {"true": True, "false": False}


class Labels(NamedTuple):
    """The two labels, with the table's own values."""

    negative: Any
    positive: Any

    def signs(self, values: pd.Series) -> Array:
        """Return ±1 for each row, +1 for the positive label."""
        return np.where(values.to_numpy() == self.positive, 1.0, -1.0)

    def named(self, signs: Array) -> list[Any]:
        """Return the label of each row from a sign or score."""
        return [self.positive if sign > 0 else self.negative for sign in signs]


class Classes(NamedTuple):
    """Three or more labels, in the order of the job and of the model's scores."""

    classes: tuple[Any, ...]

    def signs(self, values: pd.Series) -> Array:
        """Return the index of each row's class."""
        places = {value: float(place) for place, value in enumerate(self.classes)}
        found = [places.get(value, np.nan) for value in values.tolist()]
        if strange := [value for value, place in zip(values.tolist(), found, strict=True) if np.isnan(place)]:
            raise DataError(f"unknown label {quoted(strange[0])}; it is not among {listed(self.classes)}")
        return np.array(found)

    def require_rows(self, signs: Array) -> None:
        """Refuse classes without a training row."""
        counts = np.bincount(signs.astype(np.int64), minlength=len(self.classes))
        if empty := [one for one, count in zip(self.classes, counts, strict=True) if not count]:
            raise DataError(
                f"no training row has the label {quoted(empty[0])}; remove it from classes, hold out fewer test rows, "
                "or choose another seed"
            )

    def named(self, scores: Array) -> list[Any]:
        """Return the label of each row, from scores with a column for each class, or from class indices."""
        places = scores.argmax(axis=1) if scores.ndim == 2 else scores.astype(np.int64)
        return [self.classes[place] for place in places]


class NumericTargets(NamedTuple):
    """Targets that are numbers: the loss by name, and the power of ``"tweedie"``."""

    loss: str
    power: float

    @property
    def function(self) -> Loss:
        return find_loss(self.loss, self.power)

    def signs(self, values: pd.Series) -> Array:
        """Return the target of each row; refuse those that the loss cannot have."""
        numbers: Array = pd.to_numeric(values, errors="coerce").to_numpy(np.float64)
        if wrong := values[np.isnan(numbers)].tolist():
            raise DataError(f"target {quoted(wrong[0])} is not a number; for classes remove loss from [job]")
        check_targets(self.loss, numbers, all_rows=False)
        return numbers

    def named(self, scores: Array) -> list[Any]:
        """Return the predicted mean of each row."""
        found: list[Any] = self.function.mean(scores)[0].tolist()
        return found


def labels_of(content: Mapping[str, Any]) -> Labels | Classes | NumericTargets:
    """Return the labels from a run's result."""
    if "loss" in content:
        return NumericTargets(**content)
    return Classes(tuple(content["classes"])) if "classes" in content else Labels(**content)


def known_labels(label: LabelSection, job: Job) -> Classes | NumericTargets | None:
    """Return the labels that the job itself names: three classes or more, or numbers."""
    if job.loss_function.classifies:
        return Classes(job.classes) if job.classes else None
    if given := [name for name in ("positive", "negative", "classes") if getattr(label, name) is not None]:
        raise JobError(f"key label.{given[0]} names classes, and targets of the {job.loss} loss are numbers; remove it")
    return NumericTargets(job.loss, job.power)


def common_labels(
    columns: Mapping[str, pd.Series], label: LabelSection, job: Job, over: str = ""
) -> Labels | Classes | NumericTargets:
    """Return the labels of all columns together: the job's classes, numbers, or two labels.

    Parameters
    ----------
    columns
        Labels by owner, whom errors name. With a single owner the caller names it.
    """
    known = known_labels(label, job)
    if known is None:
        return two_labels(columns, label, over)
    for owner, values in columns.items():
        with naming(owner) if len(columns) > 1 else nullcontext():
            known.signs(values)
    return known


def label_column(table: pd.DataFrame, label: LabelSection, names: Sequence[str]) -> pd.Series:
    """Return a table's labels; refuse missing values. `names` lists all columns for the error message."""
    where = f"label column {label.column!r}"
    if label.column not in table.columns:
        raise DataError(f"{where} is not in the table, which has {listed(names)}")
    values: pd.Series = table[label.column]
    if missing := int(values.isna().sum()):
        raise DataError(f"{where} has {missing} missing values; drop those rows, in a job with incomplete = 'drop'")
    return values


def two_labels(columns: Mapping[str, pd.Series], label: LabelSection, over: str = "") -> Labels:
    """Return the two labels of all columns together; a single column may have only one of them.

    Parameters
    ----------
    columns
        Labels by owner.
    over
        Owners of the columns, for the error message: ``" over all clients"``.
    """
    where, positive = f"label column {label.column!r}", label.positive
    of_owners = {owner: set(values.unique().tolist()) for owner, values in columns.items()}
    found: set[Any] = set().union(*of_owners.values())
    if len({type(value) for value in found}) > 1:
        raise DataError(
            f"{where} has values of different types, such as {listed(found, most=3)}; convert them to one type"
            f"{_only_there(of_owners)}"
        )
    classes = sorted(found)
    if len(classes) != 2:
        several = _only_there(of_owners)
        if len(classes) > 2:
            several += "; to train more classes, list them: classes = [...] in the label's table"
        raise DataError(
            f"{where} has {len(classes)} different values{over} ({listed(classes, most=5)}), but needs exactly two"
            f"{several}"
        )
    if not isinstance(classes[0], (str, int, float)):
        raise DataError(f"{where} holds {type(classes[0]).__name__} values; labels are text, numbers, true or false")
    if isinstance(positive, str) and isinstance(classes[0], bool):
        positive = _WORDS.get(positive.lower(), positive)
    positive = classes[1] if positive is None else positive
    if positive not in classes:
        raise DataError(f"{where}: positive is {quoted(positive)}, the values are {' and '.join(map(quoted, classes))}")
    # Use the table's own value: a job file may say 1 if the table holds 1.0 or true.
    place = classes.index(positive)
    return Labels(classes[1 - place], classes[place])


def _only_there(of_owners: Mapping[str, set[Any]]) -> str:
    """Name an owner with a label that nobody else has; empty if there is none."""
    for owner, own in of_owners.items():
        others: set[Any] = set().union(*(values for name, values in of_owners.items() if name != owner))
        if others and (alone := sorted(own - others, key=str)):
            return f"; only {owner} has {listed(alone, most=3)}"
    return ""


def weight_column(table: pd.DataFrame, name: str, names: Sequence[str]) -> Array:
    """Return the sample weight of each row; `names` lists all columns for the error message."""
    if name not in table.columns:
        raise DataError(f"weight column {name!r} is not in the table, which has {listed(names)}")
    people: Array = pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)
    if wrong := int((~(np.isfinite(people) & (people >= 0))).sum()):
        raise DataError(f"weight column {name!r} has {wrong} values that are negative or not numbers")
    return people
