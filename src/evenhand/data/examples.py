"""Made-up tables to try things with: the same every time, and nobody's data.

The tutorials use them; `evenhand data example` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from evenhand.errors import InputError

Tables = dict[str, pd.DataFrame]


def hospitals() -> Tables:
    """Four hospitals of different sizes record the same things about different patients.

    How ill a patient is shows in age, earlier stays and medicines, and decides about readmission; men are prescribed
    more medicines, however ill they are.
    """
    rng = np.random.default_rng(7)
    tables = {}
    for name, rows, older in (("north", 900, 4), ("south", 1400, 0), ("east", 500, -3), ("west", 1200, 1)):
        sex = rng.choice(["female", "male"], rows, p=[0.52, 0.48])
        age = np.clip(rng.normal(58 + older, 16, rows), 18, 99).round().astype(int)
        stays = rng.poisson(0.8, rows)
        ward = rng.choice(["surgery", "internal", "heart"], rows, p=[0.4, 0.4, 0.2])
        ill = 0.06 * (age - 58) + 0.9 * stays + 0.8 * (ward == "heart") - 1.0 + rng.normal(0.0, 1.0, rows)
        medicines = np.maximum(0, rng.normal(6 + 1.2 * ill + 2.5 * (sex == "male"), 1.5, rows)).round().astype(int)
        score = 1.3 * ill + rng.logistic(size=rows)
        content = {"age": age, "earlier_stays": stays, "medicines": medicines, "ward": ward, "sex": sex}
        content["readmitted"] = np.where(score > 0, "yes", "no")
        tables[name] = _with_ids(content, "patient", [f"{name}-{number:05d}" for number in range(rows)])
    return tables


def screening() -> Tables:
    """A clinic and a laboratory know different things about the same people, of whom one in eight is ill."""
    rng = np.random.default_rng(11)
    rows = 4000
    ill = rng.random(rows) < 0.125
    ids = [f"s{number:05d}" for number in range(rows)]
    clinic = {
        "age": np.clip(rng.normal(50 + 6 * ill, 14, rows), 18, 95).round().astype(int),
        "smokes": rng.random(rows) < 0.2 + 0.2 * ill,
        "region": rng.choice(["coast", "city", "hills"], rows),
        "ill": np.where(ill, "yes", "no"),
    }
    laboratory = {
        "marker_a": rng.normal(1.0 + 2.0 * ill, 1.0, rows).round(3),
        "marker_b": rng.lognormal(1.0 * ill, 0.6, rows).round(3),
    }
    return {
        "clinic": _with_ids(clinic, "person", ids),
        "laboratory": _with_ids(laboratory, "person", ids).sample(frac=1.0, random_state=3),
    }


def _with_ids(content: dict[str, np.ndarray], name: str, ids: list[str]) -> pd.DataFrame:
    return pd.DataFrame(content, index=pd.Index(ids, name=name))


EXAMPLES: Final[dict[str, Callable[[], Tables]]] = {"hospitals": hospitals, "screening": screening}


def write_example(name: str, folder: Path) -> list[Path]:
    """An example's tables as CSV files in a folder, which is made if need be; a file that is there is left alone."""
    if name not in EXAMPLES:
        raise InputError(f"there is no example {name!r}; there are {', '.join(EXAMPLES)}")
    paths = {folder / f"{owner}.csv": table for owner, table in EXAMPLES[name]().items()}
    if taken := [str(path) for path in paths if path.exists()]:
        raise InputError(f"{taken[0]} is there already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, table in paths.items():
        table.to_csv(path)
    return list(paths)
