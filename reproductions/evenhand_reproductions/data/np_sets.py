"""The sets of the proximal-AL paper: three for Neyman-Pearson classification, one for fairness constraints.

breast-cancer-wisc and monks-1 are files whose columns were standardised by a collection of UCI sets; adult-a and
adult-b are made from Adult. The paper counts 20, 21, 21 and 39 features; its first three counts do not follow from the
public files, which have 9, 6 and 14 columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.data.compressed import read_plain
from evenhand.data.public.catalog import PublicFile, PublicSet
from evenhand.data.public.fetch import fetch
from evenhand.data.public.loaders import Dataset
from evenhand.errors import DataError

Files = Mapping[str, Path]

# A collection of UCI sets with standardised columns, at the commit where the checksums were taken.
_STANDARDISED: Final = (
    "https://raw.githubusercontent.com/gditzler/UA-ECE-523-Sp2018/fa2aefe3a6a2dad798ca8575c371616e51570380/data"
)
_UCI_TERMS: Final = "CC BY 4.0, as the UCI repository states; cite the donors."

_WISCONSIN: Final = PublicSet(
    name="breast-cancer-wisc",
    title="Breast Cancer Wisconsin (Original), standardised columns",
    files=(
        PublicFile(
            name="breast-cancer-wisc.csv",
            size=61_013,
            sha256="505191e7646eea4b0a6753ee4deff3c67af94cefde906e4677a9e820295ffd19",
            # Wheels carry the raw table, not these standardised columns.
            url=f"{_STANDARDISED}/breast-cancer-wisc.csv",
        ),
    ),
    rows=699,
    terms=_UCI_TERMS,
    citation="W. Wolberg. Breast Cancer Wisconsin (Original). UCI Machine Learning Repository, 1990. "
    "doi:10.24432/C5HP4Z",
    folders=("np-uci",),
)

_MONKS: Final = PublicSet(
    name="monks-1",
    title="MONK's problem 1, standardised columns",
    files=(
        PublicFile(
            name="monks-1_train.csv",
            size=6_428,
            sha256="17b019a1a34fccc58112f93f6ab8a9b923fae3b792ec49aaf8cc84a2bcc96ec8",
            url=f"{_STANDARDISED}/monks-1_train.csv",
        ),
        PublicFile(
            name="monks-1_test.csv",
            size=21_168,
            sha256="f89e06ae5e45c045fda2c261b71f5e59306b39643e136dfb934b9742e9c1ed5c",
            url=f"{_STANDARDISED}/monks-1_test.csv",
        ),
    ),
    rows=556,
    terms=_UCI_TERMS,
    citation="J. Wnek. MONK's Problems. UCI Machine Learning Repository, 1993. doi:10.24432/C5R30R",
    folders=("np-uci",),
)

_WISCONSIN_COLUMNS: Final = [
    "clump-thickness",
    "cell-size",
    "cell-shape",
    "adhesion",
    "epithelial-size",
    "bare-nuclei",
    "chromatin",
    "nucleoli",
    "mitoses",
]
_MONKS_COLUMNS: Final = ["head", "body", "smiling", "holding", "jacket", "tie"]
STANDARDISED: Final = {
    "breast-cancer-wisc": (_WISCONSIN, _WISCONSIN_COLUMNS, "malignant"),
    "monks-1": (_MONKS, _MONKS_COLUMNS, "monk"),
}
"""Sets by name: what to fetch, the columns, and the name of the label."""

# The value lists of adult.names, in its order; sex is the other way round in the collection that standardised the sets.
_CODES: Final[dict[str, list[str]]] = {
    "age": [],
    "workclass": [
        "Private",
        "Self-emp-not-inc",
        "Self-emp-inc",
        "Federal-gov",
        "Local-gov",
        "State-gov",
        "Without-pay",
        "Never-worked",
    ],
    "fnlwgt": [],
    "education": [
        "Bachelors",
        "Some-college",
        "11th",
        "HS-grad",
        "Prof-school",
        "Assoc-acdm",
        "Assoc-voc",
        "9th",
        "7th-8th",
        "12th",
        "Masters",
        "1st-4th",
        "10th",
        "Doctorate",
        "5th-6th",
        "Preschool",
    ],
    "education-num": [],
    "marital-status": [
        "Married-civ-spouse",
        "Divorced",
        "Never-married",
        "Separated",
        "Widowed",
        "Married-spouse-absent",
        "Married-AF-spouse",
    ],
    "occupation": [
        "Tech-support",
        "Craft-repair",
        "Other-service",
        "Sales",
        "Exec-managerial",
        "Prof-specialty",
        "Handlers-cleaners",
        "Machine-op-inspct",
        "Adm-clerical",
        "Farming-fishing",
        "Transport-moving",
        "Priv-house-serv",
        "Protective-serv",
        "Armed-Forces",
    ],
    "relationship": ["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"],
    "race": ["White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"],
    "sex": ["Male", "Female"],
    "capital-gain": [],
    "capital-loss": [],
    "hours-per-week": [],
    "native-country": [
        "United-States",
        "Cambodia",
        "England",
        "Puerto-Rico",
        "Canada",
        "Germany",
        "Outlying-US(Guam-USVI-etc)",
        "India",
        "Japan",
        "Greece",
        "South",
        "China",
        "Cuba",
        "Iran",
        "Honduras",
        "Philippines",
        "Italy",
        "Poland",
        "Jamaica",
        "Vietnam",
        "Mexico",
        "Portugal",
        "Ireland",
        "France",
        "Dominican-Republic",
        "Laos",
        "Ecuador",
        "Taiwan",
        "Haiti",
        "Columbia",
        "Hungary",
        "Guatemala",
        "Nicaragua",
        "Scotland",
        "Thailand",
        "Yugoslavia",
        "El-Salvador",
        "Trinadad&Tobago",
        "Peru",
        "Hong",
        "Holand-Netherlands",
    ],
}

_EMPLOYERS: Final = {
    "Federal-gov": "government",
    "Local-gov": "government",
    "State-gov": "government",
    "Private": "private",
    "Self-emp-inc": "self-employed",
    "Self-emp-not-inc": "self-employed",
    "Without-pay": "unpaid",
}
_COUPLES: Final = ("Married-civ-spouse", "Married-AF-spouse")
_ONE_HOT: Final = ("relationship", "race", "workclass", "occupation")


def load_standardised(name: str, **fetch_options: Any) -> Dataset:
    """Load ``"breast-cancer-wisc"`` or ``"monks-1"``; the keywords are those of :func:`evenhand.data.fetch`.

    Label 1 of breast-cancer-wisc is malignant. Rows of monks-1 are the training rows, then the test rows.
    """
    entry, columns, label = STANDARDISED[name]
    files = fetch(entry, **fetch_options)
    tables = [pd.read_csv(BytesIO(read_plain(path)), header=None, names=[*columns, label]) for path in files.values()]
    table = pd.concat(tables)
    table.index = pd.RangeIndex(len(table), name="row")
    description = f"{entry.title}: {len(table):,} rows. {entry.citation} Terms: {entry.terms}"
    nothing = pd.DataFrame(index=table.index)
    return Dataset(entry.name, table[columns], table[label].astype(np.int64), 1, nothing, description)


def adult_a(files: Files) -> Dataset:
    """The paper's adult-a, as far as it can be made again: the 32,561 training rows of Adult as 14 standardised codes.

    A category is its place in the list of adult.names, a gap the middle of the codes. Columns are standardised by the
    deviation with n − 1. Label 1 is an income above 50K.

    Parameters
    ----------
    files
        Those of ``fetch("adult")``.
    """
    raw = pd.read_csv(
        BytesIO(read_plain(files["adult.data"])),
        header=None,
        names=[*_CODES, "income"],
        skipinitialspace=True,
        keep_default_na=False,
    )
    frame = pd.DataFrame({name: _codes(raw[name], values) for name, values in _CODES.items()})
    frame.index = pd.RangeIndex(len(frame), name="row")
    frame = (frame - frame.mean()) / frame.std(ddof=1)
    label = (raw["income"] == ">50K").astype(np.int64)
    label.index = frame.index
    sex = raw[["sex"]].set_index(frame.index)
    return Dataset("adult-a", frame, label, 1, sex, "Adult's training rows, each column as standardised codes.")


def _codes(column: pd.Series, values: list[str]) -> pd.Series:
    if not values:
        return column.astype(np.float64)
    places = {value: float(place) for place, value in enumerate(values)} | {"?": 0.5 * (len(values) - 1)}
    coded = column.map(places)
    if coded.isna().any():
        raise DataError(f"{column.name} of Adult has {column[coded.isna()].iloc[0]!r}, which adult.names does not list")
    return coded


def adult_b(adult: Dataset) -> Dataset:
    """The paper's adult-b, as far as it can be made again: 38 columns of the 45,222 complete rows of Adult.

    Country, marital status, gains and losses are cut to two values each, employers to four; education is told by its
    number of years. Numbers are standardised. Groups are by sex.

    Parameters
    ----------
    adult
        ``load("adult")``.
    """
    raw = adult.frame
    frame = pd.DataFrame(index=raw.index)
    for name in ("age", "fnlwgt", "education-num", "hours-per-week"):
        frame[name] = (raw[name] - raw[name].mean()) / raw[name].std(ddof=0)
    frame["foreign"] = (raw["native-country"] != "United-States").astype(np.float64)
    frame["male"] = (raw["sex"] == "Male").astype(np.float64)
    frame["single"] = (~raw["marital-status"].isin(_COUPLES)).astype(np.float64)
    for name in ("capital-gain", "capital-loss"):
        frame[name] = (raw[name] > 0).astype(np.float64)
    text = raw[list(_ONE_HOT)].astype(str).assign(workclass=raw["workclass"].astype(str).map(_EMPLOYERS))
    frame = pd.concat([frame, pd.get_dummies(text, columns=list(_ONE_HOT), dtype=np.float64)], axis=1)
    description = f"Adult with fewer categories. {adult.description}"
    return Dataset("adult-b", frame, adult.label, adult.positive, adult.sensitive, description)
