"""A protection that a known attack breaks is refused until the user allows it; every front says what breaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.clinics import write_clinics
from support.federation import write_shops
from support.problems import small

from evenhand.errors import EvenhandError, InputError, ProtocolError
from evenhand.estimators import VerticalClassifier
from evenhand.jobs.federation.files import read_federation_job
from evenhand.jobs.federation.notices import notice
from evenhand.jobs.federation.sites import draft_terms
from evenhand.privacy import Dealer, Encrypted
from evenhand.protocol import job as jobs
from evenhand.protocol.job import EXPERIMENTAL, Job, Protection
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.terms import VerticalTerms

LEVELS: list[Protection] = ["dealer", "encrypted"]
"""Levels that this file marks as broken, whatever the table of the day says."""


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the rule testable after the last level has earned its claim back."""
    table = {name: f"{name} is broken by a test" for name in (*LEVELS, "privacy.epsilon")}
    monkeypatch.setattr(jobs, "EXPERIMENTAL", table)


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_needs_the_flag_and_the_error_says_what_breaks(level: Protection) -> None:
    with pytest.raises(InputError, match=f"'{level}' is experimental: {level} is broken.*allow_experimental"):
        Job(protection=level)
    assert Job(protection=level, allow_experimental=True).protection == level


@pytest.mark.parametrize("given", ["dealer", "encrypted", Dealer(), Encrypted()])
def test_an_estimator_needs_the_flag_on_the_object(given: Any) -> None:
    problem = small(2, rows=60)
    with pytest.raises(InputError, match=r"is experimental.*\(allow_experimental=True\)"):
        VerticalClassifier(protection=given).fit([problem.matrix[:, :2], problem.matrix[:, 2:]], problem.labels)


def test_a_job_file_needs_the_flag(tmp_path: Path) -> None:
    paths = write_shops(tmp_path / "refused", {"protection": "dealer"})
    with pytest.raises(EvenhandError, match="allow_experimental = true"):
        read_federation_job(paths["job"])
    allowed = write_shops(tmp_path / "allowed", {"protection": "dealer", "allow_experimental": True})
    job = read_federation_job(allowed["job"])
    terms = draft_terms(job)  # type: ignore[arg-type]
    assert "dealer (protection 'dealer' is experimental: dealer is broken by a test)" in notice(job, "shop", terms)


def test_a_stated_epsilon_between_organisations_needs_the_flag(tmp_path: Path) -> None:
    privacy = {"mechanism": "clipped-gaussian", "clip": 1.0, "epsilon": 4.0}
    paths = write_clinics(tmp_path / "refused", {"solver": "fedavg", "max_rounds": 2}, privacy=privacy)
    with pytest.raises(EvenhandError, match=r"privacy\.epsilon is experimental"):
        read_federation_job(paths["job"])


def test_hostile_terms_do_not_bring_the_level_back() -> None:
    """A submitter that leaves the flag out of the terms gets no party to build them."""
    job = Job(solver="subspace", protection="dealer", allow_experimental=True)
    terms = VerticalTerms(job, {"bank": "active", "shop": "passive", "third": "dealer"}, 100)
    content = terms.to_plain()
    assert VerticalTerms.from_plain(content).job.allow_experimental
    stripped = content | {"job": {k: v for k, v in content["job"].items() if k != "allow_experimental"}}
    with pytest.raises(ProtocolError, match="experimental"):
        VerticalTerms.from_plain(stripped)
    plain = replace(terms, job=Job(solver="subspace", protection="masked"))
    assert "allow_experimental" not in plain.to_plain()["job"]


def test_a_policy_does_not_count_a_broken_level() -> None:
    """`encrypted` lets the server read columns, so it is not "at least masked"."""
    job = Job(solver="subspace", protection="encrypted", allow_experimental=True)
    terms = VerticalTerms(job, {"bank": "active", "shop": "passive", "phone": "passive"}, 100)
    assert "is experimental: encrypted is broken" in str(OwnPolicy(protection="masked")(terms))
    assert OwnPolicy(protection="masked", allow_experimental=True)(terms) is None


def test_the_real_table_names_known_things() -> None:
    assert set(EXPERIMENTAL) <= {*jobs.PROTECTIONS, jobs.PARTY_WEIGHTS, "privacy.epsilon"}
    assert all(len(reason) > 20 for reason in EXPERIMENTAL.values())


def test_weights_of_a_party_need_the_flag_and_the_notice_says_what_they_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jobs, "EXPERIMENTAL", EXPERIMENTAL)
    with pytest.raises(InputError, match=r'weights = "party" is experimental.*allow_experimental'):
        Job(protection="dealer", weights="party")
    with pytest.raises(InputError, match="is for protection 'dealer'"):
        Job(protection="masked", weights="party")
    asked = {"protection": "dealer", "weights": "party", "allow_experimental": True}
    job = read_federation_job(write_shops(tmp_path, asked)["job"])
    terms = draft_terms(job)  # type: ignore[arg-type]
    assert terms.to_plain()["job"]["weights"] == "party"
    told = notice(job, "shop", terms)
    assert 'dealer, weights = "party" (weights = "party" is experimental' in told
    assert "Two runs that differ by one person tell that person's label" in told
    assert Job(protection="dealer").experimental is None
