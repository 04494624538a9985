"""FairFedAvgALM, Table 2: the five methods of the paper, and two of ours that bound what is measured."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from evenhand_reproductions.fairfedavgalm import methods, pages
from evenhand_reproductions.fairfedavgalm.methods import (
    AS_PRINTED,
    BASELINES,
    COMPARED,
    FEDAVG,
    ON_ODDS,
    ON_SELECTION,
    PUBLISHED,
    PaperSetting,
    measured,
)
from evenhand_reproductions.fairfedavgalm.numbers import TABLE2
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page

SETTING = PaperSetting("α = 1, N = 10")
PRINTED = PaperSetting("the same, steps and T of C.1")
SYMMETRIC = "symmetric-digits"
BLIND = (
    "Coloured digits, groups alike: here the colour is as strong a hint in either group, so that over all clients "
    "together a model that believes nothing else has equal losses in both. What the paper's constraint acts on are the "
    "gaps in loss that each client's own skew makes: with 250 rows a client EO fell from 99.1 to 85.0 by them, with "
    "2,400, where there is a digit to learn as well, it falls further (see the table). The same algorithm under "
    "equalized odds acts on the gap itself."
)


def compute(settings: Settings, meter: Meter) -> list[Record]:
    tasks, draws = pages.load_tasks(settings), settings.draws(pages.RUNS)
    plan = {name: COMPARED if name == SYMMETRIC else BASELINES for name in settings.sets}
    again = (FEDAVG, PUBLISHED)
    meter.expect(sum(len(plan[name]) + len(again) * (name == "adult") for name, _ in draws))
    records: list[Record] = []
    for name, seed in draws:
        task = tasks[name]
        for method in plan[name]:
            meter.at(f"{SETS[name]}, seed {seed}: {method.name}")
            records.append(pages.with_description(task, measured(task, method, SETTING, seed, settings.rounds)))
        for method in again if name == "adult" else ():
            meter.at(f"{SETS[name]}, seed {seed}: {method.name}, steps of C.1")
            schedule = replace(AS_PRINTED, rounds=settings.rounds_or(AS_PRINTED.rounds))
            record = measured(task, method, PRINTED, seed, schedule=schedule)
            records.append(pages.with_description(task, record))
    return records


def constants(name: str) -> Record:
    return methods.constants(name)


def page(records: pd.DataFrame) -> Page:
    notes = [pages.NOT_CELEBA, pages.EQUAL_LOSSES, *pages.differences(records, TABLE2)]
    if SYMMETRIC in set(records["set"]):
        notes.insert(2, BLIND)
    pairs = ((PUBLISHED.name, FEDAVG.name), (ON_ODDS.name, PUBLISHED.name), (ON_SELECTION.name, PUBLISHED.name))
    return Page(pages.ran(records), pages.tables(records, TABLE2), notes, pages.checks(records, pairs))
