"""Constraints, jobs and job files with arguments of any type."""

from __future__ import annotations

import datetime
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from fuzz.feeding import Target, any_value, in_a_file, mutated, some_changed, taken
from support.damage import damaged

from evenhand.constraints import KINDS, as_list, bind
from evenhand.constraints.scope import ConstraintScope
from evenhand.errors import EvenhandError, JobError
from evenhand.jobs.folder import read_job

GOOD: dict[str, dict[str, Any]] = {
    **{name: {"epsilon": 0.1, "measure": "error", "temperature": 0.3, "cross": False} for name in KINDS},
    "neyman-pearson": {"limit": 0.1, "label": -1, "measure": "error", "temperature": 0.3},
    "bounded-group-loss": {"limit": 0.1, "measure": "error", "temperature": 0.3, "cross": False},
}
LABELS = np.array([1.0, -1.0] * 6)
GROUPS = [
    pd.DataFrame({"sex": list("ffmm") * 3, "age": [1, 2, 2] * 4}),
    pd.Series(["f", "m", "m", "f"] * 3, name="sex"),
    np.array([0, 1, 1] * 4),
    np.array([["f", "x"], ["m", "y"], ["m", "x"]] * 4),
    [True, False, True] * 4,
    pd.DataFrame({"odd": [1, "1", None] * 4}),
    pd.DataFrame({"odd": [[1], [2], {}] * 4}),
    pd.DataFrame({"odd": [1, "a", 2.5, (1,)] * 3}),
    pd.DataFrame({"odd": [pd.Timestamp(2020, 1, 1), "x"] * 6}),
    pd.DataFrame({1: ["a", "b"] * 6, "1": ["a", "b"] * 6}),
    pd.DataFrame({"c": pd.Categorical(["a", "b"] * 6)}),
    pd.DataFrame({"j": [1j, 2j] * 6}),
    None,
]


def fuzz_constraint(rng: random.Random) -> bool:
    """Constraints of any arguments on any groups; what is taken has finite weights and bounds that are numbers."""
    kind = rng.choice(list(KINDS))
    arguments = some_changed(GOOD[kind], rng)
    several = rng.choice(["one", "one", "list", "anything"])
    groups = rng.choice(GROUPS[:5]) if rng.random() < 0.7 else rng.choice([*GROUPS, any_value(rng)])
    labels: Any = (
        LABELS
        if rng.random() < 0.9
        else rng.choice([any_value(rng), LABELS[:3], np.array(["a", "b"] * 6), list(LABELS)])
    )

    def feed() -> None:
        one = KINDS[kind](**arguments)
        given: Any = {"one": one, "list": [one, one], "anything": rng.choice([any_value(rng), [one, any_value(rng)]])}[
            several
        ]
        as_list(given)
        bound = bind(given, labels, groups)
        assert np.isfinite(bound.weights).all()
        assert all(isinstance(name, str) for name in bound.names)

    return taken(feed)


def fuzz_scope(rng: random.Random) -> bool:
    """Where constraints hold, with anything for an answer."""
    good = {"scope": "both", "limits": {"a": 0.1, "server": 0.2}, "missing_slices": "refuse"}
    arguments = some_changed(good, rng)
    if isinstance(arguments["limits"], dict) and rng.random() < 0.5:
        arguments["limits"] = mutated(arguments["limits"], rng, any_value)

    def feed() -> None:
        scope = ConstraintScope(**arguments)
        scope.check([KINDS["loss-parity"]()], ["a", "b"])
        scope.constraints_of("a", [KINDS["loss-parity"]()])

    return taken(feed)


# -- job files

VERTICAL: dict[str, Any] = {
    "job": {
        "solver": "fairvfl",
        "constraint": [{"kind": "equal-opportunity", "epsilon": 0.01, "measure": "error"}],
        "alpha": 0.1,
        "max_rounds": 10,
        "tol": 1e-4,
        "seed": 3,
        "options": {"step": "auto", "local_steps": 3},
        "test_fraction": 0.2,
        "ids": "inner",
        "runtime": "messages",
    },
    "clock": {"latency": 0.1, "speeds": {"bank": 1e9}},
    "party": [
        {"name": "bank", "role": "active", "table": "bank.csv", "id": "id", "label": {"column": "y", "positive": 1}},
        {"name": "shop", "database": "postgresql://u:S3CRET@h/db", "sql": "select 1", "columns": ["a", "b"]},
        {"name": "words", "table": "w.svm", "first_index": 0},
    ],
}
VERTICAL["party"][0]["sensitive"] = ["sex"]
HORIZONTAL: dict[str, Any] = {
    "job": {
        "split": "horizontal",
        "solver": "fairfedavgalm",
        "max_rounds": 5,
        "options": {"step": 0.3},
        "model": {"kind": "mlp", "hidden": [4, 2]},
    },
    "data": {"label": {"column": "y"}, "sensitive": ["sex"], "groups": {"sex": ["f", "m"]}, "id": "id"},
    "privacy": {"mechanism": "clipped-gaussian", "clip": 1.0, "dual_clip": 1.0, "noise_multiplier": 1.1},
    "client": [{"name": "north", "table": "n.csv"}, {"name": "south", "table": "s.parquet"}],
}


def _any_toml(rng: random.Random) -> Any:
    values: list[Any] = [
        0,
        1,
        -1,
        2**62,
        10**18,
        0.0,
        -0.0,
        0.5,
        1e308,
        math.nan,
        math.inf,
        True,
        "",
        "a",
        "id",
        "auto",
    ]
    values += [
        "server",
        "../x",
        "\x1b[2J",
        "x" * 10**4,
        "${HOME}",
        "u:S3CRET@h/db",
        [],
        {},
        [1, "a"],
        [[[]]],
        {"a": {"b": 1}},
    ]
    values += [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.time(1)]
    values += ["subspace", "vfb2-svrg", "mlp", "horizontal", "equalized-odds", ["sex"], [2.5, None][:1]]
    return rng.choice(values)


def fuzz_job_file(rng: random.Random) -> bool:
    """Job files with places changed, or damaged; what is taken says what to train, and no error shows a password."""
    content: Any = VERTICAL if rng.random() < 0.5 else HORIZONTAL
    for _ in range(rng.choice([0, 1, 1, 2])):
        changed = mutated(content, rng, _any_toml)
        content = changed if isinstance(changed, dict) else content
    text = tomli_w.dumps(content).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        text = rng.choice([*[damaged(text, rng)] * 9, b"a = " + b"[" * 2000, b"a." * 2000 + b"a = 1", b"\xff\xfe", b""])

    def feed(path: Path) -> None:
        try:
            read_job(path).to_job()
        except EvenhandError as error:
            told = str(error)
        else:
            return
        assert "S3CRET@" not in told, text
        raise JobError(told)

    return in_a_file("job.toml", text, feed)


TARGETS: dict[str, Target] = {"constraint": fuzz_constraint, "constraint scope": fuzz_scope, "job file": fuzz_job_file}
