"""Load public sets: clean the published files to the rows and features that the papers count.

Row ids are 0, 1, ... in the cleaned table. Sensitive attributes stay among the features, as in the papers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pandas as pd

from evenhand.data.compressed import read_plain
from evenhand.data.public.catalog import PublicSet, lookup
from evenhand.data.public.fetch import fetch
from evenhand.errors import DataError, InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table of features with labels and sensitive attributes.

    Attributes
    ----------
    name : the catalog's name of the set.
    frame : features before encoding. Text columns are pandas categories with every level of the set, so that an
        encoder gives the same columns whatever training rows it is fitted on.
    label : one value for each row.
    positive : the label value that counts as the positive (in the papers: protected) class.
    sensitive : one column for each sensitive attribute.
    description : title, number of rows, citation and terms of use.
    """

    name: str
    frame: pd.DataFrame
    label: pd.Series
    positive: str | int
    sensitive: pd.DataFrame
    description: str


_ADULT_COLUMNS: Final = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]

# The columns read from ProPublica's file. Names and birth dates are not among them, nor are columns that give the label
# away (is_recid is used for the filter only).
_COMPAS_TEXT: Final = ["c_charge_degree", "race", "age_cat", "score_text", "sex", "decile_score"]
_COMPAS_NUMBERS: Final = ["age", "priors_count", "days_b_screening_arrest"]
_COMPAS_READ: Final = [*_COMPAS_TEXT, *_COMPAS_NUMBERS, "c_jail_in", "c_jail_out", "is_recid", "two_year_recid"]

_CREDIT_CATEGORIES: Final = ["EDUCATION", "MARRIAGE", "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"]

_GERMAN_COLUMNS: Final = [
    "checking_status",
    "duration",
    "credit_history",
    "purpose",
    "credit_amount",
    "savings",
    "employment",
    "installment_rate",
    "personal_status",
    "other_debtors",
    "residence_since",
    "property",
    "age",
    "other_installments",
    "housing",
    "existing_credits",
    "job",
    "dependents",
    "telephone",
    "foreign_worker",
    "credit",
]

Files = Mapping[str, Path]
Parts = tuple[pd.DataFrame, pd.Series, str | int, pd.DataFrame]


def load(name: str, **fetch_options: Any) -> Dataset:
    """Fetch a public set and clean it; the keywords are those of :func:`evenhand.data.fetch`."""
    entry = lookup(name)
    if entry.form != "table":
        raise InputError(f"{entry.name} is a sparse matrix, not a table: use load_sparse of the reproductions")
    frame, label, positive, sensitive = _RECIPES[entry.name](fetch(entry, **fetch_options))
    _require_rows(entry, frame)
    description = f"{entry.title}: {len(frame):,} rows. {entry.citation} Terms: {entry.terms}"
    return Dataset(entry.name, _with_levels(frame), label, positive, sensitive, description)


def _adult(files: Files) -> Parts:
    options: dict[str, Any] = {
        "header": None,
        "names": _ADULT_COLUMNS,
        "skipinitialspace": True,
        "na_values": ["?"],
        "keep_default_na": False,
    }
    train = pd.read_csv(_open(files["adult.data"]), **options)
    # The first line of adult.test is a remark, and its labels end in a full stop.
    test = pd.read_csv(_open(files["adult.test"]), skiprows=1, **options)
    test["income"] = test["income"].str.removesuffix(".")
    table = pd.concat([train, test]).dropna()
    table.index = _row_ids(len(table))
    return table.drop(columns="income"), table["income"], ">50K", table[["sex"]]


def _compas(files: Files) -> Parts:
    table = pd.read_csv(
        _open(files["compas-scores-two-years.csv"]), usecols=_COMPAS_READ, keep_default_na=False, na_values=[""]
    )
    table = table[
        table["days_b_screening_arrest"].between(-30, 30)
        & (table["is_recid"] != -1)
        & (table["c_charge_degree"] != "O")
        & (table["score_text"] != "N/A")
        & table["race"].isin(["African-American", "Caucasian"])
    ]
    table.index = _row_ids(len(table))
    frame = table[_COMPAS_TEXT + _COMPAS_NUMBERS].astype({"decile_score": str})
    stay = pd.to_datetime(table["c_jail_out"]) - pd.to_datetime(table["c_jail_in"])
    frame["length_of_stay"] = stay.dt.days
    return frame, table["two_year_recid"], 0, table[["race"]]


def _crime(files: Files) -> Parts:
    names = re.findall(r"^@attribute\s+(\S+)", read_plain(files["communities.names.txt"]).decode(), re.MULTILINE)
    table = pd.read_csv(_open(files["communities.data"]), header=None, names=names, na_values=["?"])
    # The first five columns name the place and the fold; they are not features.
    table = table.iloc[:, 5:].dropna(axis="columns")
    table.index = _row_ids(len(table))
    violent = table.pop("ViolentCrimesPerPop") > 0.375
    label = violent.map({True: "high", False: "low"}).rename("violent-crime")
    group = (table["racepctblack"] > 0.06).map({True: "> 0.06", False: "<= 0.06"})
    return table, label, "low", group.to_frame()


def _german(files: Files) -> Parts:
    table = pd.read_csv(_open(files["german.data"]), header=None, names=_GERMAN_COLUMNS, sep=" ")
    table.index = _row_ids(len(table))
    label = table.pop("credit").map({1: "good", 2: "bad"})
    # Attribute 9 tells sex and marital status in one code: A92 and A95 are women.
    women = table["personal_status"].isin(["A92", "A95"])
    return table, label, "good", women.map({True: "female", False: "male"}).rename("sex").to_frame()


def _credit_default(files: Files) -> Parts:
    table = pd.read_csv(_open(files["UCI_Credit_Card.csv"])).drop(columns="ID")
    table.index = _row_ids(len(table))
    label = table.pop("Default").map({0: "paid", 1: "default"}).rename("payment")
    sex = table["SEX"].map({1: "male", 2: "female"}).rename("sex")
    # These are codes, not amounts. SEX stays one column, which gives the 90 features that VFB² counts.
    return table.astype(dict.fromkeys(_CREDIT_CATEGORIES, "category")), label, "paid", sex.to_frame()


def _give_me_some_credit(files: Files) -> Parts:
    table = pd.read_csv(_open(files["cs-training.csv"]), index_col=0).dropna()
    table.index = _row_ids(len(table))
    label = table.pop("SeriousDlqin2yrs").map({0: "paid", 1: "delinquent"}).rename("payment")
    # Two groups of age, split as in studies of the German credit data.
    young = (table["age"] <= 25).map({True: "<= 25", False: "> 25"})
    # Each age is a category, which gives the 92 features that VFB² counts.
    return table.astype({"age": "category"}), label, "paid", young.to_frame()


_RECIPES: Final[dict[str, Callable[[Files], Parts]]] = {
    "adult": _adult,
    "compas": _compas,
    "communities-crime": _crime,
    "german": _german,
    "credit-default": _credit_default,
    "give-me-some-credit": _give_me_some_credit,
}


def _open(path: Path) -> BytesIO:
    return BytesIO(read_plain(path))


def _row_ids(count: int) -> pd.Index:
    return pd.RangeIndex(count, name="row")


def _with_levels(frame: pd.DataFrame) -> pd.DataFrame:
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.astype(dict.fromkeys(text, "category"))


def _require_rows(entry: PublicSet, frame: pd.DataFrame) -> None:
    # Checksums hold, so this can fail only if a library reads the files differently.
    if len(frame) != entry.rows:
        raise DataError(f"the recipe of {entry.name} gave {len(frame):,} rows instead of {entry.rows:,}")
