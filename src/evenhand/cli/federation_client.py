"""Ask a federation for scores, and start its processes: what several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.errors import InputError, LostError, MissingExtraError
from evenhand.printing import remark

if TYPE_CHECKING:
    import pandas as pd

    from evenhand.runtime.nvflare.running import RunningKit


def ask(run: str, ids: Path, kit: Path, absent: Sequence[str] = (), patience: float = 60.0) -> pd.DataFrame:
    """Return scores of a finished federated run for the ids in a file; ids without a score are left out.

    A party that has not joined within `patience` seconds, or is silent for a minute longer, counts as absent. If the
    run's job does not allow that (`missing_party`), the participants refuse the question.

    Parameters
    ----------
    absent
        Parties that are not waited for.
    """
    import numpy as np

    from evenhand.data.tables.readers import TableSource, read_table
    from evenhand.jobs.federation.client import connect
    from evenhand.jobs.results import scored
    from evenhand.protocol.align import id_sums

    header = read_table(TableSource(ids)).columns
    index = read_table(TableSource(ids, id=str(header[0]), columns=[])).index
    kind, sums = id_sums(index)
    question = {"run": run, "kind": kind, "sums": sums.tolist()}
    with connect(kit, patience) as federation:
        gone = federation.gone(run)
        known = [name for name in federation.record(run).parties if name not in gone]
        if unknown := [name for name in absent if name not in known]:
            raise InputError(f"no party is called {unknown[0]!r}; the run's parties are {', '.join(known)}")
        away = [*absent, *federation.away([name for name in known if name not in absent])]
        if away:
            remark(f"{', '.join(away)} did not join within {patience:.0f} seconds: the others are asked")
        while True:
            parties = [name for name in known if name not in away]
            content = {"question": question | {"away": away, "patience": patience}}
            try:
                with federation.send("predict", content, parties) as submission:
                    told = submission.wait().result
                break
            except LostError as error:
                silent = [name for name in error.missing if name in parties]
                if not silent:
                    raise
                remark(f"{', '.join(silent)} did not answer within {60 + patience:.0f} seconds: the others are asked")
                away += silent
    there = np.array([one is not None for one in told["scores"]], dtype=bool)
    if missing := int((~there).sum()):
        whom = "the label holder lacks them" if "parties" in told else "not every party has them"
        remark(f"{missing:,} of {len(there):,} ids are left out, because {whom}")
    if (by := told.get("cut", {}).get("by")) is not None:
        remark(f"decisions are left out: the run has a cut for each group of {by!r}, and result.json has these cuts")
    scores = np.array([one for one in told["scores"] if one is not None], dtype=np.float64)
    table = scored(scores, told, index[there])
    if "parties" in told:
        table["parties"] = np.array(told["parties"], dtype=object)[there]
    return table


def start(
    kit: Path,
    party: Path | None,
    runs: Path | None,
    log: Path | None = None,
    checkpoint_seconds: float = 10.0,
    lease_seconds: float = 120.0,
    store: Path | None = None,
) -> RunningKit:
    """Start the process of a kit; the party's file is read first, so that a mistake in it starts nothing.

    Parameters
    ----------
    store
        Folder for the jobs of a server; by default `jobs` beside the folder of runs, or in the kit without one.
    """
    from evenhand.jobs.federation.files import (
        CHECKPOINT_SECONDS,
        IDENTITY,
        LEASE_SECONDS,
        PARTY_FILE,
        RUNS,
        read_party,
    )
    from evenhand.runtime.identityfiles import FOLDER

    try:
        from evenhand.runtime.nvflare.running import RunningKit
    except ModuleNotFoundError as error:
        raise MissingExtraError("a federation", "nvflare") from error
    settings = {CHECKPOINT_SECONDS: str(checkpoint_seconds), LEASE_SECONDS: str(lease_seconds)}
    if (kit / FOLDER).is_dir():
        settings[IDENTITY] = str(kit.absolute() / FOLDER)
    if party is not None:
        read_party(party)
        settings[PARTY_FILE] = str(party.absolute())
    if runs is not None:
        settings[RUNS] = str(runs.absolute())
    beside = runs if runs is not None else None if party is None else party.parent / "runs"
    if store is None and beside is not None:
        store = beside.parent / "jobs"
    return RunningKit(kit, settings, log, store)
