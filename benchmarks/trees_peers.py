"""Compare trees across columns with two peers in separate environments, measured in one run.

XGBoost 3.2's federated column split (the last version that has it): the same six parties of Adult, 60 trees of depth
6, plaintext over gRPC on loopback, a process for each party. Rounds here are collective operations: each is an exchange
that everybody waits for. Both are given categories as codes. FairGBM: pooled rows, both rates bounded, two steps of its
multipliers.

    python -m venv xgb && xgb/bin/pip install 'xgboost<3.4' scikit-learn
    python -m venv fair && fair/bin/pip install fairgbm 'scikit-learn<1.6' 'numpy<2'
    python benchmarks/trees_peers.py [--xgboost xgb/bin/python] [--fairgbm fair/bin/python] [--source FOLDER]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from trees import EPSILON, Draw, draw, ours

from evenhand import EqualizedOdds

TREES = 60
"""Of XGBoost: with as many its AUC is that of ten rounds here."""
HERE = Path(__file__).parent / "peers"


def write(given: Draw, path: Path) -> None:
    """Columns as numbers and codes, whose they are, labels and groups."""
    columns = [column for part in given.parties.values() for column in part]
    owner = [place for place, part in enumerate(given.parties.values()) for _ in part]
    frame = given.frame[columns].apply(
        lambda one: one.astype(float) if pd.api.types.is_numeric_dtype(one) else one.astype("category").cat.codes
    )
    matrix = frame.to_numpy(dtype=np.float64)
    np.savez(
        path,
        train=matrix[given.train],
        test=matrix[given.test],
        owner=np.array(owner),
        y_train=given.labels[given.train],
        y_test=given.labels[given.test],
        groups=np.unique(given.groups, return_inverse=True)[1][given.train],
    )


def ask(python: str, file: str, *given: Any) -> dict[str, Any]:
    done = subprocess.run([python, str(HERE / file), *map(str, given)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{file} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def beside_xgboost(python: str, source: Path | None, draws: int) -> None:
    rows = []
    for seed in range(draws):
        given = draw("adult", source, seed)
        with tempfile.TemporaryDirectory() as folder:
            write(given, Path(folder) / "rows.npz")
            theirs = ask(python, "xgboost_columns.py", Path(folder) / "rows.npz", TREES)
        start = time.perf_counter()
        mine = ours(given, model="trees", max_rounds=10)
        seconds = time.perf_counter() - start
        told = {
            "AUC": (theirs["AUC"], mine["AUC"]),
            "rounds": (theirs["operations"], mine["rounds"]),
            "MB": (theirs["MB"], mine["MB"]),
            "seconds": (theirs["seconds"], seconds),
            "CPU seconds": (theirs["CPU"], mine["CPU"]),
        }
        rows.append(told)
        said = ", ".join(
            f"{name} {one:.4g} and {other:.4g} ({one / other:.1f} x)" for name, (one, other) in told.items()
        )
        print(f"draw {seed}: XGBoost {theirs['version']} and ours: {said}")
        print(f"        its prediction of {len(given.test):,} rows moves {theirs['MB of prediction']:.0f} MB")
    means = {name: np.mean([row[name] for row in rows], axis=0) for name in rows[0]}
    said = ", ".join(f"{name} {one:.4g} / {other:.4g} = {one / other:.1f}" for name, (one, other) in means.items())
    print(f"mean of {draws} draws: {said}")


def beside_fairgbm(python: str, source: Path | None, draws: int) -> None:
    rows = []
    for seed in range(draws):
        given = draw("adult", source, seed)
        with tempfile.TemporaryDirectory() as folder:
            write(given, Path(folder) / "rows.npz")
            for step in (0.1, 0.03):
                told = ask(python, "fairgbm_pooled.py", Path(folder) / "rows.npz", EPSILON, step)
                scores = np.array(told["scores"])
                judged = given.judged((scores > 0.5).astype(int), scores)
                rows.append({"method": f"FairGBM {told['version']}, step {step}", **judged, "CPU": told["CPU"]})
        constraint = EqualizedOdds(EPSILON, measure="error")
        fair = ours(given, model="trees", constraint=constraint, max_rounds=10)
        rows.append({"method": "trees, equalized odds", **fair})
    found = pd.DataFrame(rows).groupby("method", sort=False)[["ACC", "AUC", "DFP", "DFN", "CPU"]]
    print(f"Adult, {draws} draws, means and standard errors")
    print(pd.concat({"mean": found.mean().round(4), "error": found.sem().round(4)}, axis=1).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--xgboost", help="an interpreter that has xgboost<3.4 and scikit-learn")
    parser.add_argument("--fairgbm", help="an interpreter that has fairgbm")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.xgboost:
        beside_xgboost(given.xgboost, given.source, given.draws)
    if given.fairgbm:
        beside_fairgbm(given.fairgbm, given.source, given.draws)
    if not (given.xgboost or given.fairgbm):
        print("say with --xgboost or --fairgbm which interpreters have the peers; see the head of this file")


if __name__ == "__main__":
    main()
