"""Synthetic tables for the tutorials: the same every time, and nobody's data.

The tutorials use them; `evenhand data example` writes them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd

from evenhand.errors import InputError

Tables = dict[str, pd.DataFrame]


def hospitals() -> Tables:
    """Make tables of four hospitals of different sizes: the same columns, different patients.

    Illness shows in age, earlier stays and medicines, and determines readmission. Men are prescribed more medicines at
    the same degree of illness.
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
    """Make tables of a clinic and a laboratory: different columns, the same people, one in eight of them ill."""
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


def lending() -> Tables:
    """Make realistic tables of a bank, a shop and a telephone company: who repays, and customers of three origins.

    Each has its own customers, most of them in common. Numbers and dates are missing, and some numbers are text. The
    telephone company's file has semicolons, decimal commas and another encoding. Customers from abroad have shorter
    records, whether they repay or not.
    """
    rng = np.random.default_rng(5)
    rows = 3000
    ids = np.array([f"K{number:05d}" for number in rng.permutation(rows)])
    origin = rng.choice(["here", "neighbours", "abroad"], rows, p=[0.6, 0.25, 0.15])
    steady = rng.normal(0.0, 1.0, rows)
    years = np.clip(rng.gamma(3.0, 2.0, rows) - 2.0 * (origin == "abroad"), 0.2, None)
    income = np.exp(7.6 + 0.25 * steady + 0.05 * years + rng.normal(0.0, 0.3, rows))
    baskets = rng.poisson(np.exp(1.0 + 0.3 * steady))
    minutes = np.clip(rng.normal(250 - 40 * steady, 90, rows), 0, None)
    score = 0.9 * steady + 0.12 * (years - 5) + 0.6 * np.log(income / 2500) + rng.logistic(size=rows) + 0.8
    opened = pd.Timestamp("2024-06-30") - pd.to_timedelta((years * 365).round(), unit="D")
    bank = pd.DataFrame(
        {
            "opened": pd.Series(opened).dt.strftime("%Y-%m-%d").mask(rng.random(rows) < 0.04),
            "income": pd.Series([f"€ {one:,.2f}" for one in income]).mask(rng.random(rows) < 0.12),
            "work": pd.Series(rng.choice(["employed", "own", "none"], rows, p=[0.7, 0.2, 0.1])).mask(
                rng.random(rows) < 0.08
            ),
            "email": [f"{one.lower()}@mail.example" for one in ids],
            "origin": origin,
            "repaid": np.where(score > 0, "yes", "no"),
        }
    ).set_axis(pd.Index(ids, name="customer"))
    shop = pd.DataFrame(
        {
            "baskets": baskets,
            "returns": rng.binomial(baskets, 0.1),
            "last_visit": pd.Series(pd.Timestamp("2024-06-30") - pd.to_timedelta(rng.integers(0, 400, rows), unit="D"))
            .dt.strftime("%Y-%m-%d")
            .mask(baskets == 0),
            "spent": pd.Series((baskets * rng.gamma(2.0, 12.0, rows)).round(2))
            .astype(object)
            .mask(rng.random(rows) < 0.03, "n/a"),
        }
    ).set_axis(pd.Index(ids, name="customer"))
    contract = pd.Series(opened + pd.to_timedelta(rng.integers(0, 300, rows), unit="D"))
    phone = pd.DataFrame(
        {
            "Tarif": rng.choice(["Grundgebühr", "Prämie", "Volle Fahrt"], rows),
            "Minuten": pd.Series(minutes.round(1)).mask(rng.random(rows) < 0.05),
            "Vertrag": contract.dt.strftime("%d.%m.%Y"),
        }
    ).set_axis(pd.Index(ids, name="Kunde"))
    phone.attrs["writing"] = {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    return {
        "bank": bank,
        "shop": shop.sample(frac=0.94, random_state=1),
        "phone": phone.sample(frac=0.9, random_state=2),
    }


def arrears(rows: int = 7095, seed: int = 14) -> Tables:
    """Make tables of a bank, its card company and a credit bureau, as such tables are: who falls into arrears.

    Other seeds give other customers of the same kind.

    One customer in fourteen does. Ids are text with leading zeros. The bank has ages and years of birth, a region of
    twelve people, dates in two formats, decimal commas, notes, and rows without label or age. The card company has a
    row for each card. In one of its columns an eighth of the cells are words. The bureau lacks some customers.
    Customers under thirty have shorter records, whether they pay or not.
    """
    rng = np.random.default_rng(seed)
    ids = np.array([f"{number:07d}" for number in rng.permutation(rows) * 11 + 42])
    age = np.clip(rng.gamma(6.0, 7.5, rows) + 8.0, 18, 92).round()
    strain = rng.normal(0.0, 1.0, rows)
    years = np.clip(rng.gamma(2.5, 3.0, rows) - 3.0 * (age < 30), 0.1, age - 17.0)
    income = np.exp(7.7 - 0.15 * strain + 0.02 * np.minimum(years, 15) + rng.normal(0.0, 0.35, rows))
    used = np.exp(6.3 + 0.7 * strain + rng.normal(0.0, 0.7, rows))
    late = rng.poisson(np.exp(-1.3 + 0.8 * strain))
    risk = 1.3 * strain + 0.5 * (late > 0) - 0.06 * years - 0.4 * np.log(income / 2200.0) + 0.35 * (age < 30)
    score = risk + rng.logistic(size=rows)
    falls = score > np.quantile(score, 0.93)
    region = rng.choice(["north", "south", "east", "west"], rows, p=[0.35, 0.3, 0.2, 0.15]).astype(object)
    region[rng.choice(rows, 12, replace=False)] = "isles"
    opened = pd.Series(pd.Timestamp("2024-06-30") - pd.to_timedelta((years * 365).round(), unit="D"))
    old_system = rng.random(rows) < 0.3
    told = rng.choice(["called about", "wants", "asked for", "complains about"], rows)
    about = rng.choice(["a statement", "the limit", "a new card", "the fees", "an address"], rows)
    note = pd.Series([f"{one} {other} ({number})" for one, other, number in zip(told, about, ids, strict=True)])
    bank = pd.DataFrame(
        {
            "age": pd.Series(age).astype("Int64").mask(rng.random(rows) < 0.003),
            "born": (2024 - age).astype(int),
            "region": region,
            "opened": opened.dt.strftime("%Y-%m-%d").where(~old_system, opened.dt.strftime("%d.%m.%Y")),
            "income": income.round(2),
            "note": note.mask(rng.random(rows) < 0.6),
            "arrears": pd.Series(np.where(falls, "yes", "no")).mask(rng.random(rows) < 0.006),
        }
    ).set_axis(pd.Index(ids, name="customer"))
    bank.attrs["writing"] = {"sep": ";", "decimal": ","}
    first = pd.DataFrame(
        {
            "spent": np.exp(5.5 + 0.2 * strain + rng.normal(0.0, 0.6, rows)).round(2),
            "owed": pd.Series(used.round(2)).astype(str),
            "payments_late": late,
        }
    ).set_axis(pd.Index(ids, name="customer_no"))
    first.loc[rng.random(rows) < 0.125, "owed"] = "in full"
    second = first.sample(frac=0.17, random_state=1).assign(payments_late=0)
    second["spent"] = (second["spent"] * rng.uniform(0.05, 0.5, len(second))).round(2)
    second["owed"] = rng.exponential(90.0, len(second)).round(2).astype(str)
    bureau = pd.DataFrame(
        {
            "loans": rng.poisson(np.exp(0.3 + 0.25 * strain)),
            "requests": rng.poisson(np.exp(-0.2 + 0.5 * strain)),
            "oldest": np.maximum(0.1, years + rng.exponential(2.0, rows)).round(1),
        }
    ).set_axis(pd.Index(ids, name="customer"))
    return {
        "bank": bank,
        "cards": pd.concat([first, second]).sample(frac=1.0, random_state=3),
        "bureau": bureau.sample(frac=0.97, random_state=2),
    }


def _with_ids(content: dict[str, np.ndarray], name: str, ids: list[str]) -> pd.DataFrame:
    return pd.DataFrame(content, index=pd.Index(ids, name=name))


EXAMPLES: Final[dict[str, Callable[[], Tables]]] = {
    "arrears": arrears,
    "hospitals": hospitals,
    "lending": lending,
    "screening": screening,
}


def example_files(name: str) -> dict[str, bytes]:
    """Return an example's tables as CSV files, by file name."""
    if name not in EXAMPLES:
        raise InputError(f"there is no example {name!r}; there are {', '.join(EXAMPLES)}")
    files = {}
    for owner, table in EXAMPLES[name]().items():
        # One table has its own way of writing CSV, as users' files do.
        stream = io.BytesIO()
        table.to_csv(stream, **table.attrs.get("writing", {}))
        files[f"{owner}.csv"] = stream.getvalue()
    return files
