"""The sets of the proximal-AL paper: counts, codes and standardised columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.sources import FOLDER

from evenhand.data.public.loaders import Dataset
from evenhand.errors import DataError
from evenhand_reproductions.data.np_sets import adult_a, adult_b, load_standardised

Loader = Callable[[str], Dataset]
LINE = (
    "39, {work}, 77516, Bachelors, 13, Never-married, Sales, Husband, Black, {sex}, {gain}, 0, 40, {country}, {label}\n"
)


def write_adult(folder: Path, *rows: dict[str, str]) -> dict[str, Path]:
    usual = {"work": "Private", "sex": "Male", "gain": "0", "country": "United-States", "label": "<=50K"}
    path = folder / "adult.data"
    path.write_text("".join(LINE.format(**(usual | row)) for row in rows))
    return {"adult.data": path}


@pytest.mark.parametrize(
    ("name", "rows", "columns", "ones"), [("breast-cancer-wisc", 699, 9, 241), ("monks-1", 556, 6, 278)]
)
def test_counts_of_the_standardised_files(name: str, rows: int, columns: int, ones: int) -> None:
    if FOLDER is None:
        pytest.skip(f"no local copy of {name}")
    data = load_standardised(name, source=FOLDER, sources=("local",))
    assert data.frame.shape == (rows, columns)
    assert int((data.label == data.positive).sum()) == ones
    assert data.sensitive.shape == (rows, 0)
    assert data.frame.std().between(0.7, 1.3).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_adult_a_codes_are_places_in_the_published_lists(tmp_path: Path) -> None:
    """First and last of a list are as far from a gap, which lies in the middle; columns are standardised by n − 1."""
    rows = [{"work": "Private"}, {"work": "?", "sex": "Female", "gain": "9"}, {"work": "Never-worked", "label": ">50K"}]
    data = adult_a(write_adult(tmp_path, *rows))
    assert data.label.tolist() == [0, 0, 1]
    assert data.frame["workclass"].tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert data.frame["sex"].tolist() == pytest.approx(np.array([-1.0, 2.0, -1.0]) / np.sqrt(3.0))
    assert data.frame["capital-gain"].tolist() == pytest.approx(np.array([-1.0, 2.0, -1.0]) / np.sqrt(3.0))


def test_adult_a_refuses_values_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"native-country of Adult has 'Atlantis', which adult\.names does not list"):
        adult_a(write_adult(tmp_path, {}, {"country": "Atlantis"}))


def test_adult_b_counts(load_set: Loader) -> None:
    data = adult_b(load_set("adult"))
    assert data.frame.shape == (45_222, 38)
    binary = data.frame.drop(columns=["age", "fnlwgt", "education-num", "hours-per-week"])
    assert set(pd.unique(binary.to_numpy().ravel())) == {0.0, 1.0}
    assert not data.frame.isna().any(axis=None)
    for name in ("relationship", "race", "workclass", "occupation"):
        assert (data.frame.filter(like=f"{name}_").sum(axis=1) == 1.0).all()
    assert list(data.sensitive.columns) == ["sex"]
