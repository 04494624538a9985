"""Runs to report on, of both splits, and a browser that opens what was written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.jobs.auditing import audit_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs: two across columns, without a constraint (audited) and with one, and one across rows."""
    folder = tmp_path_factory.mktemp("runs")
    odds = {"kind": "equalized-odds", "epsilon": 0.05, "measure": "error"}
    found = {}
    for name, constraint in (("plain", {}), ("fair", {"constraint": odds})):
        (folder / f"{name} tables").mkdir()
        job = SmallJob(folder / f"{name} tables", rows=400)
        job.content["job"] = {"test_fraction": 0.25, **constraint}
        run = job.run(folder / name).folder
        found[name] = run.path
        if name == "plain":
            # Small forests, and no run repeated without a person: what attacks find is tested in `auditing`.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("evenhand.auditing.learners.TREES", 5)
                patch.setattr("evenhand.training.auditing._again", lambda *_: None)
                audit_run(run, []).write(run.path)
    (folder / "hospitals").mkdir()
    found["across rows"] = HospitalJob(folder / "hospitals").run(folder / "across rows").folder.path
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser, which is not ours to install: Debian calls its package chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install 'evenhand[dev]'")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no browser here; on Debian and Ubuntu: apt-get install chromium")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()
