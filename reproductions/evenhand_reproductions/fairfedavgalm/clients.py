"""FairFedAvgALM, Table 4: more clients, each with as many rows as before."""

from __future__ import annotations

import pandas as pd

from evenhand_reproductions.fairfedavgalm import methods, pages
from evenhand_reproductions.fairfedavgalm.methods import COMPARED, PaperSetting
from evenhand_reproductions.fairfedavgalm.numbers import TABLE4
from evenhand_reproductions.settings import Meter, Record, Settings
from evenhand_reproductions.writing import Page

SETTINGS = tuple(PaperSetting(f"N = {clients}", clients=clients, many=True) for clients in (10, 20, 50))

CLAIM = "accuracy decreases and both fairness metrics improve as the number of clients grows, for both algorithms."


def compute(settings: Settings, meter: Meter) -> list[Record]:
    return pages.run_all(settings, meter, SETTINGS, COMPARED)


def constants(name: str) -> Record:
    return methods.constants(name, conditions=[condition.name for condition in SETTINGS])


def page(records: pd.DataFrame) -> Page:
    fewer = (
        "Each client has as many rows whatever N is. The paper has about 2,800, of which fifty clients would need more "
        "than there are. N = 10 is shown for comparison."
    )
    notes = [pages.NOT_CELEBA, pages.EQUAL_LOSSES, *pages.differences(records, TABLE4)]
    notes += pages.across(records, "N = 20", "N = 50", TABLE4["N = 20"], TABLE4)
    notes += pages.stated(records, "N = 10", "N = 50", CLAIM, pages.LOWER)
    return Page(pages.ran(records, fewer), pages.tables(records, TABLE4), notes, pages.ours_against_theirs(records))
