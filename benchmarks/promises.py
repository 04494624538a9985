"""Measure whether constraints on rates hold for new people, for every solver that meets exact rates.

Generated tables of five families (`families.py`; 2 to 40 % positives, 2, 5 and 8 groups, 200 to 40,000 rows) and the
public sets that are found. Half as many new rows as training rows are held out. A fit keeps its word if every
inequality is within its bound plus two standard errors of the held-out value. Only fits that say converged count;
asked is 90 % of them. z is the largest excess of an inequality over its bound, in standard errors: with R inequalities
all on their bounds, the largest of R is above two often by chance, so that the share within the joint 95 % band is
printed beside it. `trees, one model` and the solvers on `training rows` judge by rates as they once did.

The last table counts converged fits that are worse on their training rows than always giving the commoner label. A
limit on one label's errors asks for that; of the others it counts those that said so in no warning.

With `--out` each fit is added to a file of JSON lines as soon as it is done, and fits that are there are not repeated:
a run that was stopped goes on where it was. `--show` prints the tables of such a file.

With `--minutes` no fit begins after that time. Small tables come first. `--first` is the seed of the first draw.

    python benchmarks/promises.py [--source FOLDER] [--draws 3] [--first 1000] [--sets NAME ...] [--solvers NAME ...]
        [--minutes M] [--out FILE]
    python benchmarks/promises.py --quick
    python benchmarks/promises.py --show --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from families import People, generated
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from evenhand import DemographicParity, EqualizedOdds, HorizontalClassifier, NeymanPearson, VerticalClassifier
from evenhand.constraints import Constraint, bind
from evenhand.constraints.proving import critical_value
from evenhand.data import load
from evenhand.errors import EvenhandError, EvenhandWarning
from evenhand.solvers import SQP, Subspace, Trees

PUBLIC = ("adult", "compas", "credit-default", "give-me-some-credit", "german")
GENERATED = {
    "200 rows": ("plain", 200, 0.3, 2),
    "200 rows, shapes": ("shapes", 200, 0.4, 2),
    "400 rows, levels": ("levels", 400, 0.25, 2),
    "1,000 rows": ("plain", 1000, 0.3, 2),
    "1,000 rows, tails": ("tails", 1000, 0.2, 2),
    "3,000 rows, proxies": ("proxies", 3000, 0.3, 2),
    "5 % of 3,000, shapes": ("shapes", 3000, 0.05, 2),
    "2 % of 6,000": ("plain", 6000, 0.02, 2),
    "7 % of 6,000": ("plain", 6000, 0.07, 2),
    "3 % of 6,000, tails": ("tails", 6000, 0.03, 2),
    "5 groups, 4,000": ("plain", 4000, 0.3, 5),
    "5 groups, 6,000, levels": ("levels", 6000, 0.2, 5),
    "8 groups, 8,000": ("plain", 8000, 0.2, 8),
    "8 groups, 8,000, proxies": ("proxies", 8000, 0.3, 8),
    "7 % of 40,000": ("plain", 40000, 0.07, 2),
    "4 % of 40,000, levels": ("levels", 40000, 0.04, 2),
}
"""Family, rows, share of positives, groups."""
LARGE = 10_000
"""Rows of generated tables that are left to the end of a run, after the public sets."""
QUICK = ("200 rows", "1,000 rows", "2 % of 6,000", "7 % of 6,000", "5 groups, 4,000", "8 groups, 8,000")
CELL = ("solver", "table", "draw", "constraint")
CONSTRAINTS: dict[str, Constraint | None] = {
    "none": None,
    "equalized odds ≤ .05": EqualizedOdds(0.05, measure="error"),
    "demographic parity ≤ .05": DemographicParity(0.05),
    "Neyman-Pearson ≤ .35": NeymanPearson(0.35, measure="error"),
}


def public(name: str, source: Path | None, seed: int) -> People:
    data = load(name, source=source)
    some = np.random.default_rng(seed).permutation(len(data.frame))[:12000]
    labels = (data.label == data.positive).to_numpy().astype(int)
    labels = labels if labels.mean() < 0.5 else 1 - labels
    parts = [data.frame[list(part)] for part in np.array_split(np.array(data.frame.columns), 4)]
    return People(parts, labels, data.sensitive.iloc[:, 0].astype(str).to_numpy()).some(some)


def vertical(**settings: Any) -> Callable[[People, Constraint | None], Any]:
    def fit(given: People, constraint: Constraint | None) -> Any:
        model = VerticalClassifier(constraint=constraint, random_state=0, pos_label=1, **settings)
        return model.fit(given.parts, given.labels, sensitive_features=given.groups)

    return fit


def horizontal(**settings: Any) -> Callable[[People, Constraint | None], Any]:
    def fit(given: People, constraint: Constraint | None) -> Any:
        model = HorizontalClassifier(constraint=constraint, random_state=0, pos_label=1, **settings)
        table, clients = pd.concat(given.parts, axis=1), np.arange(len(given.labels)) % 4
        return model.fit(table, given.labels, sensitive_features=given.groups, clients=clients)

    return fit


SOLVERS: dict[str, Callable[[People, Constraint | None], Any]] = {
    "trees, one model": vertical(model="trees", solver=Trees(folds=1), max_rounds=10),
    "trees": vertical(model="trees", max_rounds=10),
    "subspace": vertical(),
    "subspace, training rows": vertical(solver=Subspace(leave_one_out=False)),
    "sqp": horizontal(solver="sqp"),
    "sqp, training rows": horizontal(solver=SQP(leave_one_out=False)),
    "trees across rows": horizontal(model="trees"),
}
JUDGED = ("subspace", "sqp", "trees", "trees across rows")
"""Solvers at their defaults."""


def tables(
    sets: list[str], source: Path | None, first: int, draws: int
) -> Iterator[tuple[str, int, Callable[[], People]]]:
    """Return table, seed and how to draw it: all small tables of one draw after the other, then the largest."""
    large = [name for name in sets if name in GENERATED and GENERATED[name][1] > LARGE]
    for names in ([name for name in sets if name not in large], large):
        for seed in range(first, first + draws):
            for name in names:
                yield name, seed, partial(drawn, name, source, seed)


def drawn(name: str, source: Path | None, seed: int) -> People:
    if name not in GENERATED:
        return public(name, source, seed)
    family, rows, rate, groups = GENERATED[name]
    return generated(family, rows * 3 // 2, rate, groups, seed)


def measured(fit: Callable[..., Any], given: People, constraint: Constraint | None, seed: int) -> dict[str, Any]:
    """Fit on two thirds of the rows and judge on the rest."""
    order = np.random.default_rng(seed).permutation(len(given.labels))
    cut = 2 * len(order) // 3
    train, new = given.some(order[:cut]), given.some(order[cut:])
    start = time.process_time()
    try:
        # Small slices, and runs that miss their bounds: what is measured is what they say of themselves.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fit(train, constraint)
    except EvenhandError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - start
    across = isinstance(model, HorizontalClassifier)
    scores, own = (
        model.decision_function(pd.concat(one.parts, axis=1) if across else one.parts) for one in (new, train)
    )
    share = train.labels.mean()
    told = {
        "converged": bool(model.certificate_.converged),
        "seconds": seconds,
        "AUC": roc_auc_score(new.labels, scores),
        "below majority": bool(((own > 0) == train.labels).mean() < max(share, 1.0 - share)),
        "warned": sorted({one.category.__name__ for one in caught if issubclass(one.category, EvenhandWarning)}),
    }
    if constraint is None:
        return told
    signs = np.where(new.labels > 0, 1.0, -1.0)
    try:
        rows = bind(constraint, signs, pd.DataFrame({"group": new.groups}))
    except EvenhandError as error:
        return {"refused": str(error)}
    values, errors = rows.reported(signs, scores)
    excess = rows.bounds.excess(values).max(axis=0)
    z = float((excess / errors).max())
    return {
        **told,
        **said(model),
        "within": z <= 2.0,
        "jointly within": z <= critical_value(0.95, len(excess)),
        "z": z,
        "excess": float(excess.max()),
    }


def said(model: Any) -> dict[str, float | None]:
    """Return by how much the worst inequality exceeds its bound by the certificate, on training and on unseen rows."""
    run = model.run_
    lines = (run.record if isinstance(model, HorizontalClassifier) else run.statistics).get("constraints", [])
    found: dict[str, float | None] = {}
    for name in ("training rows", "held-out rows"):
        values = [one[name] for one in lines]
        known = bool(lines) and None not in values
        found[name] = max(map(beyond, values, (one["asked"] for one in lines))) if known else None
    return found


def beyond(value: float, asked: tuple[float | None, float | None]) -> float:
    lower, upper = asked
    return max(-np.inf if upper is None else value - upper, -np.inf if lower is None else lower - value)


def summary(found: pd.DataFrame, by: list[str]) -> Table:
    judged = ("within ε + 2 SE, asked 90 %", "jointly", "z: mean, 90 %")
    excess = ("excess: training rows", "by the certificate on unseen ones", "new rows")
    table = Table(*by, "fits", "converged", *judged, *excess, "AUC", "CPU s")
    for keys, part in found.groupby(by, sort=False):
        done = part[part["converged"].astype(bool)]
        told = done["within"].dropna() if "within" in done else done[:0]
        table.add_row(
            *map(str, keys),
            f"{len(part)}",
            f"{len(done) / len(part):.0%}",
            f"{told.astype(bool).mean():.0%} of {len(told)}" if len(told) else "–",
            f"{done['jointly within'].dropna().astype(bool).mean():.0%}" if len(told) else "–",
            f"{done['z'].mean():.1f}, {done['z'].quantile(0.9):.1f}" if len(told) else "–",
            *(
                "–" if not len(told) or done[name].isna().all() else f"{done[name].astype(float).mean():+.3f}"
                for name in ("training rows", "held-out rows", "excess")
            ),
            f"{part['AUC'].mean():.4f}",
            f"{part['seconds'].mean():.2f}",
        )
    return table


def below_majority(found: pd.DataFrame) -> Table:
    limited, told = "of these under a limit on one label's errors", "of the others without a warning, asked 0"
    table = Table("solver", "converged", "below the majority", limited, told)
    for solver, part in found[found["converged"].astype(bool)].groupby("solver", sort=False):
        below = part[part["below majority"].astype(bool)]
        asked = below["constraint"].str.startswith("Neyman-Pearson")
        silent = sum("MajorityWarning" not in told for told in below["warned"][~asked])
        table.add_row(solver, f"{len(part)}", f"{len(below)}", f"{asked.sum()}", f"{silent}")
    return table


def show(found: list[dict[str, Any]]) -> None:
    frame, console = pd.DataFrame(found), Console(width=170)
    refused = frame["refused"].notna() if "refused" in frame else np.zeros(len(frame), dtype=bool)
    frame, all_fits = frame[~refused], len(frame)
    bounded = frame[frame["constraint"] != "none"]
    for part, by in ((bounded, ["solver"]), (frame, ["solver", "constraint"]), (frame, ["solver", "table"])):
        console.print(summary(part, by))
    console.print(below_majority(frame))
    console.print(f"refused, for lack of rows in a slice: {int(refused.sum())} of {all_fits}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first", type=int, default=1000, help="seed of the first draw")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no fit after so many minutes")
    parser.add_argument("--sets", nargs="+", choices=[*GENERATED, *PUBLIC])
    parser.add_argument("--solvers", nargs="+", choices=list(SOLVERS), default=list(JUDGED))
    parser.add_argument("--constraints", nargs="+", choices=list(CONSTRAINTS), default=list(CONSTRAINTS))
    parser.add_argument("--quick", action="store_true", help="one draw of six generated tables up to 8,000 rows")
    parser.add_argument("--out", type=Path, help="file of JSON lines to add each fit to; fits in it are not repeated")
    parser.add_argument("--show", action="store_true", help="print the tables of the file, and fit nothing")
    given = parser.parse_args()
    if given.source is None and "EVENHAND_DATA" in os.environ:
        given.source = Path(os.environ["EVENHAND_DATA"])
    lines = given.out.read_text().splitlines() if given.out is not None and given.out.exists() else []
    found = [json.loads(line) for line in lines]
    if not given.show:
        known = {tuple(one[name] for name in CELL) for one in found}
        sets = given.sets or ([*QUICK] if given.quick else [*GENERATED, *PUBLIC])
        end = time.monotonic() + 60.0 * given.minutes
        for name, draw, people in tables(sets, given.source, given.first, 1 if given.quick else given.draws):
            cells = [(solver, name, draw, constraint) for solver in given.solvers for constraint in given.constraints]
            wanted = [cell for cell in cells if cell not in known]
            table = people() if wanted and time.monotonic() <= end else None
            for solver, *_, constraint in wanted:
                if time.monotonic() > end:
                    break
                told = measured(SOLVERS[solver], table, CONSTRAINTS[constraint], draw)
                found.append({**dict(zip(CELL, (solver, name, draw, constraint), strict=True)), **told})
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(json.dumps(found[-1]) + "\n")
    show(found)


if __name__ == "__main__":
    main()
