"""VFB² with the steps of its Theorems 1 to 6, beside a step of the paper's grid, by the paper's own rule."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.vfb2.problems import PAPERS_STEP, RIDGE, VFB2Problem, read, solve
from evenhand_reproductions.vfb2.theorem_steps import CONVEX, RULES, NoStepError, ProblemConstants, theorem_step
from evenhand_reproductions.writing import Page, markdown_table, runs_of

RUNS: Final = 5
ROUNDS: Final = 5
PARTIES, ACTIVE = 8, 3
READ_DELAY, MESSAGE_DELAY = 8, 2
ACCURACY, POWER = 0.01, 1.0
TUNED: Final = {"SGD": 0.01, "SVRG": 0.05, "SAGA": 0.05}
"""Steps of the paper's grid, for comparison; `vfb2-step` has more of them."""


def constants_of(problem: VFB2Problem, equation: str) -> ProblemConstants:
    """Return the theorems' constants for the logistic loss, from the longest row."""
    matrix = sp.csr_array(problem.train)
    longest = float(matrix.multiply(matrix).sum(axis=1).max())
    return ProblemConstants(
        smoothness=max(0.25 * longest + RIDGE, RIDGE),
        # Problem (14) is not convex.
        convexity=RIDGE if equation == "13" else 0.0,
        gradient_bound=longest,
        rows=matrix.shape[0],
        parties=PARTIES,
        read_delay=READ_DELAY,
        message_delay=MESSAGE_DELAY,
        visit=PARTIES + READ_DELAY + MESSAGE_DELAY,
    )


def compute(settings: Settings, meter: Meter) -> list[Record]:
    draws = settings.draws(RUNS)
    meter.expect(2 * len(draws) * len(RULES))
    records: list[Record] = []
    for name in settings.sets:
        source = read(name, settings.source)
        for drawn, seed in draws:
            if drawn == name:
                records += _run(source.draw(seed), settings.rounds_or(ROUNDS), meter)
    return records


def _run(problem: VFB2Problem, rounds: int, meter: Meter) -> list[Record]:
    records = []
    parties = problem.parties(PARTIES, ACTIVE)
    for theorem, rule in RULES.items():
        equation = "13" if theorem in CONVEX else "14"
        found = constants_of(problem, equation)
        head: Record = {
            "set": problem.name,
            "seed": problem.seed,
            "theorem": theorem,
            "rule": rule,
            "equation": equation,
            "smoothness": found.smoothness,
        }
        steps = {"grid": TUNED[rule]}
        try:
            steps = {f"Theorem {theorem}": theorem_step(theorem, found, ACCURACY, POWER), **steps}
        except NoStepError:
            records.append({**head, "method": f"Theorem {theorem}", "rounds": 0})
        for method, step in steps.items():
            meter.at(f"{SETS[problem.name]}, seed {problem.seed}: {rule}, {method}")
            options: Record = {"step": step, "read_delay": READ_DELAY, "message_delay": MESSAGE_DELAY}
            run, seconds = solve(
                f"vfb2-{rule.lower()}",
                parties,
                problem.labels,
                equation=equation,
                rounds=rounds,
                seed=problem.seed,
                options={**PAPERS_STEP, **options},
                runtime="interleaved",
            )
            records.append(
                {
                    **head,
                    "method": method,
                    "step": step,
                    "fall": problem.loss_at_start - run.certificate.objective,
                    "objective": run.certificate.objective,
                    "accuracy": problem.accuracy(run),
                    "rounds": run.certificate.rounds,
                    "seconds": seconds,
                }
            )
    return records


def constants(name: str) -> Record:
    return {
        "parties": (PARTIES, ACTIVE),
        "delays": (READ_DELAY, MESSAGE_DELAY),
        "accuracy": ACCURACY,
        "power": POWER,
        "rounds": ROUNDS,
        "tuned": str(TUNED),
        "ridge": RIDGE,
    }


def page(records: pd.DataFrame) -> Page:
    tables = [(SETS[str(name)], _table(part)) for name, part in records.groupby("set", sort=False)]
    ran = [
        f"λ = 10⁻⁴, {PARTIES} parties, {ACTIVE} of them active, {runs_of(records['seed'])}, "
        f"{records['rounds'].max()} epochs; the paper's own step (explicit, uniform, one row a step), τ₁ = "
        f"{READ_DELAY}, τ₂ = {MESSAGE_DELAY}.",
        f"Constants: L_* = max ‖x‖² / 4 + λ, μ = λ, G = max ‖x‖², η₁ = η₂ = q + τ₁ + τ₂; ε = {ACCURACY:g}, α = "
        f"{POWER:g}. Where a theorem says that γ can be chosen, it is the largest that meets its conditions.",
        "The grid's steps are "
        + ", ".join(f"{step:g} ({rule})" for rule, step in TUNED.items())
        + "; they are of the paper's grid and not those that the theorems allow.",
    ]
    return Page(ran, tables, _notes(records))


def _table(part: pd.DataFrame) -> str:
    rows = []
    for (theorem, method), runs in part.groupby(["theorem", "method"], sort=False):
        first: Any = runs.iloc[0]
        if runs["step"].isna().any():
            rows.append([str(method), str(first["rule"]), f"({first['equation']})", "none", "", "", "", ""])
            continue
        rows.append(
            [
                str(method) if method != "grid" else f"the same, a step of the grid ({theorem})",
                str(first["rule"]),
                f"({first['equation']})",
                f"{runs['step'].mean():.1e}",
                f"{runs['objective'].mean():.4f}",
                f"{runs['fall'].mean():.1e}",
                f"{100 * runs['accuracy'].mean():.2f}",
                f"{runs['seconds'].mean():.1f}",
            ]
        )
    return markdown_table(["step", "rule", "problem", "γ", "objective", "fall from log 2", "accuracy %", "s"], rows)


def _notes(records: pd.DataFrame) -> list[str]:
    notes = ["The paper runs its experiments with steps of its grid and prints none with the theorems' steps."]
    for name, part in records.groupby("set", sort=False):
        falls = part.pivot_table(index="theorem", columns=part["method"].eq("grid"), values="fall")
        shares = falls[False] / falls[True]
        steps = part[part["method"] != "grid"].groupby("theorem")["step"].mean()
        worst, best, shortest, longest = shares.idxmin(), shares.idxmax(), steps.idxmin(), steps.idxmax()
        none = sorted(int(theorem) for theorem in part[part["step"].isna()]["theorem"].unique())
        notes += [
            f"{SETS[str(name)]}, Theorem {theorem}: no step meets its conditions, as we read them; the left side of "
            "condition 3 has a limit above ε/2 as γ → 0."
            for theorem in none
        ]
        notes.append(
            f"{SETS[str(name)]}: steps of the theorems are {steps.min():.0e} (Theorem {shortest}) to "
            f"{steps.max():.0e} (Theorem {longest}). With them the objective falls by {shares.min():.0e} "
            f"(Theorem {worst}) to {shares.max():.0e} (Theorem {best}) times as much as with the grid's steps, in "
            "as many epochs."
        )
    norm = float(np.sqrt(4.0 * records["smoothness"].max()))
    notes.append(f"The longest row has a norm of {norm:.0f}; L_* and G are its, so one row decides the steps of all.")
    return notes
