"""A small job over small tables: three parties that know different things about the same customers.

The tables are CSV files, each in an order of its own; tests change frames or the job's content, then write them.
"""

from __future__ import annotations

import json
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from safetensors import safe_open
from safetensors.numpy import load

from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.file import VerticalJobFile
from evenhand.jobs.vertical.runs import FinishedVerticalRun, run_vertical_job

ID = "customer"


def people(rows: int = 120, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Each party's table. The bank has the label (`outcome`) and the sensitive attribute (`sex`)."""
    rng = np.random.default_rng(seed)
    ids = pd.Index([f"c{number:04d}" for number in range(rows)], name=ID)
    sex = np.where(np.arange(rows) % 2 == 0, "female", "male")
    age = rng.integers(18, 80, rows)
    city = rng.choice(["Ghent", "Lyon", "Turin"], rows)
    spent = rng.normal(100.0, 30.0, rows)
    visits = rng.integers(0, 20, rows)
    friends = rng.normal(0.0, 1.0, rows)
    noise = rng.logistic(size=rows)
    score = (age - 48) / 15 + (spent - 100) / 30 + friends + 0.8 * (sex == "male") + noise
    outcome = np.where(score > 0, "repaid", "defaulted")
    return {
        "bank": pd.DataFrame({"age": age, "city": city, "sex": sex, "outcome": outcome}, index=ids),
        "shop": pd.DataFrame({"spent": spent, "visits": visits}, index=ids),
        "social": pd.DataFrame({"friends": friends}, index=ids),
    }


def job_content() -> dict[str, Any]:
    return {
        "job": {
            "solver": "fairvfl",
            "constraint": {"kind": "equal-opportunity", "epsilon": 0.05},
            "max_rounds": 20,
            "tol": 0.0,
            "test_fraction": 0.25,
            "options": {"step": "auto"},
        },
        "party": [
            {
                "name": "bank",
                "role": "active",
                "table": "bank.csv",
                "id": ID,
                "label": {"column": "outcome", "positive": "repaid"},
                "sensitive": ["sex"],
            },
            {"name": "shop", "table": "shop.csv", "id": ID},
            {"name": "social", "table": "social.csv", "id": ID},
        ],
    }


class SmallJob:
    """Tables and a job file in a folder.

    `frames` and `content` may be changed before `write`; `party` gives a party's entry in the job.
    """

    def __init__(self, folder: Path, rows: int = 120, seed: int = 0) -> None:
        self.folder = folder
        self.frames = people(rows, seed)
        self.content = job_content()
        self.path = folder / "job.toml"

    def party(self, name: str) -> dict[str, Any]:
        return next(party for party in self.content["party"] if party["name"] == name)

    def write(self, order: int = 1) -> Path:
        """Write the job file and each party's CSV file, its rows in an order drawn for the party."""
        self.folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(order)
        for name, frame in self.frames.items():
            frame.iloc[rng.permutation(len(frame))].to_csv(self.folder / f"{name}.csv")
        self.path.write_text(tomli_w.dumps(self.content), encoding="utf-8")
        return self.path

    def read(self, order: int = 1) -> VerticalJobFile:
        job = read_job(self.write(order))
        assert isinstance(job, VerticalJobFile)
        return job

    def run(self, out: str | Path = "run", **settings: Any) -> FinishedVerticalRun:
        return run_vertical_job(self.read(), self.folder, self.folder / out, **settings)


def write_sqlite(path: Path, table: str, frame: pd.DataFrame) -> str:
    """Put a table into an SQLite file; returns the SELECT that reads it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        frame.to_sql(table, connection)
    return f"select * from {table}"


def write_postgres(url: str, table: str, frame: pd.DataFrame) -> str:
    """Put a table into a PostgreSQL database; returns the SELECT that reads it."""
    import pyarrow as pa
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"drop table if exists {table}")
        cursor.adbc_ingest(table, pa.Table.from_pandas(frame.reset_index(), preserve_index=False), mode="create")
        connection.commit()
    return f"select * from {table}"


def files(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its path inside."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def outcome(folder: Path) -> dict[str, Any]:
    """What a finished run has come to, the same for equal runs: every file without the run's id and digests."""
    found: dict[str, Any] = files(folder)
    # A process that is killed after its run has finished leaves its lock, which nobody holds.
    found.pop("lock", None)
    assert json.loads(found.pop("manifest.json"))["status"] == "finished"
    description = tomllib.loads(found["run.toml"].decode())
    found["run.toml"] = {key: value for key, value in description.items() if key != "run"}
    for name, content in found.items():
        if name.endswith(".safetensors"):
            # The run's id is in the header; arrays are compared by their bytes.
            with safe_open(folder / name, framework="numpy") as file:
                _, others = json.loads(file.metadata()["state"][32:])
            found[name] = (others, {key: array.tobytes() for key, array in load(content).items()})
    return found
