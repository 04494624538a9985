"""Test AUC of linear models over curves, standardised numbers and bins, beside LightGBM on the pooled table.

At most 20,000 rows of each public table and of four families of generated ones, their columns split among four parties,
three splits into 70 % training and 30 % test rows; without a constraint and under equalized odds of the first sensitive
attribute (error rates within 0.02). Printed are means over the splits, rounds, and the largest exact gap of the test
rows under the constraint; then what was asked of curves, beside what was measured.

    python benchmarks/curves.py [--source FOLDER] [--splits 3] [--rows 20000] [--tables adult money ...]
    python benchmarks/curves.py --ebm PYTHON             # beside explainable boosting, by an interpreter that has it
    python benchmarks/curves.py --few 200 --splits 10    # 200 training rows, all others test; without the constraint
    python benchmarks/curves.py --smoothing 60 200       # nine generated families: segments, and a line beside curves
    python benchmarks/curves.py --gaps 600               # gaps of new people under equalized odds, generated families
    python benchmarks/curves.py --monotone               # bounds on signs: rounds, and distance from a bounded solver
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from families import FAMILIES, generated
from lightgbm import LGBMClassifier
from rich.console import Console
from rich.table import Table
from scipy.optimize import Bounds, minimize
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from evenhand import EqualizedOdds, VerticalClassifier
from evenhand.data import PartyEncoder, load
from evenhand.data.tables import curve_columns
from evenhand.metrics import constraint_gaps

PUBLIC = ("give-me-some-credit", "credit-default", "adult", "compas", "german")
KINDS = ("curves", "standard", "bins")
POOLED = "LightGBM, pooled"
EBM = {"curves": "EBM of columns, pooled", "pairs": "EBM with pairs, pooled"}
CONSTRAINT = EqualizedOdds(0.02, measure="error")
PARTIES = 4
MEAN_BELOW, MOST_BELOW, MOST_ROUNDS = 0.006, 0.015, 10
"""What is asked of curves: how far below pooled LightGBM on average and at most, and rounds."""


class Problem(NamedTuple):
    """Features, labels of 0 and 1, and groups."""

    frame: pd.DataFrame
    labels: np.ndarray
    groups: pd.DataFrame


def lines(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Normal columns with straight effects, where standardised numbers are right."""
    values = rng.normal(size=(rows, 8))
    return pd.DataFrame(values), values @ rng.normal(size=8) * 0.5


def money(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Amounts with long tails and many zeros, whose effects level off, and counts."""
    income = np.where(rng.random(rows) < 0.15, 0.0, rng.lognormal(10.0, 1.2, rows))
    debt, late = rng.gamma(0.4, 5000.0, rows), rng.poisson(rng.gamma(0.3, 1.0, rows))
    age, share = rng.normal(45.0, 14.0, rows).clip(18.0), debt / (income + 1000.0)
    scores = -0.35 * np.log1p(income / 1000.0) + 0.5 * np.log1p(3.0 * share) + 0.6 * np.minimum(late, 3) - 0.02 * age
    columns = {"income": income, "debt": debt, "share": share, "late": late, "age": age}
    return pd.DataFrame({**columns, "noise": rng.standard_cauchy(rows)}), scores


def humps(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Effects that rise and fall, level off, or jump."""
    values = rng.normal(size=(rows, 6))
    age = rng.uniform(17.0, 80.0, rows)
    scores = np.abs(values[:, 1]) + np.tanh(2.0 * values[:, 2]) + 0.3 * values[:, 3] + 0.8 * (values[:, 4] > 0.5)
    return pd.DataFrame({"age": age, **{f"x{k}": values[:, k] for k in range(6)}}), scores - ((age - 48.0) / 15.0) ** 2


def rare(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """The amounts of `money` with 5 % of two columns missing, which matters, and about 4 % positive labels."""
    frame, scores = money(rng, rows)
    for name in ("income", "share"):
        gone = rng.random(rows) < 0.05
        frame, scores = frame.assign(**{name: frame[name].mask(gone)}), scores + 0.7 * gone
    return frame, scores


GENERATED = {"lines": (lines, 0.0), "money": (money, -1.0), "humps": (humps, 0.0), "rare": (rare, -3.5)}


def generate(name: str, rows: int, seed: int | None = None) -> Problem:
    """Draw a problem of a family; the group shifts the score a little. Without a seed it is the same one each time."""
    family, base = GENERATED.get(name, (factors, -2.0))
    rng = np.random.default_rng([sum(map(ord, name)), *([] if seed is None else [seed])])
    frame, scores = family(rng, rows)
    group = rng.integers(0, 2, rows)
    chance = 1.0 / (1.0 + np.exp(-(1.3 * (scores - scores.mean()) + 0.4 * group + base)))
    frame.columns = frame.columns.map(str)
    return Problem(frame, (rng.random(rows) < chance).astype(int), pd.DataFrame({"group": group}))


def find(name: str, source: Path | None, rows: int) -> Problem:
    """Return a generated or a public table."""
    if name in GENERATED:
        return generate(name, rows)
    if name in FAMILIES:
        return fresh(name, rows, 0)
    data = load(name, source=source)
    labels = (data.label == data.positive).to_numpy().astype(int)
    return Problem(data.frame.reset_index(drop=True), labels, data.sensitive.iloc[:, [0]].reset_index(drop=True))


def pooled_auc(train: pd.DataFrame, test: pd.DataFrame, labels: np.ndarray, unseen: np.ndarray) -> float:
    """Return the test AUC of LightGBM with its defaults for tables of this size."""
    train, test = train.copy(), test.copy()
    for name in train.columns:
        if not pd.api.types.is_numeric_dtype(train[name]):
            train[name] = train[name].astype("category")
            test[name] = pd.Categorical(test[name], categories=train[name].cat.categories)
    model = LGBMClassifier(verbose=-1, n_jobs=1, learning_rate=0.05, num_leaves=15, random_state=0)
    return float(roc_auc_score(unseen, model.fit(train, labels).predict_proba(test)[:, 1]))


def explainable_boosting(
    python: Path, train: pd.DataFrame, test: pd.DataFrame, *labels: np.ndarray
) -> dict[str, float]:
    """Return the test AUC of explainable boosting machines, fitted by another interpreter."""
    tables = {"train": train, "test": test}
    tables |= {name: pd.DataFrame({"label": one}) for name, one in zip(("labels", "unseen"), labels, strict=True)}
    kinds = ["continuous" if pd.api.types.is_numeric_dtype(train[name]) else "nominal" for name in train]
    with tempfile.TemporaryDirectory() as folder:
        for name, one in tables.items():
            one.to_csv(Path(folder) / f"{name}.csv", index=False)
        script = Path(__file__).parent / "peers" / "ebm.py"
        done = subprocess.run([python, script, folder, json.dumps(kinds)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: found[kind][0] for kind, name in EBM.items()}


def measure(problem: Problem, rows: int, few: int | None, seed: int, ebm: Path | None) -> dict[str, list[float]]:
    """Fit one split; return AUC without and with the constraint, rounds of both, and the gap."""
    frame, labels, groups = problem
    some = np.random.default_rng(seed).permutation(len(labels))[:rows]
    size = 0.7 if few is None else few
    train, test = train_test_split(some, train_size=size, random_state=seed, stratify=labels[some])
    parts = np.array_split(np.arange(frame.shape[1]), PARTIES)
    tables = {part: [frame.iloc[chosen, own] for own in parts] for part, chosen in (("train", train), ("test", test))}
    found = {}
    for numbers in KINDS:
        settings: dict[str, Any] = {"encoder": PartyEncoder(numbers=numbers), "random_state": 0}
        plain = VerticalClassifier(**settings).fit(tables["train"], labels[train])
        if few is not None:
            auc = float(roc_auc_score(labels[test], plain.decision_function(tables["test"])))
            found[numbers] = [auc, np.nan, plain.n_iter_, np.nan, np.nan]
            continue
        fair = VerticalClassifier(constraint=CONSTRAINT, **settings)
        fair.fit(tables["train"], labels[train], sensitive_features=groups.iloc[train])
        scores = [model.decision_function(tables["test"]) for model in (plain, fair)]
        gap = constraint_gaps(CONSTRAINT, labels[test], scores[1], sensitive_features=groups.iloc[test])
        aucs = [float(roc_auc_score(labels[test], one)) for one in scores]
        found[numbers] = [*aucs, plain.n_iter_, fair.n_iter_, float(gap["estimate"].iloc[0])]
    pooled = frame.iloc[train], frame.iloc[test], labels[train], labels[test]
    peers = {POOLED: pooled_auc(*pooled), **({} if ebm is None else explainable_boosting(ebm, *pooled))}
    return {**found, **{name: [auc, np.nan, np.nan, np.nan, np.nan] for name, auc in peers.items()}}


# -- smoothing


def widths_of_curves(train: pd.DataFrame, test: pd.DataFrame, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Encode numbers as curves of at most so many segments."""
    usual, curve_columns.MOST_SEGMENTS = curve_columns.MOST_SEGMENTS, most  # type: ignore[misc]
    try:
        encoder = PartyEncoder(numbers="curves").fit(train)
    finally:
        curve_columns.MOST_SEGMENTS = usual  # type: ignore[misc]
    return encoder.transform(train), encoder.transform(test)


def smoothed(problem: Problem, rows: int, seed: int) -> dict[str, float]:
    """Return the test AUC of one ridge over all columns, for each way to encode numbers.

    With a line beside ramps of half the size, the ridge shrinks towards a straight line: a penalty on second
    differences.
    """
    frame, labels, _ = problem
    train, test = train_test_split(np.arange(len(labels)), train_size=rows, random_state=seed, stratify=labels)
    standard = PartyEncoder(numbers="standard").fit(frame.iloc[train])
    lines = standard.transform(frame.iloc[train]), standard.transform(frame.iloc[test])
    encoded = {"standardised": lines}
    for most in (1, 2, 4, 8):
        encoded[f"curves, {most}"] = widths_of_curves(frame.iloc[train], frame.iloc[test], most)
    half = (0.5 * one for one in encoded["curves, 4"])
    encoded["curves, 4, and a line"] = tuple(
        sp.hstack(pair, "csr") if sp.issparse(pair[0]) else np.hstack(pair) for pair in zip(lines, half, strict=True)
    )
    found = {}
    for name, both in encoded.items():
        known, unseen = (one.toarray() if sp.issparse(one) else one for one in both)
        model = VerticalClassifier(encoder=PartyEncoder(scale=False), random_state=0).fit([known], labels[train])
        found[name] = float(roc_auc_score(labels[test], model.decision_function([unseen])))
    return found


def fresh(name: str, rows: int, seed: int) -> Problem:
    """Draw people of one of nine families, others for each seed."""
    if name in GENERATED:
        return generate(name, rows, seed)
    people = generated(name, rows, 0.3, 2, seed)
    return Problem(pd.concat(people.parts, axis=1), people.labels, pd.DataFrame({"group": people.groups}))


def smoothing(console: Console, rows: list[int], splits: int) -> None:
    """Print the mean test AUC of generated families, a new draw for each split."""
    for size in rows:
        means = {
            name: pd.DataFrame([smoothed(fresh(name, size + 4000, seed), size, seed) for seed in range(splits)]).mean()
            for name in (*GENERATED, *FAMILIES)
        }
        found = pd.DataFrame(means).assign(mean=pd.DataFrame(means).mean(axis=1))
        table = Table(f"{size:,} rows, test AUC", *found.columns)
        for name, values in found.iterrows():
            table.add_row(str(name), *(f"{value:.3f}" for value in values))
        console.print(table)


# -- gaps of new people


def gap_of_new_people(problem: Problem, rows: int, numbers: str, seed: int) -> list[float]:
    """Train under equalized odds on so many rows; return the exact gap of all others, and the positives found."""
    frame, labels, groups = problem
    some = np.random.default_rng(seed).permutation(len(labels))
    train, test = some[:rows], some[rows:]
    parts = np.array_split(np.arange(frame.shape[1]), PARTIES)
    model = VerticalClassifier(constraint=CONSTRAINT, encoder=PartyEncoder(numbers=numbers), random_state=0)
    model.fit([frame.iloc[train, own] for own in parts], labels[train], sensitive_features=groups.iloc[train])
    scores = model.decision_function([frame.iloc[test, own] for own in parts])
    gap = constraint_gaps(CONSTRAINT, labels[test], scores, sensitive_features=groups.iloc[test])
    return [float(gap["estimate"].iloc[0]), float((scores[labels[test] == 1] > 0.0).mean())]


def gaps(console: Console, rows: list[int], splits: int) -> None:
    """Print gaps of new people of generated families, with curves and with standardised numbers."""
    table = Table("table", "rows", "numbers", "gap of new people", "positives found")
    for size in rows:
        for name in GENERATED:
            problem = generate(name, 20_000)
            for numbers in ("curves", "standard"):
                found = np.mean([gap_of_new_people(problem, size, numbers, seed) for seed in range(splits)], axis=0)
                table.add_row(name, f"{size:,}", numbers, *(f"{value:.3f}" for value in found))
    console.print(table)


# -- bounds on signs


def bounded_optimum(columns: np.ndarray, signs: np.ndarray, labels: np.ndarray, regulariser: float) -> float:
    """Return the smallest regularised logistic loss with weights of these signs, by a bounded quasi-Newton method."""
    y, shrunk = 2.0 * labels - 1.0, np.append(np.ones(columns.shape[1] - 1), 0.0)

    def value(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = y * (columns @ weights)
        slopes = columns.T @ (-y / (1.0 + np.exp(margins))) / len(y)
        penalty = 0.5 * regulariser * float(weights @ (shrunk * weights))
        return float(np.logaddexp(0.0, -margins).mean()) + penalty, slopes + regulariser * shrunk * weights

    box = Bounds(np.where(signs > 0, 0.0, -np.inf), np.where(signs < 0, 0.0, np.inf))
    asked = {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-8}
    return float(minimize(value, np.zeros(len(signs)), jac=True, method="L-BFGS-B", bounds=box, options=asked).fun)


def factors(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Forty columns near three factors: those of all parties are close to dependent."""
    values = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 40)) + 0.3 * rng.normal(size=(rows, 40))
    return pd.DataFrame(values), np.tanh(values) @ rng.normal(size=40) * 0.6


def bounded(name: str) -> list[str]:
    """Ask for rising and falling curves in turn; return rounds without and with bounds, and the distance."""
    frame, labels, _ = generate(name, 3000)
    parts = np.array_split(np.arange(frame.shape[1]), PARTIES)
    tables = {f"party{place}": frame.iloc[:, own] for place, own in enumerate(parts)}
    directions = {str(column): "up" if k % 2 == 0 else "down" for k, column in enumerate(frame)}
    encoders = {
        party: PartyEncoder(monotone={column: directions[column] for column in table})
        for party, table in tables.items()
    }
    free = VerticalClassifier(protection="none", random_state=0).fit(tables, labels)
    model = VerticalClassifier(encoder=encoders, protection="none", random_state=0).fit(tables, labels)
    matrices = [model.encoders_[party].transform(table) for party, table in tables.items()]
    signs = np.append(np.concatenate([model.encoders_[party].signs for party in tables]), 0)
    columns = np.hstack([*matrices, np.ones((len(labels), 1))])
    # The regulariser follows from the objective: what is left of it without the loss.
    scores, weights = model.decision_function(tables), model.coef_.ravel()
    loss = float(np.logaddexp(0.0, -(2.0 * labels - 1.0) * scores).mean())
    regulariser = 2.0 * (model.certificate_.objective - loss) / float(weights @ weights)
    least = bounded_optimum(columns, signs, labels, regulariser)
    at_bound = int((weights[signs[:-1] != 0] == 0.0).sum())
    distance = (model.certificate_.objective - least) / least
    shares = f"{at_bound} of {int((signs != 0).sum())}"
    return [name, str(free.n_iter_), str(model.n_iter_), shares, f"{distance:.1e}"]


def monotone(console: Console) -> None:
    """Print rounds under bounds on signs, and how far the objective is from the optimum (tolerance 1e-3)."""
    table = Table("table", "rounds, free", "rounds, bounded", "weights at a bound", "above the optimum")
    for name in (*GENERATED, factors.__name__):
        table.add_row(*bounded(name))
    console.print(table)


def asked_and_measured(means: dict[str, dict[str, np.ndarray]]) -> Table:
    """Compare what curves were asked for with what was measured."""
    below = {name: float(one[POOLED][0] - one["curves"][0]) for name, one in means.items()}
    tables = list(means.values())
    gain = float(np.mean([one["curves"][0] - one["standard"][0] for one in means.values()]))
    worst, slowest = max(below, key=below.__getitem__), max(means, key=lambda name: means[name]["curves"][2])
    rounds, mean = means[slowest]["curves"][2], float(np.mean(list(below.values())))
    most = max(means, key=lambda name: np.nan_to_num(means[name]["curves"][3]))
    more = means[most]["curves"][3]
    words = "rounds under equalized odds, most"
    fair = [] if np.isnan(more) else [(words, MOST_ROUNDS, more, f"{more:.1f} ({most})")]
    table = Table("curves", "asked", "measured", "met")
    rows = (
        ("mean AUC below pooled LightGBM", MEAN_BELOW, mean, f"{mean:.4f}"),
        ("largest AUC below pooled LightGBM", MOST_BELOW, below[worst], f"{below[worst]:.4f} ({worst})"),
        ("rounds without a constraint, most", MOST_ROUNDS, rounds, f"{rounds:.1f} ({slowest})"),
        *fair,
    )
    for what, asked, found, words in rows:
        table.add_row(what, f"≤ {asked:g}", words, "yes" if found <= asked else "no")
    table.add_row("mean AUC above standardised numbers", "", f"{gain:.4f}", "")
    if EBM["pairs"] in tables[0]:
        for peer in EBM.values():
            apart = float(np.mean([one["curves"][0] - one[peer][0] for one in tables]))
            table.add_row(f"mean AUC above {peer}", "", f"{apart:.4f}", "")
        pairs = [one[EBM["pairs"]][0] - one[EBM["curves"]][0] for one in tables]
        table.add_row("what pairs bring there: mean (most)", "", f"{np.mean(pairs):.4f} ({max(pairs):.4f})", "")
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--source", type=Path, default=None)
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--ebm", type=Path, default=None, help="an interpreter that has interpret-core")
    options.add_argument("--few", type=int, default=None)
    options.add_argument("--smoothing", type=int, nargs="+", default=None)
    options.add_argument("--gaps", type=int, nargs="+", default=None)
    options.add_argument("--monotone", action="store_true")
    options.add_argument("--tables", nargs="+", default=[*PUBLIC, *GENERATED], choices=[*PUBLIC, *GENERATED, *FAMILIES])
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=110)
    if asked.smoothing or asked.gaps or asked.monotone:
        smoothing(console, asked.smoothing or [], asked.splits)
        if asked.gaps:
            gaps(console, asked.gaps, asked.splits)
        if asked.monotone:
            monotone(console)
        return
    table = Table("table", "numbers", "AUC", "AUC, fair", "rounds", "rounds, fair", "test gap, fair")
    means: dict[str, dict[str, np.ndarray]] = {}
    for name in asked.tables:
        problem = find(name, asked.source, asked.rows)
        splits = [measure(problem, asked.rows, asked.few, seed, asked.ebm) for seed in range(asked.splits)]
        means[name] = {numbers: np.mean([one[numbers] for one in splits], axis=0) for numbers in splits[0]}
        for numbers, (auc, fair, rounds, more, gap) in means[name].items():
            rest = [] if np.isnan(fair) else [f"{fair:.4f}", f"{rounds:.1f}", f"{more:.1f}", f"{gap:.4f}"]
            table.add_row(name, numbers, f"{auc:.4f}", *rest)
    console.print(table)
    console.print(asked_and_measured(means))


if __name__ == "__main__":
    main()
