"""The card of a job: who answers for the model, what it is for, and when its rows were recorded."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from jobs import test_federation_clients as clients
from support.clinics import write_clinics
from support.federation import write_shops

from evenhand.errors import JobError
from evenhand.jobs.federation.files import parse_federation_job, read_federation_job, read_party, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.runtime.folder import RunFolder

CARD = {"owner": "ward 3 <team>", "use": "beds & staff", "period": "2021 to 2024"}
SHOWN = ("ward 3 &lt;team&gt;", "beds &amp; staff", "2021 to 2024")


def test_the_page_of_a_run_shows_its_card(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp"}, card=CARD)
    run = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    page = make_page([RunRecord.read(run.folder.path)])
    assert all(words in page for words in SHOWN)
    assert "not stated" not in page
    assert "<team>" not in page


def test_a_card_reaches_every_side_between_organisations(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp"}, card=CARD)
    job = read_federation_job(paths["job"])
    ends = clients.run(paths)
    for name, env in (("server", None), ("north", site_env(paths["north"]))):
        with side_folder(tmp_path / "sides" / name, name, job, env, resume=False) as side:
            told = ends["server"] if name == "server" else ends[name].write(side.folder)
            side.folder.finish(told)
        found = RunFolder.open(tmp_path / "sides" / name)
        assert found.description["card"] == CARD


def test_a_vertical_job_between_organisations_takes_a_card(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 2})
    content = tomllib.loads(paths["job"].read_text())
    paths["job"].write_text(tomli_w.dumps(content | {"card": {"owner": "risk"}}))
    job = read_federation_job(paths["job"])
    with side_folder(tmp_path / "side", "bank", job, site_env(paths["bank"]), resume=False) as side:
        assert side.folder.description["card"]["owner"] == "risk"
    assert read_party(paths["bank"]).party.name == "bank"


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"author": "risk"}, "unknown key card.author"),
        ({"owner": 3}, "card.owner"),
        ({"use": ["loans"]}, "card.use"),
        ({"period": {"from": 2021}}, "card.period"),
        ({"owner": "x" * 501}, "card.owner.*at most 500 characters"),
        ("risk", "card"),
    ],
)
@pytest.mark.parametrize("split", ["vertical", "horizontal", "clients", "parties"])
def test_wrong_cards_are_refused(card: Any, words: str, split: str, tmp_path: Path) -> None:
    paths = (write_shops if split in ("vertical", "parties") else write_clinics)(tmp_path, {"max_rounds": 2})
    path = paths["job" if split in ("clients", "parties") else "together"]
    content = tomllib.loads(path.read_text()) | {"card": card}
    path.write_text(tomli_w.dumps(content))
    read = (
        read_job if path == paths["together"] else lambda one: parse_federation_job(tomllib.loads(one.read_text()), "")
    )
    with pytest.raises(JobError, match=words):
        read(path)
