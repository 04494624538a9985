"""Measure how far from the optimum `subspace` stops, compared with its certificate and its tolerance.

Six data sets (at most 8,000 rows of each, two to six parties), six constraints, five seeds. Each problem is solved
three times: to the end (the optimum, up to what its own bound says), at the tolerance that is looked at, and, with
--old, at the default of an earlier evenhand whose `src` folder is given. The distance is (F − F*) / F*. Under
constraints on rates the optimum is that of the run gone on with: rates are not convex, and exact ones are steps.

Then generated tables (300 to 45,000 rows, money-like and indicator columns, correlated parties, 2 to 30 % positives),
with and without masks: whether runs that say converged are within tol, asked and measured, and how far the estimate, by
which runs stop, and the bound are above the distance.

    python benchmarks/stopping.py [--source FOLDER] [--tol 1e-3] [--seeds 5] [--old FOLDER]
    python benchmarks/stopping.py --only-generated [--fits 300] [--first 0]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from problems import draw
from rich.console import Console
from rich.table import Table

from evenhand.constraints.kinds import Constraint, DemographicParity, EqualizedOdds, EqualOpportunity, LossParity
from evenhand.errors import ConstraintError, ProtocolError
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import train_vertical

SETS = ("adult", "compas", "communities-crime", "german", "credit-default", "give-me-some-credit")
CONSTRAINTS: dict[str, tuple[Constraint, ...]] = {
    "none": (),
    "DEO ≤ .01": (EqualOpportunity(0.01),),
    "equalized odds of losses ≤ .01": (EqualizedOdds(0.01),),
    "loss parity ≤ .02": (LossParity(0.02),),
    "equalized odds of errors ≤ .02": (EqualizedOdds(0.02, measure="error"),),
    "demographic parity ≤ .02": (DemographicParity(0.02),),
}
RATES = ("equalized odds of errors ≤ .02", "demographic parity ≤ .02")
OLD_TOL = 1e-4
"""The default of the first version."""


def measure(source: Path | None, seeds: int, tolerances: dict[str, float]) -> pd.DataFrame:
    """One row for each problem and tolerance: objective, rounds, and what the certificate says."""
    found: list[dict[str, Any]] = []
    for name in SETS:
        for seed in range(seeds):
            given, _ = draw(name, source, seed, parties=(2, 4, 6)[seed % 3])
            for constraint, rows in CONSTRAINTS.items():
                for which, tol in tolerances.items():
                    job = Job(solver="subspace", constraints=rows, tol=tol, max_rounds=200)
                    told = train_vertical(job, given.parties, given.labels, given.sensitive).certificate
                    said = {key: getattr(told, key, None) for key in ("bound", "estimate")}
                    problem = {"set": name, "seed": seed, "constraint": constraint, "which": which}
                    end = {"objective": told.objective, "rounds": told.rounds, "converged": told.converged}
                    found.append({**problem, **end, "violation": told.violation, **said})
    return pd.DataFrame(found)


def measure_old(folder: Path, source: Path | None, seeds: int) -> pd.DataFrame:
    """The same by another evenhand, in a process of its own."""
    command = [sys.executable, __file__, "--as-old", "--seeds", str(seeds)]
    command += [] if source is None else ["--source", str(source)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return pd.DataFrame(json.loads(done.stdout))


def measure_generated(first: int, fits: int, tol: float) -> pd.DataFrame:
    """One row for each generated table: the distance of the run that stopped, and what it said of it."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from support.generated import generate

    found: list[dict[str, Any]] = []
    kinds = [name for name in CONSTRAINTS if name not in RATES]
    for seed in range(first, first + fits):
        least, most = ((300, 3000), (3000, 15000), (15000, 45000))[seed % 3]
        given = generate(seed, least=least, most=most)
        constraint = kinds[seed // 3 % len(kinds)]
        protection = "masked" if len(given.parties) > 2 and seed % 2 else "none"
        ends = {}
        for tolerance in (tol, 1e-9):
            job = Job(
                solver="subspace",
                constraints=CONSTRAINTS[constraint],
                tol=tolerance,
                max_rounds=200,
                protection=protection,
            )
            try:
                ends[tolerance] = train_vertical(job, given.parties, given.labels, given.sensitive)
            except (ProtocolError, ConstraintError) as error:
                print(f"table {seed}: {error}", file=sys.stderr)
                break
        else:
            told, best = ends[tol].certificate, ends[1e-9].certificate.objective
            distance = (told.objective - best) / best
            found.append(
                {"constraint": constraint, "protection": protection, "rounds": told.rounds, "distance": distance}
                | {"converged": told.converged, "estimate": told.estimate, "bound": told.bound}
            )
    return pd.DataFrame(found)


def generated_summary(found: pd.DataFrame, tol: float) -> Table:
    columns = ("constraint", "fits", "converged", "≤ tol, asked 98 %", "largest / tol", "rounds", "estimate ≥ distance")
    ratios = [f"{which} / distance: {how}" for which in ("estimate", "bound") for how in ("median", "90 %", "98 %")]
    table = Table(*columns, *ratios, "estimate ≤ 3 distances, asked 98 %", title="generated tables")
    parts = [(str(key), part) for key, part in found.groupby("constraint", sort=False)]
    for key, part in [*parts, ("all", found)]:
        done = part[part["converged"].astype(bool)]
        # Distances below a thousandth of tol are those of the reference.
        far = done[done["distance"] > 1e-3 * tol]
        said = {name: (far[name].astype(float) / far["distance"]).dropna() for name in ("estimate", "bound")}
        table.add_row(
            key,
            f"{len(part)}",
            f"{len(done) / len(part):.0%}",
            f"{(done['distance'] <= tol).mean():.1%}",
            f"{(done['distance'] / tol).max():.2f}",
            f"{part['rounds'].mean():.1f}",
            f"{(said['estimate'] >= 1.0).mean():.1%}",
            *(f"{one.quantile(share):.1f}" for one in said.values() for share in (0.5, 0.9, 0.98)),
            f"{(said['estimate'] <= 3.0).mean():.1%}",
        )
    return table


def against_truth(found: pd.DataFrame) -> pd.DataFrame:
    """Each problem's runs with the distance from the best objective that a feasible one has."""
    held = found[(found["violation"] <= 1e-6) & found["which"].isin(["end", "new"])]
    keys = ["set", "seed", "constraint"]
    best = held.groupby(keys)["objective"].min().rename("best")
    # Bounds on rates move from round to round: there the truth is where the run would have gone.
    ends = found[found["which"] == "end"].set_index(keys)["objective"]
    best = best.where(~best.index.get_level_values("constraint").isin(RATES), ends)
    found = found.join(best, on=keys)
    return found.assign(distance=(found["objective"] - found["best"]) / found["best"])


def summary(found: pd.DataFrame, by: str, tol: float, old: bool, title: str) -> Table:
    columns = [
        by,
        "runs",
        "converged",
        "≤ 1.5 tol",
        "distance / tol: median",
        "95 %",
        "largest",
        "estimate / distance",
        "rounds",
    ]
    columns += [f"rounds at tol {OLD_TOL:g} of old", "distance / 1e-3 of old: median", "95 %"] if old else []
    table = Table(*columns, title=title)
    groups = [(str(key), part) for key, part in found.groupby(by, sort=False)]
    for key, part in [*groups, ("all", found)]:
        new = part[part["which"] == "new"]
        done = new[new["converged"].astype(bool)]
        share = done["distance"].abs() / tol
        said = done["estimate"].fillna(done["bound"]).astype(float)
        sharp = (said / done["distance"])[done["distance"] > 1e-2 * tol]
        cells = [f"{len(new)}", f"{len(done) / len(new):.0%}", f"{(share <= 1.5).mean():.0%}"]
        cells += [f"{share.median():.2f}", f"{share.quantile(0.95):.2f}", f"{share.max():.2f}"]
        cells += [f"{sharp.median():.1f}", f"{new['rounds'].mean():.1f}"]
        if old:
            before = part[part["which"] == "old"]
            apart = before["distance"].abs() / 1e-3
            cells += [f"{before['rounds'].mean():.1f}", f"{apart.median():.2f}", f"{apart.quantile(0.95):.2f}"]
        table.add_row(key, *cells, end_section=key == (groups[-1][0] if groups else ""))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--old", type=Path, help="the src folder of an earlier evenhand")
    parser.add_argument("--as-old", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only-generated", action="store_true", help="measure generated tables alone")
    parser.add_argument("--fits", type=int, default=300, help="number of generated tables")
    parser.add_argument("--first", type=int, default=0, help="first seed of generated tables")
    given = parser.parse_args()
    # Small slices, and models that no bound on exact rates lets through: not what is measured.
    warnings.simplefilter("ignore")
    if given.as_old:
        print(measure(given.source, given.seeds, {"old": OLD_TOL}).to_json(orient="records", double_precision=15))
        return
    Console(width=190).print(generated_summary(measure_generated(given.first, given.fits, given.tol), given.tol))
    if given.only_generated:
        return
    found = measure(given.source, given.seeds, {"end": 1e-11, "new": given.tol})
    if given.old is not None:
        found = pd.concat([found, measure_old(given.old, given.source, given.seeds)], ignore_index=True)
    found = against_truth(found)
    console = Console(width=190)
    losses, rates = found[~found["constraint"].isin(RATES)], found[found["constraint"].isin(RATES)]
    old = given.old is not None
    console.print(summary(losses, "set", given.tol, old, f"constraints on losses, tol {given.tol:g}"))
    console.print(summary(losses, "constraint", given.tol, old, "by constraint"))
    console.print(
        summary(rates, "constraint", given.tol, old, "constraints on exact rates, against the run gone on with")
    )
    new = losses[losses["which"] == "new"]
    sure = new[new["bound"].notna()]
    true = (new["distance"] <= new["bound"].fillna(np.inf) * new["objective"] / new["best"] + 1e-9).mean()
    console.print(f"a bound, not an estimate: {len(sure)} of {len(new)}; never below the distance: {true:.0%}")


if __name__ == "__main__":
    main()
