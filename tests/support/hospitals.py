"""A small horizontal job over small tables: three hospitals that know the same things about different patients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.horizontal.runs import FinishedHorizontalRun, run_horizontal_job

ID = "patient"
SIZES = {"ghent": 90, "lyon": 120, "turin": 60}


def patients(name: str, rows: int, seed: int = 0) -> pd.DataFrame:
    """A hospital's table. Lyon has a ward the others lack."""
    rng = np.random.default_rng([seed, rows])
    sex = np.where(np.arange(rows) % 2 == 0, "female", "male")
    age = rng.integers(18, 80, rows)
    ward = rng.choice(["A", "B"] if name != "lyon" else ["B", "C"], rows)
    pressure = rng.normal(120.0, 15.0, rows)
    score = (age - 48) / 15 + (pressure - 120) / 15 + 0.8 * (sex == "male") + rng.logistic(size=rows)
    outcome = np.where(score > 0, "ill", "well")
    ids = pd.Index([f"{name}-{number:03d}" for number in range(rows)], name=ID)
    return pd.DataFrame({"age": age, "ward": ward, "pressure": pressure, "sex": sex, "outcome": outcome}, index=ids)


def job_content() -> dict[str, Any]:
    return {
        "job": {
            "split": "horizontal",
            "constraint": {"kind": "equal-opportunity", "epsilon": 0.05},
            "test_fraction": 0.25,
        },
        "data": {"label": {"column": "outcome", "positive": "ill"}, "sensitive": ["sex"], "id": ID},
        "client": [{"name": name, "table": f"{name}.csv"} for name in SIZES],
    }


class HospitalJob:
    """Tables and a job file in a folder.

    `frames` and `content` may be changed before `write`; `client` gives a client's entry in the job.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.frames = {name: patients(name, rows, seed) for name, rows in SIZES.items()}
        self.content = job_content()
        self.path = folder / "job.toml"

    def client(self, name: str) -> dict[str, Any]:
        return next(client for client in self.content["client"] if client["name"] == name)

    def averaging(self, solver: str = "fairfedavgalm", rounds: int = 8, **options: Any) -> None:
        """Train by averaging instead."""
        settings = {"step": 0.3, "batch_size": 16, **options}
        self.content["job"] |= {"solver": solver, "max_rounds": rounds, "options": settings}

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, frame in self.frames.items():
            frame.to_csv(self.folder / f"{name}.csv")
        self.path.write_text(tomli_w.dumps(self.content), encoding="utf-8")
        return self.path

    def read(self) -> HorizontalJobFile:
        job = read_job(self.write())
        assert isinstance(job, HorizontalJobFile)
        return job

    def run(self, out: str | Path = "run", **settings: Any) -> FinishedHorizontalRun:
        return run_horizontal_job(self.read(), self.folder, self.folder / out, **settings)
