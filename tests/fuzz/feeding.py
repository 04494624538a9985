"""What all targets share: values of any kind, changes of one place, and what counts as refused.

A target makes one input from a source of randomness, feeds it, and says whether it was taken. Errors of ours are the
only ones it lets pass.
"""

from __future__ import annotations

import datetime
import math
import random
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from evenhand.errors import EvenhandError

Target: TypeAlias = Callable[[random.Random], bool]


def taken(feed: Callable[[], None]) -> bool:
    """Whether what is fed is taken; refused it may be with an error of ours only."""
    try:
        feed()
    except EvenhandError:
        return False
    return True


def in_a_file(name: str, content: bytes, feed: Callable[[Path], None]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return taken(lambda: feed(path))


def any_json(rng: random.Random) -> Any:
    """A value that JSON can hold."""
    nested: Any = []
    for _ in range(rng.choice([1, 3, 200])):
        nested = [nested]
    values = [None, True, False, 0, 1, -1, 2, 10**30, 10**400, 0.0, -0.0, 0.5, -3.5, 5e-324, 1e308, math.nan, math.inf]
    return rng.choice([*values, "", "age", "number", "text", "\ud800", "1", [], {}, nested, [1, 2], ["a", "a"], [None]])


class Unprintable:
    """Nothing about it can be shown."""

    def __repr__(self) -> str:
        raise ValueError("not to be shown")


def any_value(rng: random.Random) -> Any:
    """A value of Python's that nobody would expect; hashable or not, iterable or not."""
    if rng.random() < 0.5:
        return any_json(rng)
    odd: list[Any] = [
        b"bytes",
        bytearray(b"12"),
        1j,
        Decimal("0.1"),
        Decimal("NaN"),
        datetime.date(2020, 1, 1),
        (1, 2),
        {1, 2},
        frozenset(),
        {1: 2},
        object(),
        object,
        len,
        range(3),
        iter([1]),
        Unprintable(),
        np.float64(0.1),
        np.float32("nan"),
        np.int8(-1),
        np.bool_(True),
        np.str_("loss"),
        np.datetime64("NaT", "s"),
        np.array(0.1),
        np.array([1.0, 2.0]),
        np.array([[1], [2]]),
        np.array(["a", None], dtype=object),
        np.zeros(0),
        pd.NA,
        pd.NaT,
        pd.Series([1, 2]),
        pd.DataFrame({"a": [1]}),
        pd.Index(["x"]),
        NotImplemented,
        ...,
    ]
    return rng.choice(odd)


def mutated(value: Any, rng: random.Random, other: Callable[[random.Random], Any] = any_json) -> Any:
    """A value of tables and lists with one place of it changed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return other(rng)
    if isinstance(value, list):
        k = rng.randrange(len(value))
        kept = [value[k]] if rng.random() < 0.1 else []
        return [*value[:k], *kept, mutated(value[k], rng, other), *value[k + 1 :]]
    key = rng.choice(list(value))
    if rng.random() < 0.1:
        return {name: one for name, one in value.items() if name != key}
    return {**value, rng.choice([key] * 9 + ["other"]): mutated(value[key], rng, other)}


def some_changed(arguments: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Arguments of which none, one or two are anything."""
    changed = dict(arguments)
    for name in rng.sample(list(changed), min(len(changed), rng.choice([0, 1, 1, 1, 2]))):
        changed[name] = any_value(rng)
    return changed
