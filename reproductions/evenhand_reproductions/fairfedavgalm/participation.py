"""FairFedAvgALM, supplement Table 1: only some of the clients take part in a round."""

from __future__ import annotations

import pandas as pd

from evenhand_reproductions.fairfedavgalm import methods, pages
from evenhand_reproductions.fairfedavgalm.methods import COMPARED, PaperSetting
from evenhand_reproductions.fairfedavgalm.numbers import SUPPLEMENT_TABLE1
from evenhand_reproductions.settings import Meter, Record, Settings
from evenhand_reproductions.writing import Page

SETTINGS = tuple(PaperSetting(f"C = {share:g}", participation=share) for share in (0.5, 0.25))
ROUNDED = "Of ten clients C = 0.25 makes two a round (2.5, rounded to even); the paper does not say how it rounds."


def compute(settings: Settings, meter: Meter) -> list[Record]:
    return pages.run_all(settings, meter, SETTINGS, COMPARED)


def constants(name: str) -> Record:
    return methods.constants(name, conditions=[condition.name for condition in SETTINGS])


def page(records: pd.DataFrame) -> Page:
    notes = [pages.NOT_CELEBA, pages.EQUAL_LOSSES, *pages.differences(records, SUPPLEMENT_TABLE1)]
    notes += pages.across(records, "C = 0.5", "C = 0.25", SUPPLEMENT_TABLE1["C = 0.5"], SUPPLEMENT_TABLE1)
    return Page(
        pages.ran(records, ROUNDED),
        pages.tables(records, SUPPLEMENT_TABLE1),
        notes,
        pages.ours_against_theirs(records),
    )
