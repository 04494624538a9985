"""Baselines of the field beside their authors' numbers: one page, a section for each method that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from evenhand_reproductions.experiments import make_problem
from evenhand_reproductions.field import horizontal, vertical
from evenhand_reproductions.field.authors import (
    ADVERSARIAL_ADULT,
    CONSTANT_F1,
    FAIRBATCH_NOTEBOOK,
    FCFL_README,
    LOGOFAIR_FILE,
    NOT_COMPARED,
)
from evenhand_reproductions.methods import register_methods
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, markdown_table, runs_of, spread

RUNS: Final = 3


def compute(settings: Settings, meter: Meter) -> list[Record]:
    register_methods()
    data, draws = settings.datasets(), settings.draws(RUNS)
    meter.expect(sum(vertical.FITS + horizontal.FITS * (name == "adult") for name, _ in draws))
    records: list[Record] = []
    for name, seed in draws:
        records += vertical.run(make_problem(data[name], "journal", seed), meter)
        if name != "adult":
            continue
        for epsilon in horizontal.FCFL_SETTINGS:
            meter.at(f"Adult, seed {seed}: FCFL, ε = {epsilon:g}")
            records.append(horizontal.fcfl(data[name], epsilon, seed))
        meter.at(f"Adult, seed {seed}: LoGoFair")
        records.append(horizontal.post_processed(data[name], seed))
        for kind in horizontal.EPOCHS:
            meter.at(f"synthetic, seed {seed}: FairBatch, {kind}")
            records.append(horizontal.fair_batches(kind, seed))
    return records


def constants(name: str) -> Record:
    return {
        "epochs": vertical.EPOCHS,
        "least rounds": vertical.LEAST_ROUNDS,
        "λ": vertical.ADVERSARIES,
        "bound": vertical.BOUND,
        **(
            {
                "FCFL": {f"{epsilon:g}": pair for epsilon, pair in horizontal.FCFL_SETTINGS.items()},
                "δ": horizontal.GAP,
                "FairBatch": horizontal.EPOCHS,
            }
            if name == "adult"
            else {}
        ),
    }


def page(records: pd.DataFrame) -> Page:
    tables = [_vertical(name, part) for name, part in records[records["part"] == "vertical"].groupby("set", sort=False)]
    others = records[records["part"] != "vertical"]
    if len(others):
        tables += [_attacker(records), _fcfl(others), _logofair(others), _fairbatch(others)]
    tables.append(
        ("What could not be compared", markdown_table(["method", "why"], [list(one) for one in NOT_COMPARED]))
    )
    return Page(_ran(records), tables, _worse(records) + _settings())


def _ran(records: pd.DataFrame) -> list[str]:
    lines = [
        "Mean ± standard deviation over runs. Authors' numbers are from files of their public code, where the papers "
        "were not at hand.",
        f"Adversarial FairVFL: {vertical.EPOCHS} passes over the rows and at least {vertical.LEAST_ROUNDS} batches of "
        "64, options as by default. Six parties, of which one has labels and groups, and linear models, as in the "
        "pages of FairVFL.",
    ]
    lines += [f"{SETS[str(name)]}: {runs_of(part['seed'])}." for name, part in records.groupby("set", sort=False)]
    return lines


def _vertical(name: object, part: pd.DataFrame) -> tuple[str, str]:
    rows = []
    for method, runs in part.groupby("method", sort=False):
        numbers = [spread(runs["accuracy"], 100.0, 2), *(spread(runs[gap]) for gap in ("DP", "DFP", "DFN", "DEO"))]
        costs = [f"{runs['rounds'].mean():.0f}", f"{runs['bytes'].mean() / 1e6:.1f}"]
        rows.append([str(method), *numbers, *costs])
    header = ["method", "accuracy %", "DP", "DFP", "DFN", "DEO", "rounds", "MB"]
    return f"{SETS[str(name)]}: the adversarial FairVFL beside ours", markdown_table(header, rows)


def _attacker(records: pd.DataFrame) -> tuple[str, str]:
    """What an attacker reads from the representation, beside the authors' file."""
    theirs = np.array(ADVERSARIAL_ADULT)
    rows = [["the authors' file, 12 runs", *(_of_theirs(column) for column in theirs.T), f"{CONSTANT_F1:.3f}"]]
    mine = records[(records["set"] == "adult") & records["attacker F1"].notna()]
    for method, runs in mine.groupby("method", sort=False):
        rows.append([str(method), spread(runs["accuracy"]), spread(runs["attacker F1"]), spread(runs["constant F1"])])
    header = ["method", "accuracy", "attacker's macro F1 of sex", "F1 of naming one sex"]
    return "Adult: what an attacker reads from the representation", markdown_table(header, rows)


def _of_theirs(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"


def _fcfl(records: pd.DataFrame) -> tuple[str, str]:
    columns = ("accuracy doctors", "accuracy others", "gap doctors", "gap others")
    rows = []
    for epsilon, printed in FCFL_README.items():
        name = f"FCFL, ε = {epsilon:g}"
        rows.append([f"{name}, the authors' README", *(f"{printed[column]:.3f}" for column in columns)])
        rows.append([f"{name}, here", *(spread(records[records["method"] == name][column]) for column in columns)])
    return "FCFL on Adult's doctors and others", markdown_table(["method", *columns], rows)


def _beside(records: pd.DataFrame, part: str, columns: Sequence[str], printed: dict[str, dict[str, float]]) -> str:
    rows = []
    for method, runs in records[records["part"] == part].groupby("method", sort=False):
        told = next(value for key, value in printed.items() if str(method).endswith(key))
        rows.append([f"{method}, the authors' code", *(f"{told[column]:.3f}" for column in columns)])
        rows.append([f"{method}, here", *(spread(runs[column]) for column in columns)])
        rows.append([f"FedAvg before {method}", *(spread(runs[f"before {column}"]) for column in columns)])
    return markdown_table(["method", *columns], rows)


def _logofair(records: pd.DataFrame) -> tuple[str, str]:
    columns = ("accuracy", "global gap", "local gap")
    return "LoGoFair on Adult, parity", _beside(records, "logofair", columns, {"": LOGOFAIR_FILE})


def _fairbatch(records: pd.DataFrame) -> tuple[str, str]:
    table = _beside(records, "fairbatch", ("accuracy", "global gap"), FAIRBATCH_NOTEBOOK)
    return "FairBatch across clients on its synthetic set", table


def _worse(records: pd.DataFrame) -> list[str]:
    """Name first what is worse: on the vertical sets ours against the adversary, and of others ours against theirs."""
    lines = []
    for name, part in records[records["part"] == "vertical"].groupby("set", sort=False):
        means = part.groupby("method", sort=False)[["accuracy", "DP", "DFP", "DFN", "DEO"]].mean()
        mine, found = means.loc[vertical.ODDS], []
        for weight in vertical.ADVERSARIES:
            other = means.loc[vertical.adversarial(weight)]
            better = [
                f"{gap} {other[gap]:.3f} (ours {mine[gap]:.3f})" for gap in mine.index[1:] if other[gap] < mine[gap]
            ]
            if other["accuracy"] > mine["accuracy"]:
                better.insert(0, f"accuracy {100 * other['accuracy']:.2f} % (ours {100 * mine['accuracy']:.2f} %)")
            if better:
                found.append(f"λ = {weight:g} has {', '.join(better)}")
        lines.append(
            f"{SETS[str(name)]}: where the adversarial FairVFL is better than {vertical.ODDS}: "
            + ("; ".join(found) or "nowhere")
            + "."
        )
    others = records[records["part"] == "fairbatch"]
    for kind, printed in FAIRBATCH_NOTEBOOK.items() if len(others) else ():
        runs = others[others["method"] == f"FairBatch, {kind}"]
        if (gap := runs["global gap"].mean()) > printed["global gap"]:
            lines.append(
                f"FairBatch, {kind}: our gap of {gap:.3f} is larger than the authors' {printed['global gap']:.3f}. "
                "Theirs is of one draw of the set, and only the weights at first change; ours is of new draws, and one "
                "round of five clients moves less than an epoch of pooled batches."
            )
    others = records[records["part"] == "logofair"]
    if len(others) and (gap := others["global gap"].mean()) > LOGOFAIR_FILE["global gap"]:
        lines.append(
            f"LoGoFair: our global gap of {gap:.3f} is larger than the authors' "
            f"{LOGOFAIR_FILE['global gap']:.3f}, which is one run."
        )
    for epsilon, told in FCFL_README.items() if (records["part"] == "fcfl").any() else ():
        runs = records[records["method"] == f"FCFL, ε = {epsilon:g}"]
        for column, value in told.items():
            mean = float(runs[column].mean())
            worse = abs(mean) > abs(value) if column.startswith("gap") else mean < value
            if worse:
                lines.append(
                    f"FCFL, ε = {epsilon:g}: {column} is {mean:.3f} here, worse than the authors' {value:.3f}."
                )
    return lines


def _settings() -> list[str]:
    return [
        "Adversarial FairVFL: the authors' code has twelve embedded columns without sex and age, which are both "
        "attacked there, a network over the concatenated representations, and stops at the epoch in which an attacker "
        "does worst on validation rows. Here sex alone is attacked, columns are those of the FairVFL paper, "
        "representations are added up, and rounds are fixed. Its file has no gaps in rates.",
        "FCFL: a third of the rows at random are test rows; the authors have Adult's own test file. Few of the "
        "rows are doctors, so the gap of their test rows varies much. Weights begin at zero.",
        "LoGoFair: the authors' columns and their split among clients are not ours; both splits draw sex by a "
        "Dirichlet distribution with α = 0.5.",
        "FairBatch: the authors train on pooled rows with batches drawn by group. Here clients weight rows, by the "
        "same step α = 0.005, with the same Adam, batch size and number of epochs, and z is a column, as there.",
    ]
