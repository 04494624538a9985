"""Targets other than two classes: distance from the pooled optimum, rounds and gaps between groups.

A section for each kind of target, each with asked beside measured:

- numbers: squared, Poisson, gamma and Tweedie losses on generated claims (zeros, long tails, exposures as weights) and
  on Communities and Crime (crimes per population, squared and Poisson), across columns and across rows, beside
  scikit-learn's generalised linear models on the same penalised objective. The pooled optimum is that of its
  `newton-cholesky` at a tolerance of 1e-10 (Ridge for the squared loss). Gaps are exact, on training rows: of mean
  predictions under `MeanPredictionParity`, of mean losses under `LossParity`, each bounded at 30 % of what it is
  without a constraint.

- classes: multinomial models of 3 to 6 classes on generated tables, across columns and across rows, beside
  scikit-learn's logistic regression of the pooled rows. Columns are independent, correlated (a random mixture), or 40
  near six factors. Under demographic parity of every class within .03, the gap is counted from decisions on training
  rows.
- choices: rounds on Communities and Crime across columns by options of `subspace`.

    python benchmarks/targets.py [--source FOLDER] [--only numbers classes choices] [--rows 5000] [--seeds 3]
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge, TweedieRegressor

from evenhand import (
    DemographicParity,
    HorizontalClassifier,
    HorizontalRegressor,
    LossParity,
    MeanPredictionParity,
    VerticalClassifier,
    VerticalRegressor,
)
from evenhand.constraints.families import find_loss
from evenhand.data import PartyEncoder, fetch, load
from evenhand.data.compressed import read_plain
from evenhand.errors import EvenhandError
from evenhand.metrics.deviance import deviance_explained
from evenhand.vertical.subspace import Subspace

PARITY = 0.03
"""Bound on the difference of two groups' rates at which each class is predicted."""
MOST_OF_CLASSES = 12
"""Rounds that are asked of models of several classes."""
MOST_FAR, MOST_ROUNDS = 1e-3, 10
"""What is asked: largest relative distance of the objective from the pooled optimum, and rounds."""
SHARE = 0.3
"""Bound on a gap, as a share of the gap without a constraint."""
PARTIES = 4
PLAIN = PartyEncoder(numbers="standard")


class Numbers(NamedTuple):
    """Columns, targets, weights and groups of a regression."""

    frame: pd.DataFrame
    targets: np.ndarray
    weights: np.ndarray
    group: pd.Series


def claims(family: str, rows: int, seed: int) -> Numbers:
    """Draw policies: correlated columns, few with claims, amounts with long tails, exposures of less than a year."""
    rng = np.random.default_rng([seed, *map(ord, family)])
    columns = 16
    matrix = rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.3 * rng.normal(size=(columns, columns)))
    matrix[:, :3] = rng.lognormal(0.0, 0.8, (rows, 3))
    group = rng.integers(0, 2 + seed % 4, rows)
    matrix[:, 3] += 0.7 * group
    scores = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0) @ rng.normal(size=columns) * rng.uniform(0.1, 0.25)
    exposure = rng.uniform(0.05, 1.0, rows)
    rate = np.exp(scores) * rng.uniform(0.05, 0.3)
    counts = rng.poisson(rate * rng.gamma(2.0, 0.5, rows) * exposure)
    amounts = 1000.0 * np.exp(0.5 * scores) * rng.lognormal(0.0, 1.0, rows)
    targets = {
        "squared": np.log(amounts),
        "poisson": counts / exposure,
        "gamma": amounts,
        "tweedie": np.where(counts > 0, counts * amounts / exposure, 0.0),
    }
    names = [f"x{place}" for place in range(columns)]
    return Numbers(pd.DataFrame(matrix, columns=names), targets[family], exposure, pd.Series(group, name="group"))


def crime(source: Path | None) -> Numbers | None:
    """Return Communities and Crime with its own target; None if the files are not here and cannot be fetched."""
    try:
        data, files = load("communities-crime", source=source), fetch("communities-crime", source=source)
    except EvenhandError:
        return None
    target = pd.read_csv(BytesIO(read_plain(files["communities.data"])), header=None).iloc[:, -1].to_numpy(float)
    frame = data.frame.reset_index(drop=True)
    return Numbers(frame, target, np.ones(len(target)), data.sensitive.iloc[:, 0].reset_index(drop=True))


def pooled(family: str, alpha: float, matrix: np.ndarray, given: Numbers) -> tuple[np.ndarray, float]:
    """Return weights and intercept of scikit-learn on the pooled rows."""
    if family == "squared":
        model: Any = Ridge(alpha=alpha * given.weights.sum())
    else:
        made = {"poisson": PoissonRegressor, "gamma": GammaRegressor, "tweedie": TweedieRegressor}[family]
        power = {"power": 1.5, "link": "log"} if family == "tweedie" else {}
        model = made(alpha=alpha, solver="newton-cholesky", tol=1e-10, max_iter=1000, **power)
    model.fit(matrix, given.targets, given.weights)
    return model.coef_, float(model.intercept_)


def objective(family: str, alpha: float, weights: np.ndarray, scores: np.ndarray, given: Numbers) -> float:
    losses = find_loss(family).value(scores, given.targets)
    return float(given.weights @ losses / given.weights.sum() + 0.5 * alpha * weights @ weights)


def gap(values: np.ndarray, given: Numbers) -> float:
    """Return the largest difference of weighted means between two groups."""
    groups = given.group.to_numpy()
    means = [np.average(values[groups == one], weights=given.weights[groups == one]) for one in np.unique(groups)]
    return float(max(means) - min(means))


def fit(split: str, given: Numbers, **settings: Any) -> tuple[Any, np.ndarray]:
    """Train across columns or across clients; return the model and the scores of the training rows."""
    groups = {"sensitive_features": given.group} if "constraint" in settings else {}
    if split == "columns":
        tables = [given.frame.iloc[:, part] for part in np.array_split(np.arange(given.frame.shape[1]), PARTIES)]
        model = VerticalRegressor(encoder=PLAIN, **settings).fit(tables, given.targets, given.weights, **groups)
        return model, model._scores_of(tables)
    clients = np.arange(len(given.targets)) % PARTIES
    across = HorizontalRegressor(**settings)
    across.fit(given.frame, given.targets, given.weights, clients=clients, **groups)
    return across, across._scores_of(given.frame)


def measure_numbers(split: str, family: str, given: Numbers) -> dict[str, Any]:
    """Fit a table without and under constraints, and compare with the pooled optimum."""
    rows = len(given.targets)
    alpha, loss = 2.0 / rows, find_loss(family)
    settings: dict[str, Any] = {"loss": family, "alpha": alpha}
    model, scores = fit(split, given, **settings)
    matrix = ((given.frame - given.frame.mean()) / given.frame.std(ddof=0)).to_numpy()
    weights, intercept = pooled(family, alpha, matrix, given)
    best = objective(family, alpha, weights, matrix @ weights + intercept, given)
    own = objective(family, alpha, model.coef_, scores, given)
    found = {
        "far": own / best - 1.0,
        "rounds": model.n_iter_,
        "weights apart": float(np.abs(model.coef_ - weights).max()),
        "explained": deviance_explained(loss, given.targets, scores, given.weights),
    }
    for kind, values in (
        (MeanPredictionParity, lambda scores: loss.mean(scores)[0]),
        (LossParity, lambda scores: loss.value(scores, given.targets)),
    ):
        bound = SHARE * gap(values(scores), given)
        fair, fair_scores = fit(split, given, constraint=kind(bound), **settings)
        beyond = gap(values(fair_scores), given) / bound - 1.0
        found |= {f"{kind.kind} beyond": beyond, f"{kind.kind} rounds": fair.n_iter_}
        found[f"{kind.kind} converged"] = fair.certificate_.converged
    return found


def tables_of(arguments: argparse.Namespace) -> dict[tuple[str, str], list[Numbers]]:
    """Return the drawn and public tables by their name and loss."""
    found = {
        ("claims", family): [claims(family, arguments.rows, seed) for seed in range(arguments.seeds)]
        for family in ("squared", "poisson", "gamma", "tweedie")
    }
    if (public := crime(arguments.source)) is not None:
        found |= {("crime", family): [public] for family in ("squared", "poisson")}
    return found


def show_numbers(console: Console, arguments: argparse.Namespace) -> None:
    """Print a line for each split, table and family, and asked beside measured."""
    parity, of_loss, every = MeanPredictionParity.kind, LossParity.kind, []
    title = f"Numbers, {arguments.rows:,} rows of claims, {PARTIES} participants; the worst of {arguments.seeds} draws"
    table = Table("across", "table", "loss", "far from pooled", "rounds", "weights apart", "D²", title=title)
    for name in ("prediction gap / bound − 1", "rounds", "loss gap / bound − 1", "rounds"):
        table.add_column(name)
    for split in ("columns", "clients"):
        for (name, family), drawn in tables_of(arguments).items():
            found = pd.DataFrame([measure_numbers(split, family, given) for given in drawn])
            every.append(found)
            worst = found.max()
            cells = [f"{worst['far']:.1e}", f"{worst['rounds']:.0f}", f"{worst['weights apart']:.1e}"]
            cells.append(f"{found['explained'].mean():.3f}")
            for kind in (parity, of_loss):
                cells += [f"{worst[f'{kind} beyond']:.1e}", f"{worst[f'{kind} rounds']:.0f}"]
            table.add_row(split, name, family, *cells)
    console.print(table)
    worst = pd.concat(every).max()
    rounds = max(worst[name] for name in ("rounds", f"{parity} rounds", f"{of_loss} rounds"))
    beyond = max(worst[f"{kind} beyond"] for kind in (parity, of_loss))
    compared = Table("asked of numbers", "asked", "measured", "met")
    for name, asked, measured, form in (
        ("far from pooled", MOST_FAR, worst["far"], "{:.1e}"),
        ("rounds without a constraint", MOST_ROUNDS, worst["rounds"], "{:.0f}"),
        ("rounds, all fits", MOST_ROUNDS, rounds, "{:.0f}"),
        ("gap beyond its bound, relative", MOST_FAR, beyond, "{:.1e}"),
    ):
        compared.add_row(name, f"≤ {asked:g}", form.format(measured), str(bool(measured <= asked)))
    console.print(compared)


# -- classes


class Classed(NamedTuple):
    """Columns, classes and groups."""

    frame: pd.DataFrame
    classes: np.ndarray
    group: pd.Series


def classed(columns: str, rows: int, seed: int) -> Classed:
    """Draw columns, and classes of unequal size that follow from them and from the group."""
    rng = np.random.default_rng([seed, *map(ord, columns)])
    count, group = 3 + seed % 4, rng.integers(0, 2, rows)
    if columns == "factors":
        matrix = rng.normal(size=(rows, 6)) @ rng.normal(size=(6, 40)) + 0.5 * rng.normal(size=(rows, 40))
        matrix /= matrix.std(axis=0)
    else:
        mixed = 0.4 * rng.normal(size=(12, 12)) if columns == "correlated" else 0.0
        matrix = rng.normal(size=(rows, 12)) @ (np.eye(12) + mixed)
    matrix[:, 0] += group
    scores = matrix @ rng.normal(size=(matrix.shape[1], count)) * 2.0 / np.sqrt(matrix.shape[1])
    scores += np.linspace(0.0, -1.0, count) + 0.4 * np.outer(group, rng.normal(size=count))
    chosen = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    names = [f"x{place}" for place in range(matrix.shape[1])]
    return Classed(pd.DataFrame(matrix, columns=names), chosen, pd.Series(group, name="group"))


def fit_classes(split: str, given: Classed, constraint: Any) -> tuple[Any, np.ndarray]:
    """Train across columns or across clients; return the model and the chances of the training rows."""
    groups = {} if constraint is None else {"sensitive_features": given.group}
    if split == "columns":
        tables = [given.frame.iloc[:, part] for part in np.array_split(np.arange(given.frame.shape[1]), PARTIES)]
        model: Any = VerticalClassifier(encoder=PLAIN, constraint=constraint).fit(tables, given.classes, **groups)
        return model, model.predict_proba(tables)
    clients = np.arange(len(given.classes)) % PARTIES
    model = HorizontalClassifier(constraint=constraint).fit(given.frame, given.classes, clients=clients, **groups)
    return model, model.predict_proba(given.frame)


def measure_classes(split: str, given: Classed) -> dict[str, Any]:
    """Fit a table without and under a constraint, and compare with the pooled optimum."""
    rows = len(given.classes)
    alpha = 2.0 / rows
    matrix = ((given.frame - given.frame.mean()) / given.frame.std(ddof=0)).to_numpy()
    best = LogisticRegression(C=1.0 / (alpha * rows), tol=1e-10, max_iter=5000).fit(matrix, given.classes)

    def value(chances: np.ndarray, weights: np.ndarray) -> float:
        return float(-np.log(chances[np.arange(rows), given.classes]).mean() + 0.5 * alpha * (weights**2).sum())

    model, chances = fit_classes(split, given, None)
    fair, decided = fit_classes(split, given, DemographicParity(PARITY))
    hits = decided.argmax(axis=1)[:, None] == np.arange(decided.shape[1])
    rates = [hits[given.group == one].mean(axis=0) for one in (0, 1)]
    return {
        "far": value(chances, model.coef_) / value(best.predict_proba(matrix), best.coef_) - 1.0,
        "rounds": model.n_iter_,
        "accuracy": float((chances.argmax(axis=1) == given.classes).mean()),
        "fair accuracy": float(hits[np.arange(rows), given.classes].mean()),
        "gap": float(np.abs(rates[0] - rates[1]).max()),
        "fair rounds": fair.n_iter_,
        "converged": fair.certificate_.converged,
    }


def show_classes(console: Console, arguments: argparse.Namespace) -> None:
    """Print a line for each split and kind of columns, and asked beside measured."""
    title = f"Classes, {arguments.rows:,} rows, {PARTIES} participants; the worst of {arguments.seeds} draws"
    table = Table(
        "across", "columns", "far from pooled", "rounds", "accuracy", "under parity", "gap", "rounds", title=title
    )
    table.add_column("converged")
    every = []
    for split in ("columns", "clients"):
        for columns in ("independent", "correlated", "factors"):
            drawn = [classed(columns, arguments.rows, seed) for seed in range(arguments.seeds)]
            found = pd.DataFrame([measure_classes(split, given) for given in drawn])
            every.append(found)
            worst, mean = found.max(), found.mean()
            cells = [f"{worst['far']:.1e}", f"{worst['rounds']:.0f}", f"{mean['accuracy']:.3f}"]
            cells += [f"{mean['fair accuracy']:.3f}", f"{worst['gap']:.4f}", f"{worst['fair rounds']:.0f}"]
            table.add_row(split, columns, *cells, f"{found['converged'].sum()} of {len(found)}")
    console.print(table)
    worst = pd.concat(every).max()
    compared = Table("asked of classes", "asked", "measured", "met")
    for name, asked, measured, form in (
        ("far from pooled", MOST_FAR, worst["far"], "{:.1e}"),
        ("rounds without a constraint", MOST_OF_CLASSES, worst["rounds"], "{:.0f}"),
        ("rounds, all fits", MOST_OF_CLASSES, max(worst["rounds"], worst["fair rounds"]), "{:.0f}"),
        ("largest gap of a class", PARITY, worst["gap"], "{:.4f}"),
    ):
        compared.add_row(name, f"≤ {asked:g}", form.format(measured), str(bool(measured <= asked)))
    console.print(compared)


# -- what rounds of correlated columns depend on


def show_choices(console: Console, arguments: argparse.Namespace) -> None:
    """Print rounds on Communities and Crime for options of `subspace`: to stop, and to come within a thousandth."""
    given = crime(arguments.source)
    if given is None:
        return
    settings: dict[str, Any] = {"loss": "squared", "alpha": 2.0 / len(given.targets)}
    _, scores = fit("columns", given, **settings)
    parity = {"constraint": MeanPredictionParity(SHARE * gap(scores, given))}
    table = Table(
        "constraint", "protection", "bands", "steps kept", "rounds to 0.1 %", "rounds", "distance", "bound / distance"
    )
    for name, bounded in (("none", {}), (MeanPredictionParity.kind, parity)):
        best, _ = fit("columns", given, tol=1e-8, max_rounds=300, **bounded, **settings)
        least = best.certificate_.objective
        for protection, bands, history in itertools.product(("masked", "none"), (1, 2), (None, 50)):
            solver = Subspace(bands=bands, history=history)
            model, _ = fit("columns", given, solver=solver, protection=protection, **bounded, **settings)
            far = model.run_.history["objective"].to_numpy() / least - 1.0
            first, last = int(np.argmax(far <= MOST_FAR)), float(far[-1])
            kept = "default" if history is None else str(history)
            sharp = f"{model.certificate_.bound / last:.0f}"
            table.add_row(name, protection, str(bands), kept, str(first), str(model.n_iter_), f"{last:.1e}", sharp)
    console.print(table)


SECTIONS: dict[str, Callable[[Console, argparse.Namespace], None]] = {
    "numbers": show_numbers,
    "classes": show_classes,
    "choices": show_choices,
}
"""A section for each kind of target."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path)
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, show in SECTIONS.items():
            if arguments.only is None or name in arguments.only:
                show(console, arguments)


if __name__ == "__main__":
    main()
