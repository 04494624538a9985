"""A run resolves its job once: whatever is set up is set up once, or once for each side of an exchange."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.horizontal.sqp.options import SQP
from evenhand.jobs.schema import TrainingSection
from evenhand.protocol.job import Job
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.subspace.party import Subspace


@dataclass
class Watch:
    """Counts calls of methods."""

    patch: pytest.MonkeyPatch
    calls: Counter[str] = field(default_factory=Counter)

    def over(self, owner: type[Any], name: str) -> None:
        method = getattr(owner, name)

        def counted(*given: Any, **named: Any) -> Any:
            self.calls[f"{owner.__name__}.{name}"] += 1
            return method(*given, **named)

        self.patch.setattr(owner, name, counted)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch(monkeypatch)
    for owner in (Job, Subspace, SQP):
        found.over(owner, "__post_init__")
    found.over(TrainingSection, "to_job")
    return found


def test_a_vertical_run_resolves_its_job_once(tmp_path: Path, watch: Watch) -> None:
    made = SmallJob(tmp_path)
    made.content["job"] |= {"solver": "subspace", "options": {"history": 4}, "tol": 0.01}
    made.run()
    assert watch.calls["TrainingSection.to_job"] == 1
    # As the file says, and as the participants read it in the terms.
    assert watch.calls["Job.__post_init__"] <= 3
    assert watch.calls["Subspace.__post_init__"] <= 3


def test_a_horizontal_run_resolves_its_job_once(tmp_path: Path, watch: Watch) -> None:
    made = HospitalJob(tmp_path)
    made.run()
    assert watch.calls["TrainingSection.to_job"] == 1
    assert watch.calls["Job.__post_init__"] <= 3
    assert watch.calls["SQP.__post_init__"] <= 3


def test_participants_of_one_process_share_the_terms_they_read() -> None:
    text = json.dumps(VerticalTerms(Job(), {"bank": "active"}, 3).to_plain())
    assert VerticalTerms.from_text(text) is VerticalTerms.from_text(text)
