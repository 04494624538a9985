"""An older evenhand and this one in turn: processor seconds for the same work, in all and a round.

What the benchmarks `subspace_speed`, `horizontal`, `vfb2` and `constrained` time, in small settings and by what both
versions offer: estimators, and reproductions by the names of 0.1.0, which later versions understand. Each version
has a process of its own, with the same libraries and one numerical thread; the two take turns, and what they do once
(imports, compiling, reading data) is done before. A ratio is the least of the old seconds over the least of the new:
above 1 the new one is faster. Where rounds differ, look at both columns.

    git worktree add --detach /tmp/evenhand-0.1.0 00f5f2a
    python benchmarks/compare.py --old /tmp/evenhand-0.1.0 [--source FOLDER] [--repeats 5] [--only NAME]...
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

NEW = Path(__file__).resolve().parent.parent
CLIENTS, ROWS = 10, 2_800
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SOURCE = os.environ.get("COMPARE_SOURCE") or None


# -- in the process of one version


@cache
def adult() -> tuple[Any, Any, Any, dict[str, Any]]:
    """Encoded training rows, labels, groups, and the columns of six parties."""
    import numpy as np

    from evenhand.data import PartyEncoder, load, papers_split, party_sizes, split_columns

    data = load("adult", source=SOURCE)
    train, _ = papers_split("adult", seed=10)
    matrix = PartyEncoder().fit_transform(data.frame.loc[train])
    labels = np.where(data.label.loc[train] == data.positive, 1.0, -1.0)
    shares = split_columns(matrix.shape[1], party_sizes("adult"), seed=10)
    blocks = {f"party{k}": matrix[:, share] for k, share in enumerate(shares)}
    return matrix, labels, data.sensitive.loc[train]["sex"].to_numpy(), blocks


def across_columns(constraint: Any = None, **settings: Any) -> int:
    from evenhand import VerticalClassifier

    _, labels, groups, blocks = adult()
    if "protection" in signature(VerticalClassifier).parameters:
        # 0.1.0 had none: what is compared is the same work.
        settings = {"protection": "none", **settings}
    model = VerticalClassifier(constraint=constraint, scale=False, random_state=0, **settings)
    return int(model.fit(blocks, labels, sensitive_features=groups).n_rounds_)


def equal_opportunity() -> int:
    from evenhand import EqualOpportunity

    return across_columns(EqualOpportunity(0.01))


def equalized_odds() -> int:
    from evenhand import EqualizedOdds

    return across_columns(EqualizedOdds(0.01, measure="error"))


def vfb2(runtime: str, rounds: int, **options: Any) -> int:
    settings = {"alpha": 1e-4, "tol": 0.0, "max_rounds": rounds, "runtime": runtime, "solver_options": options}
    return across_columns(solver="vfb2-svrg", **settings)


def across_rows(solver: str) -> int:
    import numpy as np

    from evenhand import HorizontalClassifier, LossParity

    matrix, labels, groups, _ = adult()
    count = CLIENTS * ROWS
    model = HorizontalClassifier(
        solver=solver,
        model="mlp",
        hidden=(32, 16),
        constraint=None if solver == "fedavg" else LossParity(0.0),
        max_rounds=10,
        random_state=0,
        scale=False,
        solver_options={"batch_size": 128, "step": 0.1, "clip": 1.0, "report_every": 0},
    )
    clients = np.repeat(np.arange(CLIENTS), ROWS)
    model.fit(matrix[:count].toarray(), labels[:count], sensitive_features=groups[:count], clients=clients)
    return int(model.n_rounds_)


@cache
def program(kind: str) -> Any:
    from evenhand.reproductions import constrained_problems as problems

    if kind == "quadratic":
        return problems.quadratic_problem(5, 100, 1, 20, 20)
    name, make = {
        "fairness": ("adult-b", problems.fairness_problem),
        "neyman-pearson": ("breast-cancer-wisc", problems.neyman_pearson_problem),
    }[kind]
    return make(problems.read(name, SOURCE), 5, 20)


def constrained(kind: str, method: str) -> int:
    from evenhand.reproductions import constrained_methods as methods

    found = methods.METHODS[getattr(methods, method)](program(kind), 20_000)
    return int(found.rounds or 0)


CASES: dict[str, Callable[[], int]] = {
    "subspace, equal opportunity": equal_opportunity,
    "subspace, equalized odds on rates": equalized_odds,
    "subspace, no constraint": across_columns,
    "FedAvg": lambda: across_rows("fedavg"),
    "FairFedAvgALM": lambda: across_rows("fairfedavgalm"),
    "VFB²-SVRG, interleaved": lambda: vfb2("interleaved", 8),
    # By the name that 0.1.0 has for it; later versions understand it.
    "VFB²-SVRG, messages": lambda: vfb2("roles", 2, batch_size=64, epoch=0.1),
    "sqp, Neyman-Pearson": lambda: constrained("neyman-pearson", "SQP"),
    "sqp, fairness": lambda: constrained("fairness", "SQP"),
    "sqp, quadratic": lambda: constrained("quadratic", "SQP"),
    "prox-al, Neyman-Pearson": lambda: constrained("neyman-pearson", "BALANCED"),
    "pooled prox-al, Neyman-Pearson": lambda: constrained("neyman-pearson", "POOLED"),
}


def serve() -> None:
    """Answer each name of a case with the seconds and rounds that it took."""
    warnings.simplefilter("ignore")
    import evenhand

    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps({"file": evenhand.__file__}), file=answers, flush=True)
    for line in sys.stdin:
        start = time.process_time()
        rounds = CASES[line.strip()]()
        print(json.dumps({"seconds": time.process_time() - start, "rounds": rounds}), file=answers, flush=True)


# -- in this process


class Worker:
    """A process that runs cases with the sources of one tree."""

    def __init__(self, tree: Path, source: Path | None) -> None:
        environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(tree / "src"), "COMPARE_SOURCE": str(source or "")}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=environment, **pipes)
        hello = self._answer()
        if not Path(hello["file"]).is_relative_to(tree):
            raise SystemExit(f"{tree} has no src/evenhand: {hello['file']} was imported")
        self.version = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"]

    def run(self, case: str) -> tuple[float, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["seconds"], answer["rounds"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a process ended, exit code {self._process.wait()}; it says why above")
        found: dict[str, Any] = json.loads(line)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="checkout of the older version")
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each; the least seconds count")
    parser.add_argument("--only", action="append", choices=list(CASES), help="a case; repeatable")
    asked = parser.parse_args()
    workers = [Worker(tree, asked.source) for tree in (asked.old.resolve(), NEW)]
    print(f"old: evenhand {workers[0].version}, new: {workers[1].version}; processor seconds, least of {asked.repeats}")
    print(f"{'':<34} {'old s':>8} {'rounds':>6} {'new s':>8} {'rounds':>6}   old : new   a round")
    for case in asked.only or CASES:
        for worker in workers:
            worker.run(case)
        turns = [[worker.run(case) for worker in workers] for _ in range(asked.repeats)]
        (old, before), (new, after) = (min(column) for column in zip(*turns, strict=True))
        each = (old / max(before, 1)) / (new / max(after, 1))
        print(f"{case:<34} {old:8.3f} {before:6d} {new:8.3f} {after:6d} {old / new:11.2f} {each:9.2f}", flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
