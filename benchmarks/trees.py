"""Compare fair boosted trees across columns with common pooled learners and the linear model.

Adult (the demo's six parties), COMPAS, credit-default and GiveMeSomeCredit: two thirds of the rows train, one third
tests, five draws; means and standard errors. Accuracy, AUC and the exact gaps between groups in false positives (DFP)
and false negatives (DFN) on the test rows; rounds and megabytes of all messages; seconds of one process.

- LightGBM, pooled: 100 trees, default settings. All columns in one place.
- trees: `VerticalClassifier(model="trees", max_rounds=10)` with and without equalized odds ≤ 0.01 on the error.
- trees across rows: `HorizontalClassifier(model="trees")`, the training rows dealt to five clients by lot.
- linear: the same with `subspace`.
- ThresholdOptimizer over the pooled LightGBM: needs groups at prediction, and decides by lot.
- ExponentiatedGradient over the pooled LightGBM (20 iterations): as many models, one of them drawn by lot.

Then labels that are products of columns of two of three parties, alone or among other effects: parties' own trees,
trees that cross parties, and both; and a million generated rows: seconds a round.

    python benchmarks/trees.py [--source FOLDER] [--sets NAME ...] [--draws N] [--rows N] [--without-reduction]
        [--folds N]
    python benchmarks/trees.py --picture docs/trees.png
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import EqualizedOdds as ReducedOdds
from fairlearn.reductions import ExponentiatedGradient
from lightgbm import LGBMClassifier
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

from evenhand import EqualizedOdds, HorizontalClassifier, VerticalClassifier
from evenhand.cli.demo import PARTIES as ADULT
from evenhand.data import PartyEncoder, load
from evenhand.solvers import Trees

EPSILON = 0.01
FOLDS = {"vertical": Trees().folds}
"""Number of cross-fitted models of trees across columns; --folds changes it."""
PARTIES: dict[str, dict[str, list[str]]] = {
    "adult": ADULT,
    "compas": {
        "court": ["c_charge_degree", "priors_count", "days_b_screening_arrest", "length_of_stay"],
        "registry": ["age", "age_cat", "sex", "race"],
        "vendor": ["score_text", "decile_score"],
    },
    "credit-default": {
        "bank": ["LIMIT_BAL", *(f"BILL_AMT{k}" for k in range(1, 7))],
        "bureau": ["PAY_0", *(f"PAY_{k}" for k in range(2, 7))],
        "shop": [f"PAY_AMT{k}" for k in range(1, 7)],
        "registry": ["SEX", "EDUCATION", "MARRIAGE", "AGE"],
    },
    "give-me-some-credit": {
        "bank": ["RevolvingUtilizationOfUnsecuredLines", "NumberOfOpenCreditLinesAndLoans"],
        "bureau": [f"NumberOfTime{when}" for when in ("30-59DaysPastDueNotWorse", "60-89DaysPastDueNotWorse")]
        + ["NumberOfTimes90DaysLate"],
        "employer": ["MonthlyIncome", "DebtRatio"],
        "registry": ["age", "NumberOfDependents", "NumberRealEstateLoansOrLines"],
    },
}


@dataclass(frozen=True)
class Draw:
    """Training and test rows of one draw; labels are 0 and 1."""

    frame: pd.DataFrame
    labels: np.ndarray
    groups: np.ndarray
    parties: dict[str, list[str]]
    train: np.ndarray
    test: np.ndarray

    def tables(self, rows: np.ndarray) -> dict[str, pd.DataFrame]:
        return {name: self.frame[columns].iloc[rows] for name, columns in self.parties.items()}

    def judged(self, decisions: np.ndarray, scores: np.ndarray | None = None) -> dict[str, float]:
        labels, groups = self.labels[self.test], self.groups[self.test]
        some = groups == np.unique(groups)[0]
        gaps = {
            name: abs(decisions[some & (labels == one)].mean() - decisions[~some & (labels == one)].mean())
            for name, one in (("DFP", 0), ("DFN", 1))
        }
        area = np.nan if scores is None else roc_auc_score(labels, scores)
        return {"ACC": float((decisions == labels).mean()), "AUC": area, **gaps, **self.chance(decisions)}

    def chance(self, decisions: np.ndarray) -> dict[str, float]:
        """The mean gaps of a model whose rates are equal on the training rows: both samples' binomial errors alone."""
        found = {}
        for name, one in (("DFP", 0), ("DFN", 1)):
            rate = decisions[self.labels[self.test] == one].mean()
            there = [rows[self.labels[rows] == one] for rows in (self.train, self.test)]
            sizes = np.concatenate([np.unique(self.groups[rows], return_counts=True)[1] for rows in there])
            found[f"{name} by chance"] = float(np.sqrt(2.0 / np.pi * rate * (1.0 - rate) * (1.0 / sizes).sum()))
        return found


def draw(name: str, source: Path | None, seed: int) -> Draw:
    data = load(name, source=source)
    order = np.random.default_rng(seed).permutation(len(data.frame))
    cut = 2 * len(order) // 3
    labels = (data.label == data.positive).to_numpy().astype(int)
    groups = data.sensitive.iloc[:, 0].astype(str).to_numpy()
    return Draw(data.frame, labels, groups, PARTIES[name], np.sort(order[:cut]), np.sort(order[cut:]))


def cpu(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = action()
    return found, time.process_time() - start


def pooled() -> LGBMClassifier:
    return LGBMClassifier(n_estimators=100, n_jobs=1, verbosity=-1, deterministic=True, force_col_wise=True)


def ours(given: Draw, **settings: Any) -> dict[str, float]:
    if settings.get("model") == "trees":
        settings["solver"] = Trees(folds=FOLDS["vertical"])
    # Linear models with standardised numbers: benchmarks/curves.py has those of curves.
    encoder = PartyEncoder(numbers="standard")
    model = VerticalClassifier(random_state=0, pos_label=1, encoder=encoder, **settings)
    rows = given.tables(given.train), given.labels[given.train]
    _, seconds = cpu(lambda: model.fit(*rows, sensitive_features=given.groups[given.train]))
    scores = model.decision_function(given.tables(given.test))
    sent = {"rounds": model.n_iter_, "MB": model.bytes_sent_ / 1e6, "CPU": seconds}
    return {**given.judged((scores > 0).astype(int), scores), **sent}


def across_rows(given: Draw, constraint: Any) -> dict[str, float]:
    columns = [column for part in given.parties.values() for column in part]
    clients = np.random.default_rng(0).integers(0, 5, len(given.train))
    model = HorizontalClassifier(model="trees", constraint=constraint, random_state=0, pos_label=1)
    rows = given.frame[columns].iloc[given.train], given.labels[given.train]
    _, seconds = cpu(lambda: model.fit(*rows, sensitive_features=given.groups[given.train], clients=clients))
    scores = model.decision_function(given.frame[columns].iloc[given.test])
    sent = {"rounds": model.n_iter_, "MB": model.bytes_sent_ / 1e6, "CPU": seconds}
    return {**given.judged((scores > 0).astype(int), scores), **sent}


def peers(given: Draw, reduce: bool) -> dict[str, dict[str, float]]:
    columns = [column for part in given.parties.values() for column in part]
    X, y, groups = given.frame[columns], given.labels, given.groups
    train, test = given.train, given.test
    model, seconds = cpu(lambda: pooled().fit(X.iloc[train], y[train]))
    scores = model.predict_proba(X.iloc[test])[:, 1]
    found = {"LightGBM, pooled": {**given.judged((scores > 0.5).astype(int), scores), "CPU": seconds}}
    after = ThresholdOptimizer(
        estimator=model, constraints="equalized_odds", predict_method="predict_proba", prefit=True
    )
    _, more = cpu(lambda: after.fit(X.iloc[train], y[train], sensitive_features=groups[train]))
    decisions = after.predict(X.iloc[test], sensitive_features=groups[test], random_state=0)
    found["ThresholdOptimizer"] = {**given.judged(np.asarray(decisions)), "CPU": seconds + more}
    if not reduce:
        return found
    reduction = ExponentiatedGradient(pooled(), ReducedOdds(difference_bound=EPSILON), max_iter=20)
    _, seconds = cpu(lambda: reduction.fit(X.iloc[train], y[train], sensitive_features=groups[train]))
    decisions = reduction.predict(X.iloc[test], random_state=0)
    found["ExponentiatedGradient"] = {**given.judged(np.asarray(decisions)), "CPU": seconds}
    return found


def table(name: str, source: Path | None, draws: range, reduce: bool) -> None:
    constraint = EqualizedOdds(EPSILON, measure="error")
    rows = []
    for seed in draws:
        given = draw(name, source, seed)
        found = peers(given, reduce)
        for model in ("trees", "linear"):
            rounds = {"max_rounds": 10} if model == "trees" else {}
            found[model] = ours(given, model=model, **rounds)
            found[f"{model}, equalized odds"] = ours(given, model=model, constraint=constraint, **rounds)
        found["trees across rows"] = across_rows(given, None)
        found["trees across rows, equalized odds"] = across_rows(given, constraint)
        rows += [{"method": method, **one} for method, one in found.items()]
    all_draws = pd.DataFrame(rows).groupby("method", sort=False)
    means, errors = all_draws.mean(), all_draws.sem()
    fair = means.loc["trees, equalized odds"]
    print(f"\n{name}: {len(draws)} draws of {len(given.train):,} training and {len(given.test):,} test rows")
    for method, mean in means.iterrows():
        error = errors.loc[method]
        said = [f"{key} {mean[key]:.4f} ±{error[key]:.4f}" for key in ("ACC", "AUC", "DFP", "DFN")]
        print(
            f"  {method:36s}{'  '.join(said)}  rounds {mean['rounds']:5.1f}  MB {mean['MB']:6.1f}  "
            f"CPU {mean['CPU']:6.2f} s = {mean['CPU'] / means['CPU'].iloc[0]:5.1f} x pooled"
        )
    chance = " ".join(f"{gap} {fair[f'{gap} by chance']:.4f}" for gap in ("DFP", "DFN"))
    print(f"  by chance alone, were rates of the training rows equal: {chance}", flush=True)


def products(draws: int, rows: int = 30_000) -> None:
    """Labels that no party can learn alone: test AUC beside pooled LightGBM's."""
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "a product": lambda X: 2.0 * X[:, 0] * X[:, 3],
        "mixed effects": lambda X: (
            X[:, 0] * X[:, 3] + X[:, 1] * X[:, 6] + 0.7 * X[:, 2] - 0.7 * np.abs(X[:, 4]) + 0.5 * X[:, 7]
        ),
    }
    settings: dict[str, tuple[int, dict[str, Any]]] = {
        "none": (10, {}),
        "relay": (60, {"interactions": "relay", "patience": 20}),
        "auto": (60, {"interactions": "auto"}),
        "full": (200, {"interactions": "full", "shrinkage": 0.3}),
    }
    for kind, truth in kinds.items():
        found = []
        for seed in range(10, 10 + draws):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(rows + rows // 2, 9))
            y = (truth(X) + rng.logistic(size=len(X)) > 0).astype(int)
            new = roc_auc_score(y[rows:], pooled().fit(X[:rows], y[:rows]).predict_proba(X[rows:])[:, 1])
            line = {"pooled": (new, np.nan)}
            for name, (rounds, options) in settings.items():
                model = VerticalClassifier(
                    solver=Trees(folds=FOLDS["vertical"], **options), max_rounds=rounds, random_state=0
                )
                model.fit([X[:rows, :3], X[:rows, 3:6], X[:rows, 6:]], y[:rows])
                scores = model.decision_function([X[rows:, :3], X[rows:, 3:6], X[rows:, 6:]])
                line[name] = (roc_auc_score(y[rows:], scores), model.n_iter_)
            found.append(line)
        means = {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
        said = [f"{name} {area:.4f} ({rounds:.0f} rounds)" for name, (area, rounds) in means.items()]
        print(f"\n{kind} of three parties' columns, {rows:,} rows, {draws} draws, AUC: {', '.join(said)}")


def many_rows(rows: int) -> None:
    """Seconds a round on generated rows: six parties with two columns each, equalized odds."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(rows, 12)).round(2)
    group = rng.integers(0, 2, rows)
    columns[:, 0] += 0.5 * group
    truth = columns[:, 0] + np.abs(columns[:, 3]) - columns[:, 5] * (columns[:, 4] > 0) + 0.3 * group - 1.0
    labels = (truth + rng.logistic(size=rows) > 0).astype(int)
    tables = [columns[:, start : start + 2] for start in range(0, 12, 2)]
    seconds = []
    for rounds in (2, 7):
        model = VerticalClassifier(
            model="trees",
            solver=Trees(folds=FOLDS["vertical"]),
            constraint=EqualizedOdds(EPSILON, measure="error"),
            max_rounds=rounds,
            random_state=0,
        )
        seconds.append(cpu(lambda one=model: one.fit(tables, labels, sensitive_features=group))[1])
    print(f"\n{rows:,} rows, six parties, equalized odds: {(seconds[1] - seconds[0]) / 5:.2f} s of one core a round")


def picture(source: Path | None, path: Path) -> None:
    """Accuracy and gaps on the test rows of one draw of Adult, over rounds, with and without equalized odds."""
    given = draw("adult", source, 0)
    constraints = {"no constraint": None, f"equalized odds ≤ {EPSILON}": EqualizedOdds(EPSILON, measure="error")}
    rounds = range(1, 13)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for color, (name, constraint) in zip(("tab:gray", "tab:blue"), constraints.items(), strict=True):
        found = [ours(given, model="trees", constraint=constraint, max_rounds=number) for number in rounds]
        left.plot(rounds, [100 * one["ACC"] for one in found], color=color, marker="o", markersize=3, label=name)
        for key, style in (("DFP", "-"), ("DFN", "--")):
            right.plot(rounds, [one[key] for one in found], style, color=color, label=f"{key}, {name}")
    left.set(xlabel="rounds", ylabel="accuracy, %")
    right.set(xlabel="rounds", ylabel="gap between women and men", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    left.set_title("Adult, six parties, 15,074 test rows", loc="left")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--sets", nargs="*", default=list(PARTIES), choices=list(PARTIES))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--without-reduction", action="store_true", help="leave out ExponentiatedGradient, the slowest")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the last part; 0 leaves it out")
    parser.add_argument("--picture", type=Path, help="draw accuracy and gaps over rounds into this file, and no more")
    parser.add_argument("--folds", type=int, default=Trees().folds, help="cross-fitted models of trees across columns")
    given = parser.parse_args()
    FOLDS["vertical"] = given.folds
    print(f"evenhand {version('evenhand')}, lightgbm {version('lightgbm')}, fairlearn {version('fairlearn')}")
    # Warnings of models that end at their cap on rounds, and of arguments that fairlearn hands on.
    warnings.simplefilter("ignore")
    if given.picture:
        picture(given.source, given.picture)
        return
    for name in given.sets:
        draws = range(given.first, given.first + given.draws)
        table(name, given.source, draws, not given.without_reduction)
    if given.rows:
        products(min(given.draws, 3))
        many_rows(given.rows)


if __name__ == "__main__":
    main()
