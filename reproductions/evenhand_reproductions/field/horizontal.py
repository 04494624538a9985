"""FCFL and LoGoFair on Adult, and FairBatch on its synthetic set, in the settings of the authors' code."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import multivariate_normal

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.kinds import Constraint, DemographicParity, EqualizedOdds, EqualOpportunity
from evenhand.data.public.loaders import Dataset
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.job import Job
from evenhand_reproductions.data.clients import dirichlet_clients, iid_clients
from evenhand_reproductions.in_memory import train_clients
from evenhand_reproductions.methods import logofair
from evenhand_reproductions.settings import Record

FIRST: Final = 800
FCFL_SETTINGS: Final = {0.05: (0.03, 2300), 0.01: (0.015, 2300)}
"""Step and rounds of each bound, by the authors' commands; the first 800 rounds are the first stage."""
SLOPE: Final = 10.0
"""A decision is σ(10 z) in the authors' smooth gap."""
GAP: Final = 0.02
"""δ of LoGoFair."""
CLIENTS: Final = 5
EPOCHS: Final = {"equal-opportunity": 300, "equalized-odds": 400}
"""Of FairBatch, by the authors' notebook."""
SAMPLES: Final = (2000, 1000)
FITS: Final = len(FCFL_SETTINGS) + 1 + len(EPOCHS)


def fcfl(data: Dataset, epsilon: float, seed: int) -> Record:
    """FCFL on Adult's categorical columns: doctors and others are the clients, race (white or not) is compared."""
    kept = [name for name in data.frame if not pd.api.types.is_numeric_dtype(data.frame[name]) and name != "race"]
    columns = pd.get_dummies(data.frame[kept].astype(str)).to_numpy(dtype=np.float64)
    white = np.where(data.frame["race"].astype(str) == "White", "white", "other")
    doctors = (data.frame["education"].astype(str) == "Doctorate").to_numpy()
    signs = np.where(data.label == data.positive, 1, -1)
    train, test = _thirds(len(signs), seed)
    step, rounds = FCFL_SETTINGS[epsilon]
    job = Job(
        solver="fcfl",
        constraints=(DemographicParity(epsilon, temperature=1.0 / SLOPE),),
        max_rounds=rounds,
        seed=seed,
        options={"direction_step": step, "first_stage": FIRST / rounds},
        alpha=1e-4,
    )
    groups = pd.DataFrame({"race": white})
    parts = {name: np.flatnonzero(one) for name, one in (("doctors", doctors), ("others", ~doctors))}
    rows = [_client(name, np.intersect1d(part, train), columns, signs, groups) for name, part in parts.items()]
    model = train_clients(job, rows).model
    found: Record = {"part": "fcfl", "set": "adult", "seed": seed, "method": f"FCFL, ε = {epsilon:g}"}
    for name, part in parts.items():
        inside = np.intersect1d(part, test)
        decided = model.predict(columns[inside]) > 0.0
        found[f"accuracy {name}"] = float((decided == (signs[inside] > 0)).mean())
        found[f"gap {name}"] = float(
            decided[white[inside] == "white"].mean() - decided[white[inside] != "white"].mean()
        )
    return found


def post_processed(data: Dataset, seed: int) -> Record:
    """LoGoFair for parity on Adult among five clients that differ in sex; 35, 35 and 30 % of rows train, fit, test."""
    columns = _standard(pd.get_dummies(data.frame, dtype=np.float64))
    sex = data.sensitive["sex"] if "sex" in data.sensitive else data.sensitive.iloc[:, 0]
    codes = sex.astype("category").cat.codes.to_numpy().astype(np.int64)
    signs = np.where(data.label == data.positive, 1, -1)
    own = dirichlet_clients(sex, CLIENTS, 0.5, seed)
    rest, test = _thirds(len(signs), seed, 0.3)
    train, fitting = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    groups = pd.DataFrame({"sex": sex.to_numpy()})
    job = Job(solver="fedavg", max_rounds=30, seed=seed)
    rows = [_client(f"c{k}", train[own[train] == k], columns, signs, groups) for k in range(CLIENTS)]
    scores = expit(train_clients(job, rows).model.predict(columns))
    options = logofair.LoGoFair(odds=False, global_gap=GAP, local_gap=GAP)
    names = np.array([f"c{k}" for k in own])
    made = logofair.fit(options, scores[fitting], signs[fitting].astype(float), codes[fitting], names[fitting])
    decided = made.margins(scores[test], codes[test], names[test]) > 0.0
    plain = scores[test] > 0.5

    def gap(one: Booleans, inside: Booleans) -> float:
        """Return the gap of selection rates; NaN where a client has no test rows of a group."""
        parts = [one[inside & (codes[test] == group)] for group in (0, 1)]
        return abs(float(parts[0].mean() - parts[1].mean())) if all(map(len, parts)) else np.nan

    found: Record = {"part": "logofair", "set": "adult", "seed": seed, "method": "LoGoFair, δ = 0.02"}
    for name, one in (("", decided), ("before ", plain)):
        local = [gap(one, names[test] == f"c{k}") for k in range(CLIENTS)]
        found[f"{name}accuracy"] = float((one == (signs[test] > 0)).mean())
        found[f"{name}global gap"] = gap(one, np.ones(len(test), dtype=bool))
        found[f"{name}local gap"] = float(np.nanmean(local))
    return found


def fair_batches(kind: str, seed: int) -> Record:
    """FairBatch on draws of the synthetic set of Zafar et al., of which the authors' is one; five clients at random."""
    x, signs, codes = synthetic(sum(SAMPLES), np.random.default_rng(seed))
    groups = pd.DataFrame({"z": np.where(codes == 1, "one", "zero")})
    constraint: Constraint = (
        EqualOpportunity(0.0, measure="loss") if kind == "equal-opportunity" else EqualizedOdds(0.0, measure="loss")
    )
    own = iid_clients(SAMPLES[0], CLIENTS, seed)
    rows = [_client(f"c{k}", np.flatnonzero(own == k), x, signs, groups) for k in range(CLIENTS)]
    options: dict[str, Any] = {"shift": 0.005, "optimizer": "adam", "step": 0.0005, "batch_size": 100, "clip": None}
    options["local_epochs"] = 1
    test = np.arange(SAMPLES[0], sum(SAMPLES))
    found: Record = {"part": "fairbatch", "set": "adult", "seed": seed, "method": f"FairBatch, {kind}"}
    for solver in ("fairbatch", "fedavg"):
        mine = {name: value for name, value in options.items() if solver == "fairbatch" or name != "shift"}
        asked = (constraint,) if solver == "fairbatch" else ()
        job = Job(solver=solver, constraints=asked, max_rounds=EPOCHS[kind], seed=seed, options=mine)
        decided = train_clients(job, rows).model.predict(x[test]) > 0.0
        labels = (1,) if kind == "equal-opportunity" else (1, -1)
        gaps = []
        for label in labels:
            inside = signs[test] == label
            rates = [decided[inside & (codes[test] == group)].mean() for group in (0, 1)]
            gaps.append(abs(float(rates[0] - rates[1])))
        name = "" if solver == "fairbatch" else "before "
        found[f"{name}accuracy"] = float((decided == (signs[test] > 0)).mean())
        found[f"{name}global gap"] = max(gaps)
    return found


def synthetic(rows: int, rng: np.random.Generator) -> tuple[Array, Integers, Integers]:
    """Draw the set of Zafar et al. (AISTATS 2017): two Gaussians, and a group that depends on the turned row."""
    signs = np.where(rng.random(rows) < 0.5, 1, -1)
    means = {1: [2.0, 2.0], -1: [-2.0, -2.0]}
    spreads = {1: [[5.0, 1.0], [1.0, 5.0]], -1: [[10.0, 1.0], [1.0, 3.0]]}
    x = np.array([rng.multivariate_normal(means[sign], spreads[sign]) for sign in signs.tolist()])
    turn = np.pi / 4
    turned = x @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    one, other = (multivariate_normal(means[sign], spreads[sign]).pdf(turned) for sign in (1, -1))
    codes = (rng.random(rows) < one / (one + other)).astype(np.int64)
    return np.column_stack([x, codes]), signs, codes


def _thirds(rows: int, seed: int, share: float = 1.0 / 3.0) -> tuple[Integers, Integers]:
    """Return training and test rows at random."""
    order = np.random.default_rng(seed).permutation(rows)
    cut = int(share * rows)
    return order[cut:], order[:cut]


def _client(name: str, rows: Integers, columns: Array, signs: Integers, groups: pd.DataFrame) -> ClientRows:
    return ClientRows(name, columns[rows], signs[rows].astype(float), groups.iloc[rows].reset_index(drop=True))


def _standard(frame: pd.DataFrame) -> Array:
    found = frame.to_numpy(dtype=np.float64)
    spread = found.std(axis=0)
    return np.asarray((found - found.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))
