"""Journal version, Figure 2: objective and DEO over rounds with neural parties, plain steps and Adam."""

from __future__ import annotations

import pandas as pd

from evenhand_reproductions import convergence
from evenhand_reproductions.experiments import HIDDEN, curve, make_problem
from evenhand_reproductions.fairvfl import neural
from evenhand_reproductions.papers import EPSILONS
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, runs_of

ADAM_ROUNDS = {"adult": 60, "compas": 100, "communities-crime": 100}
PLAIN, OURS = "FairVFL, plain steps", "Adam and penalty"
LEVELS = convergence.levels(EPSILONS)
STYLES = {PLAIN: {"linestyle": "-"}, OURS: {"linestyle": "--"}}


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws = settings.datasets(), settings.draws(1)
    meter.expect(2 * len(draws) * len(LEVELS))
    records: list[Record] = []
    for name, seed in draws:
        problem = make_problem(data[name], "journal", seed)
        for level, epsilon in LEVELS.items():
            for method, rounds, train in (
                (PLAIN, neural.ROUNDS[name], neural.steps),
                (OURS, ADAM_ROUNDS[name], neural.adam),
            ):
                meter.at(f"{SETS[name]}, seed {seed}: {method}, {level}")
                fit = train(problem, epsilon, settings.rounds_or(rounds))
                records += curve(problem, method, fit, level=level)
    return records


def constants(name: str) -> Record:
    return neural.constants(name, ADAM_ROUNDS[name], levels=LEVELS)


def page(records: pd.DataFrame) -> Page:
    figure = convergence.figure(records, LEVELS, STYLES, "Neural parties: training objective and DEO over rounds")
    ran = [
        f"{runs_of(records['seed'], 'random run')}; six parties, one active, two "
        f"hidden layers of {HIDDEN[0]} and {HIDDEN[1]} units; η = 100, β = 0.1, c = 0.001, Q = 1; Adam with step 0.01 "
        "and a penalty of 1. FedBCD is a bound that never binds.",
    ]
    notes = [
        "Plain steps of 0.01 take thousands of rounds; the paper does not say how many its figure has, and gives no "
        "numbers in its text.",
        *convergence.first_below(records, "ε=0.01", PLAIN, OURS),
    ]
    return Page(ran, convergence.ends(records), notes, figure=figure)
