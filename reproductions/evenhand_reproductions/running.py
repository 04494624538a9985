"""Run a reproduction by name, or write its page again from the records of an earlier run."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from evenhand.runtime.files import make_folder
from evenhand_reproductions.recording import Recorded, as_written
from evenhand_reproductions.registry import find
from evenhand_reproductions.settings import Meter, Settings
from evenhand_reproductions.writing import write_page


def reproduce(
    name: str, settings: Settings, out: Path, *, command: str, rewrite: bool = False, show: bool = True
) -> list[Path]:
    """Train what the table or figure needs, and write `out`/NAME.md with its records and figure.

    Records of other sets and seeds that are there already stay: a part run again takes its own place on the page, and
    the rest is kept. Records of another number of rounds, or of other settings, are of another experiment: parts of
    both are not put together, which is said before training.
    """
    entry = find(name)
    experiment = entry.load()
    place = out / f"{name}.json"
    if rewrite:
        recorded = Recorded.read(place)
    else:
        before = Recorded.read(place) if settings.part and place.exists() else None
        constants = {one: as_written(experiment.constants(one)) for one in settings.sets}
        if before is not None:
            before.check_takes(settings, constants, place)
        start = time.perf_counter()
        with Meter(show=show) as meter:
            records = experiment.compute(settings, meter)
        seconds = time.perf_counter() - start
        recorded = Recorded.by(command, seconds, records, settings.rounds, constants)
        if before is not None:
            recorded = before.with_part(
                recorded, [one for one in settings.sets if settings.replaces(one, before.seeds(one))]
            )
    make_folder(out)
    return write_page(name, entry.title, recorded, experiment.page(pd.DataFrame(recorded.records)), out)
