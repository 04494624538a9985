"""Any model at any party, in a few rounds: beside FairVFL's steps, Adam, pooled models and GAL's rule.

Six parties, encoded columns dealt by lot; the papers' splits where they have them, else 70 % of at most `--most` rows.
Settings are chosen on generated tables (`--sets plain-1000 ...`), which have 8,000 new rows.
Methods:

- `learners, DEO`: networks, bound .01 on the loss over the positives (DEO) on the training rows, one model (folds = 1);
- `learners, DEO, all epochs`: the same with networks that set no rows aside and are trained for all epochs;
- `learners, DEO, cross-fitted`: five models, the bound at cross-fitted scores;
- `learners, DEO, unmasked`: the first where the server receives each party's column;
- `learners, odds`: networks, equalized odds on error ≤ .01 at cross-fitted scores, masked sums;
- `learners`, `learners, unmasked`, `learners, trees`: without constraint, cross-fitted;
- `learners, embedding`, `learners, embedding, unmasked`: the label holder's networks over all parties' embeddings;
- `learners, 8 features`: hidden layers of eight units in place of one number;
- `Adam`: FairVFL's messages with Adam and a penalty, `--adam` rounds, DEO ≤ .01;
- `pooled MLP`: all columns in one place, scikit-learn's perceptron, chosen from 32 settings on a sixth of the rows;
- `pooled LightGBM`: all columns in one place, stopped early on a sixth of the rows;
- `GAL`: each party fits the same network to pseudo-residuals, weighted by a non-negative sum of one, with a scalar step
  from a line search (Diao et al., arXiv 2106.01425); no constraint, no joint solution, ten rounds.

FairVFL's published steps (32,000, 12,000 and 10,000 rounds) and Adam's are those of `fairvfl-table2`, read from its
results, and compared on the same splits: seeds from 10 on are theirs too.

Each fit is added to `--out` as soon as it is done, and is not repeated: a part can be run at a time.

    python benchmarks/learners.py [--source FOLDER] [--sets NAME ...] [--seeds 10 ...] [--methods NAME ...] --out FILE
    python benchmarks/learners.py --show --out FILE
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from families import FAMILIES, generated
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize_scalar, nnls
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from evenhand.constraints.kinds import Constraint, EqualizedOdds, EqualOpportunity
from evenhand.data import PartyEncoder, load
from evenhand.models.learning.choose import as_learner
from evenhand.models.learning.network import NetworkLearner
from evenhand.models.saved import joint_scores
from evenhand.protocol.job import Job
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.data.splits import papers_split, party_sizes, split_columns
from evenhand_reproductions.in_memory import train_vertical

SETS = ("compas", "communities-crime", "adult", "credit-default", "give-me-some-credit")
PAPERS = SETS[:3]
GENERATED = {f"{family}-{rows}": (family, rows) for rows in (1000, 3000) for family in FAMILIES}
"""Family and training rows of generated tables, which settings may be chosen on."""
NEW = 8000
"""New rows of generated tables."""
RESULTS = Path(__file__).parent.parent / "reproductions" / "results" / "fairvfl-table2.json"
FIRST = 3000
"""Rows on which all settings of the pooled perceptron are compared."""
DEO, ODDS = EqualOpportunity(0.01), EqualizedOdds(0.01, measure="error")
PUBLISHED = {
    "FairVFL(ε=0.01)": "FairVFL, published steps",
    "Adam and penalty, many rounds (ε=0.01)": "FairVFL, Adam and penalty",
}
SOFT = {"folds": 1, "exact_rates": False}


@dataclass(frozen=True)
class Draw:
    """Training and test rows: blocks of columns at six parties, labels ±1, and the first sensitive attribute."""

    train: list[np.ndarray]
    test: list[np.ndarray]
    labels: np.ndarray
    test_labels: np.ndarray
    groups: pd.DataFrame
    test_groups: np.ndarray

    def parties(self, learner: Any) -> list[PartyColumns]:
        found = None if learner is None else as_learner(learner)
        return [PartyColumns(f"party{k}", one, k == 0, learner=found) for k, one in enumerate(self.train)]

    @property
    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        return np.hstack(self.train), np.hstack(self.test)


def draw(name: str, source: Path | None, seed: int, most: int) -> Draw:
    if name in GENERATED:
        family, rows = GENERATED[name]
        people = generated(family, rows + NEW, 0.35, 2, seed)
        frame, groups = pd.concat(people.parts, axis=1), pd.DataFrame({"group": people.groups})
        labels, places = np.where(people.labels > 0, 1.0, -1.0), (np.arange(rows), np.arange(rows, rows + NEW))
    else:
        data = load(name, source=source)
        frame, groups = data.frame, data.sensitive.iloc[:, :1].reset_index(drop=True)
        labels = np.where(data.label == data.positive, 1.0, -1.0)
        if name in PAPERS:
            train, test = papers_split(name, seed=seed)
            places = frame.index.get_indexer(train), frame.index.get_indexer(test)
        else:
            order = np.random.default_rng(seed).permutation(len(frame))[:most]
            places = order[: int(0.7 * len(order))], order[int(0.7 * len(order)) :]
    encoder = PartyEncoder().fit(frame.iloc[places[0]])
    matrices = [np.asarray(_dense(encoder.transform(frame.iloc[one]))) for one in places]
    width = matrices[0].shape[1]
    shares = split_columns(width, party_sizes(name) if name in PAPERS else _even(width), seed=seed)
    return Draw(
        [matrices[0][:, one] for one in shares],
        [matrices[1][:, one] for one in shares],
        labels[places[0]],
        labels[places[1]],
        groups.iloc[places[0]].reset_index(drop=True),
        groups.iloc[places[1]].iloc[:, 0].to_numpy(),
    )


def _dense(matrix: Any) -> Any:
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def _even(width: int) -> list[int]:
    return [len(one) for one in np.array_split(np.arange(width), 6)]


def learners(
    given: Draw,
    seed: int,
    learner: Any,
    constraint: Constraint | None = None,
    protection: str = "masked",
    rounds: int = 12,
    **options: Any,
) -> dict[str, Any]:
    job = Job(
        solver="learners",
        constraints=() if constraint is None else (constraint,),
        max_rounds=rounds,
        tol=1e-3,
        seed=seed,
        protection=protection,  # type: ignore[arg-type]
        options=options,
    )
    return _trained(given, job, learner)


def adam(given: Draw, seed: int, rounds: int) -> dict[str, Any]:
    options = {"step": 0.01, "optimiser": "adam", "penalty": 1.0}
    job = Job(solver="fairvfl", model="mlp", constraints=(DEO,), max_rounds=rounds, tol=0.0, seed=seed, options=options)
    return _trained(given, job, None)


def _trained(given: Draw, job: Job, learner: Any) -> dict[str, Any]:
    parties = given.parties(learner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = train_vertical(job, parties, given.labels, given.groups)
    blocks = {f"party{k}": one for k, one in enumerate(given.test)}
    seen = joint_scores(run.models, {one.name: one.matrix for one in parties})
    found = measured(given, joint_scores(run.models, blocks), seen)
    # Of every fiftieth round, where there are many.
    history = run.history.iloc[:: max(1, len(run.history) // 50)]
    return found | {
        "rounds": int(run.certificate.rounds),
        "converged": bool(run.certificate.converged),
        "violation": float(run.certificate.violation),
        "bytes": int(run.transcript.total_bytes),
        "objectives": dict(zip(history["round"].tolist(), history["objective"].tolist(), strict=True)),
        "violations": dict(zip(history["round"].tolist(), history["violation"].tolist(), strict=True)),
    }


def pooled_mlp(given: Draw, seed: int) -> dict[str, Any]:
    """Compare all settings on at most `FIRST` rows, and the best three on all; a sixth of the rows decides."""
    (rows, test), y, random = given.pooled, given.labels > 0, np.random.default_rng(seed)
    aside = random.random(len(y)) < 1 / 6
    shown = random.permutation(np.flatnonzero(~aside))
    grid = [
        {"hidden_layer_sizes": hidden, "alpha": alpha, "learning_rate_init": rate}
        for hidden in ((16,), (32, 16), (64,), (128, 64))
        for alpha in (1e-4, 1e-2, 1.0, 10.0)
        for rate in (1e-3, 4e-3)
    ]
    for some, best in ((shown[:FIRST], 3), (shown, 1)):
        found = []
        for setting in grid:
            one = MLPClassifier(**setting, early_stopping=True, max_iter=60, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one.fit(rows[some], y[some])
            loss = _log_loss(_odds(one.predict_proba(rows[aside])[:, 1]), given.labels[aside])
            found.append((loss, len(found), setting, one))
        found.sort(key=lambda one: one[:2])
        grid = [setting for _, _, setting, _ in found[:best]]
    chosen = found[0][3]
    return measured(given, _odds(chosen.predict_proba(test)[:, 1]), _odds(chosen.predict_proba(rows)[:, 1]))


def pooled_lightgbm(given: Draw, seed: int) -> dict[str, Any]:
    import lightgbm

    (rows, test), y, random = given.pooled, given.labels > 0, np.random.default_rng(seed)
    aside = random.random(len(y)) < 1 / 6
    best: tuple[float, Any] = (np.inf, None)
    for leaves in (8, 16, 31):
        one = lightgbm.LGBMClassifier(
            n_estimators=1000, learning_rate=0.05, num_leaves=leaves, random_state=seed, verbose=-1, n_jobs=1
        )
        stop = lightgbm.early_stopping(30, verbose=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one.fit(rows[~aside], y[~aside], eval_set=[(rows[aside], y[aside])], callbacks=[stop])
        loss = _log_loss(one.predict(rows[aside], raw_score=True), given.labels[aside])
        if loss < best[0]:
            best = loss, one
    return measured(given, best[1].predict(test, raw_score=True), best[1].predict(rows, raw_score=True))


def gal(given: Draw, seed: int, rounds: int = 10) -> dict[str, Any]:
    """GAL's rule, with the same networks: weights of parties and a scalar step, round by round."""
    learner, y = NetworkLearner(), given.labels
    random = np.random.default_rng(seed)
    aside = random.random(len(y)) < 0.1
    share = float((y > 0).mean())
    scores = np.full(len(y), np.log(share / (1 - share)))
    test = np.full(len(given.test_labels), scores[0])
    best = (np.inf, test, scores, 0)
    warm: list[Any] = [None] * len(given.train)
    for number in range(1, rounds + 1):
        residual = y * expit(-y * scores)
        outputs, others = [], []
        for place, (one, other) in enumerate(zip(given.train, given.test, strict=True)):
            weight = np.where(aside, 0.0, 1.0)
            own = seed * 1000 + number * 10 + place
            warm[place] = learner.fit(one, residual, weight, warm=warm[place], seed=own, features=1)
            outputs.append(warm[place].outputs(one))
            others.append(warm[place].outputs(other))
        weights, _ = nnls(np.array(outputs).T[~aside], residual[~aside])
        weights = weights / weights.sum() if weights.sum() else np.full(len(outputs), 1 / len(outputs))
        way = weights @ np.array(outputs)
        step = minimize_scalar(
            lambda eta, way=way, scores=scores: _log_loss((scores + eta * way)[~aside], y[~aside]),
            bounds=(0.0, 50.0),
            method="bounded",
        ).x
        scores, test = scores + step * way, test + step * (weights @ np.array(others))
        if (loss := _log_loss(scores[aside], y[aside])) < best[0]:
            best = loss, test, scores, number
    return measured(given, best[1], best[2]) | {"rounds": best[3]}


def _odds(chance: np.ndarray) -> np.ndarray:
    inside = np.clip(chance, 1e-9, 1 - 1e-9)
    return np.log(inside / (1 - inside))


def _log_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.logaddexp(0.0, -labels * scores).mean())


def measured(given: Draw, scores: np.ndarray, seen: np.ndarray) -> dict[str, Any]:
    """Return quality on test rows, DEO on both, and by how much gaps of errors exceed .01, in standard errors."""
    labels, groups = given.test_labels, given.test_groups
    gaps, excess = [], []
    for label in (-1.0, 1.0):
        rates, variances = [], []
        for group in np.unique(groups):
            rows = (labels == label) & (groups == group)
            rate, count = float(np.mean((scores[rows] > 0) != (label > 0))), int(rows.sum())
            rates.append(rate)
            variances.append((count * rate + 1) / (count + 2) * (1 - (count * rate + 1) / (count + 2)) / count)
        gaps.append(abs(max(rates) - min(rates)))
        excess.append((gaps[-1] - 0.01) / np.sqrt(sum(variances)))
    return {
        "log loss": _log_loss(scores, labels),
        "accuracy": float(np.mean((scores > 0) == (labels > 0))),
        "AUC": float(roc_auc_score(labels > 0, scores)),
        "DEO": _deo(scores, labels, groups),
        "train DEO": _deo(seen, given.labels, given.groups.iloc[:, 0].to_numpy()),
        "objective": _log_loss(seen, given.labels),
        "DFP": gaps[0],
        "DFN": gaps[1],
        "odds beyond .01, standard errors": float(max(excess)),
    }


def _deo(scores: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> float:
    positive = labels > 0
    slices = [positive & (groups == one) for one in np.unique(groups)]
    means = [_log_loss(scores[rows], labels[rows]) for rows in slices]
    return float(max(means) - min(means))


METHODS: dict[str, Callable[[Draw, int, argparse.Namespace], dict[str, Any]]] = {
    "learners, DEO": lambda given, seed, _: learners(given, seed, "mlp", DEO, **SOFT),
    "learners, DEO, unmasked": lambda given, seed, _: learners(given, seed, "mlp", DEO, "none", **SOFT),
    "learners, DEO, all epochs": lambda given, seed, _: learners(given, seed, NetworkLearner(aside=0.0), DEO, **SOFT),
    "learners, DEO, cross-fitted": lambda given, seed, _: learners(given, seed, "mlp", DEO),
    "learners, odds": lambda given, seed, _: learners(given, seed, "mlp", ODDS),
    "learners": lambda given, seed, _: learners(given, seed, "mlp"),
    "learners, unmasked": lambda given, seed, _: learners(given, seed, "mlp", None, "none"),
    "learners, 8 features": lambda given, seed, _: learners(given, seed, "mlp", features=8),
    "learners, embedding": lambda given, seed, _: learners(given, seed, "mlp", exchange="embedding"),
    "learners, embedding, unmasked": lambda given, seed, _: learners(
        given, seed, "mlp", None, "none", exchange="embedding"
    ),
    "learners, trees": lambda given, seed, _: learners(given, seed, "trees", rounds=30),
    "Adam": lambda given, seed, asked: adam(given, seed, asked.adam),
    "pooled MLP": lambda given, seed, _: pooled_mlp(given, seed),
    "pooled LightGBM": lambda given, seed, _: pooled_lightgbm(given, seed),
    "GAL": lambda given, seed, _: gal(given, seed),
}


DEFAULT = [
    "learners, DEO",
    "learners",
    "learners, odds",
    "learners, unmasked",
    "GAL",
    "pooled LightGBM",
    "pooled MLP",
]
"""Methods that are run unless others are named."""


def published() -> pd.DataFrame:
    """Return FairVFL's published steps, and Adam's many, with ε = .01, one row for each set and seed."""
    if not RESULTS.exists():
        return pd.DataFrame()
    found = pd.DataFrame(json.loads(RESULTS.read_text())["records"])
    found = found[found["method"].isin(PUBLISHED)].sort_values("rounds")
    return found.groupby(["set", "seed", "method"], as_index=False).first()


def show(path: Path) -> None:
    table, marks = pd.read_json(path, lines=True), published()
    marks = marks[marks["set"].isin(table["set"])] if len(marks) else marks
    console = Console(width=150)
    heads = "set, method, seeds, rounds, objective, train DEO, test ACC, AUC, DFP, DFN, MB, CPU s"
    shown = Table(*heads.split(", "))
    for (name, method), rows in table.groupby(["set", "method"], sort=False):
        mean = rows.mean(numeric_only=True)
        shown.add_row(
            name,
            method,
            str(len(rows)),
            _number(mean.get("rounds"), "{:.1f}"),
            f"{mean['objective']:.4f}",
            f"{mean['train DEO']:.4f}",
            f"{100 * mean['accuracy']:.2f}",
            f"{mean['AUC']:.4f}",
            f"{mean['DFP']:.3f}",
            f"{mean['DFN']:.3f}",
            _number(mean.get("bytes", np.nan) / 1e6, "{:.1f}"),
            f"{mean['seconds']:.0f}",
        )
    for (name, method), rows in marks.groupby(["set", "method"], sort=False):
        mean = rows.mean(numeric_only=True)
        shown.add_row(
            name,
            PUBLISHED[method],
            str(len(rows)),
            f"{mean['rounds']:.0f}",
            f"{mean['objective']:.4f}",
            f"{mean['train DEO']:.4f}",
            f"{100 * mean['accuracy']:.2f}",
            "",
            f"{mean['DFP']:.3f}",
            f"{mean['DFN']:.3f}",
            f"{mean['bytes'] / 1e6:,.0f}",
            f"{mean['seconds']:.0f}",
        )
    console.print(shown)
    asked = Table("asked", "measured")
    _targets(table, marks, asked)
    console.print(asked)


def _number(value: Any, how: str) -> str:
    return "" if value is None or not np.isfinite(value) else how.format(value)


def _targets(table: pd.DataFrame, marks: pd.DataFrame, asked: Table) -> None:
    """Add each target with what was measured; methods and published runs are compared on the same splits."""

    def of(name: str, method: str, rows: pd.DataFrame = table) -> pd.DataFrame:
        return rows[(rows["set"] == name) & (rows["method"] == method)].set_index("seed")

    for name in table["set"].unique():
        steps = of(name, "FairVFL(ε=0.01)", marks)
        for method in ("learners, DEO", "learners, DEO, all epochs"):
            _beside_steps(name, method, of(name, method), steps, asked)
        learned, odds = of(name, "learners"), of(name, "learners, odds")
        for method in ("pooled MLP", "pooled LightGBM", "GAL"):
            if len(told := (learned["AUC"] - of(name, method)["AUC"]).dropna()):
                wanted = " (asked: −.002 in at most 12 rounds)" if method == "pooled MLP" else ""
                asked.add_row(f"{name}: AUC − that of {method}{wanted}", _difference(told, "+.4f"))
        if len(told := (learned["rounds"] - of(name, "learners, unmasked")["rounds"]).dropna()):
            asked.add_row(f"{name}: rounds with masks − without (asked: at most 2)", _difference(told, "+.1f"))
            told = (learned["AUC"] - of(name, "learners, unmasked")["AUC"]).dropna()
            asked.add_row(f"{name}: AUC with masks − without", _difference(told, "+.4f"))
        if len(odds):
            kept = int((odds["odds beyond .01, standard errors"] <= 2.0).sum())
            asked.add_row(
                f"{name}: odds ≤ .01 + 2 standard errors on test rows (asked: 90 %)", f"{kept} of {len(odds)}"
            )
    if len(odds := table[table["method"] == "learners, odds"]):
        kept = int((odds["odds beyond .01, standard errors"] <= 2.0).sum())
        asked.add_row("all sets: odds ≤ .01 + 2 standard errors on test rows (asked: 90 %)", f"{kept} of {len(odds)}")


def _difference(told: pd.Series, how: str) -> str:
    error = f", standard error {told.sem():{how[1:]}}" if len(told) > 1 else ""
    return f"{told.mean():{how}} ({told.min():{how}} to {told.max():{how}}{error}, {len(told)} seeds)"


def _beside_steps(name: str, method: str, rows: pd.DataFrame, steps: pd.DataFrame, asked: Table) -> None:
    if not len(rows) or not len(steps):
        return
    # Of a split that the published steps were not run on: their mean.
    marks = steps["objective"].reindex(rows.index).fillna(steps["objective"].mean())
    first = []
    for objectives, mark in zip(rows["objectives"], marks, strict=True):
        there = [int(number) for number, value in objectives.items() if value <= mark]
        first.append(str(min(there)) if there else "never")
    asked.add_row(
        f"{name}: rounds to the objective of {steps['rounds'].iloc[0]:,.0f} published ones (asked: 5), DEO ≤ .011",
        f"{method}: {', '.join(first)}; largest training DEO {rows['train DEO'].max():.4f}",
    )
    if len(told := 100 * (rows["accuracy"] - steps["accuracy"]).dropna()):
        asked.add_row(f"{name}: test accuracy − that of published steps, same splits", _difference(told, "+.2f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=[*SETS, *GENERATED])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12, 13, 14])
    parser.add_argument("--methods", nargs="+", default=DEFAULT, choices=list(METHODS))
    parser.add_argument("--most", type=int, default=12_000, help="rows of sets that the papers do not split")
    parser.add_argument("--adam", type=int, default=2000, help="rounds of Adam")
    parser.add_argument("--out", type=Path, help="file of JSON lines")
    parser.add_argument("--show", action="store_true", help="only print the tables of the file")
    asked = parser.parse_args()
    if asked.out is None:
        parser.error("--out names the file that fits are added to")
    known = set()
    if asked.out.exists():
        lines = map(json.loads, asked.out.read_text().splitlines())
        known = {(one["set"], one["seed"], one["method"]) for one in lines}
    # All sets of one seed before the next, so that a part has as many seeds of each.
    for seed in () if asked.show else asked.seeds:
        for name in asked.sets:
            given = None
            for method in asked.methods:
                if (name, seed, method) in known:
                    continue
                given = given or draw(name, asked.source, seed, asked.most)
                began = time.process_time()
                found = METHODS[method](given, seed, asked)
                record = {"set": name, "seed": seed, "method": method, **found}
                record["seconds"] = time.process_time() - began
                with asked.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    show(asked.out)


if __name__ == "__main__":
    main()
