"""Under a stated ε, nothing that a client says before training depends on its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("dp_accounting")
from support.clinics import write_clinics

from evenhand.errors import DataError
from evenhand.jobs.federation.clients import _OwnTable
from evenhand.jobs.federation.files import ClientsJob, read_federation_job, read_party
from evenhand.jobs.horizontal.runs import check_epsilon
from evenhand.protocol.agree import AgreeClient

PRIVACY = {"mechanism": "clipped-gaussian", "clip": 1.0, "epsilon": 1.0}
LABEL = {"column": "sick", "positive": "yes"}


def job_of(paths: dict[str, Path]) -> ClientsJob:
    job = read_federation_job(paths["job"])
    assert isinstance(job, ClientsJob)
    return job


def said_of_labels(paths: dict[str, Path], sick: list[str] | None) -> Any:
    """What north says about labels, if its rows have these."""
    place = paths["north"].parent / "table.csv"
    if sick is not None:
        pd.read_csv(place).iloc[: len(sick)].assign(sick=sick).to_csv(place, index=False)
    own = read_party(paths["north"])
    table = _OwnTable(own.party, "north", "client 'north'", job_of(paths), paths["north"].parent)
    table.look()
    table.open()
    role = next(table.agree_on_labels())
    assert isinstance(role, AgreeClient)
    (message,) = role.start()
    return message.json("summary") if "summary" in message.body else message.body


@pytest.mark.parametrize("sick", [["no"] * 40, ["yes", *["no"] * 39], ["yes"] * 40])
def test_labels_that_the_job_gives_are_not_said_from_rows(sick: list[str], tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2})
    before = said_of_labels(paths, None)
    assert str(said_of_labels(paths, sick)) == str(before)


def test_the_order_of_labels_is_not_that_of_rows(tmp_path: Path) -> None:
    """Without a stated ε clients say which labels occur, and still not which comes first."""
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2}, data={"label": LABEL})
    first = said_of_labels(paths, ["yes", *["no"] * 39])
    assert str(said_of_labels(paths, ["no", *["yes"] * 39])) == str(first)


def test_an_epsilon_needs_both_labels_beforehand(tmp_path: Path) -> None:
    job = {"solver": "fedavg", "max_rounds": 2}
    known = {"groups": {"sex": ["f", "m"]}}
    given = job_of(write_clinics(tmp_path / "one", job, privacy=PRIVACY, data=known))
    assert "which labels occur" not in given.uncovered(False)
    learned = job_of(write_clinics(tmp_path / "two", job, privacy=PRIVACY, data={**known, "label": LABEL}))
    with pytest.raises(DataError, match=r"no noise is added to which labels occur.*data\.label\.negative"):
        check_epsilon(learned, columns_learned=False)
    assert learned.to_noise()["epsilon"] is None


def test_a_label_beside_the_two_is_refused_at_home(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2})
    with pytest.raises(DataError, match="unknown label 'maybe'"):
        said_of_labels(paths, ["yes", "maybe", "no"])
