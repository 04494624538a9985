"""Read and check labels, scores and sensitive features, and code them as integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.constraints.groups import crossed_name, with_crossing
from evenhand.errors import DataError
from evenhand.printing import listed, quoted


@dataclass(frozen=True)
class Attribute:
    """A sensitive column: each row's group as an index into ``groups``; `crossed` if it crosses the others."""

    name: str
    codes: Integers
    groups: list[Any]
    crossed: bool = False


def read_column(values: Any, name: str) -> pd.Series[Any]:
    try:
        return pd.Series(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not a single column of values: {error}") from error


def read_codes(column: pd.Series[Any], name: str) -> tuple[Integers, list[Any]]:
    """Return each row's value as an index into the sorted distinct values."""
    try:
        codes, levels = pd.factorize(column, sort=True)
    except TypeError as error:
        raise DataError(f"{name} mixes values that have no common order: {error}") from error
    if missing := int(np.count_nonzero(codes < 0)):
        raise DataError(f"{name} has {missing} missing values: drop these rows or give the value a name")
    return codes.astype(np.int64), levels.tolist()


def positive_code(labels: list[Any], pos_label: Any) -> int:
    if len(labels) > 2:
        raise DataError(f"there are {len(labels)} labels, {listed(labels, most=3)} among them: two are needed")
    if pos_label not in labels:
        raise DataError(
            f"the positive label {quoted(pos_label)} does not occur: pass pos_label= one of {listed(labels)}"
        )
    return labels.index(pos_label)


def read_scores(scores: Any) -> Array:
    try:
        logits = read_column(scores, "scores").to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores are not one number per row: {error}") from error
    if bad := int(np.count_nonzero(~np.isfinite(logits))):
        raise DataError(f"{bad} scores are NaN or infinite: scores are logits, one finite number per row")
    return logits


def read_attributes(sensitive_features: Any, cross: bool = False) -> list[Attribute]:
    try:
        frame = pd.DataFrame(sensitive_features)
    except (TypeError, ValueError) as error:
        raise DataError(f"sensitive_features is not a column or a table of columns: {error}") from error
    if frame.shape[1] == 0:
        raise DataError("sensitive_features has no columns: give at least one")
    # Columns without a name get the names fairlearn gives them.
    prefix = "sensitive_feature_" if pd.api.types.is_integer_dtype(frame.columns) else ""
    frame = frame.set_axis([f"{prefix}{name}" for name in frame.columns], axis=1)
    attributes = [
        Attribute(str(name), *read_codes(column, f"sensitive feature '{name}'")) for name, column in frame.items()
    ]
    if cross:
        name = str(crossed_name(crossed := with_crossing(frame)))
        attributes = [one for one in attributes if one.name != name]
        attributes.append(Attribute(name, *read_codes(crossed[name], name), crossed=True))
    return attributes


def check_lengths(attributes: list[Attribute], **columns: Any) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    lengths["sensitive_features"] = len(attributes[0].codes)
    if len(set(lengths.values())) > 1:
        raise DataError(f"lengths differ: {lengths}; each row needs a value in every column")
    if 0 in lengths.values():
        raise DataError("there are no rows to measure on")
