"""What a participant is told before it agrees covers every message that then leaves or reaches it.

For every listed solver and every level of protection that it takes: between organisations, site by site, with
checkpoints, and in one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.clinics import write_clinics
from support.federation import Network, assert_told, run_sites, told_kinds, write_shops

from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import FederationJob, read_federation_job, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.federation.notices import notice
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.protocol import resuming
from evenhand.protocol.terms import Terms
from evenhand.runtime.site import Site
from evenhand.solvers.announcing import announced, announced_for_scores, schemas
from evenhand.solvers.registry import HORIZONTAL, VERTICAL
from evenhand.solvers.roles import vertical_terms
from evenhand.training.run import one_blas_thread
from evenhand.vertical.vfb2.options import METHODS

FAIR = {"kind": "equal-opportunity", "epsilon": 0.1}
OPTIONS: dict[str, dict[str, Any]] = {**{name: {"batch_size": 32} for name in METHODS}}


def vertical_jobs() -> Iterator[Any]:
    for name, solver in VERTICAL.items():
        job: dict[str, Any] = {"solver": name, "max_rounds": 3, "options": OPTIONS.get(name, {}), "test_fraction": 0.2}
        job |= {"constraint": FAIR} if solver.takes_constraints else {}
        job |= {"model": solver.models[0]} if "linear" not in solver.models else {}
        for level in solver.protections:
            asked = job | {"protection": level, "allow_experimental": True}
            yield pytest.param(asked, ("bank",), id=f"{name}-{level}")
        yield pytest.param(job | {"protection": "none"}, ("bank", "phone"), id=f"{name}-two active")
        if solver.takes_label_privacy:
            private = {"label_privacy": {"epsilon": 4.0, "finish": True}}
            yield pytest.param(job | {"protection": "none"} | private, ("bank",), id=f"{name}-label privacy")
    crossing = {"interactions": "full", "rows_a_leaf": 5}
    yield pytest.param({"solver": "trees", "max_rounds": 6, "options": crossing}, ("bank",), id="trees-crossing")
    rule = {"threshold": "rate", "capacity": 0.3, "constraint": FAIR | {"epsilon": 0.4, "measure": "error"}}
    for level, marks in (("masked", ()), ("dealer", ()), ("encrypted", pytest.mark.soak)):
        job = {"solver": "subspace", "max_rounds": 3, "protection": level} | rule
        yield pytest.param(job, ("bank",), id=f"rule-{level}", marks=marks)
    yield pytest.param({"solver": "subspace", "max_rounds": 3, "ids": "private"}, ("bank",), id="private ids")


def horizontal_jobs() -> Iterator[Any]:
    for name, solver in HORIZONTAL.items():
        job: dict[str, Any] = {"solver": name, "max_rounds": 3 if solver.fixed_rounds else 12}
        job |= {"constraint": FAIR} if solver.takes_constraints else {}
        for level in solver.protections:
            yield pytest.param(job | {"protection": level}, id=f"{name}-{level}")
    counted = FAIR | {"epsilon": 0.4, "measure": "error", "confidence": 0.6}
    rule = {"threshold": "rate", "capacity": 0.3}
    for level in ("none", "masked"):
        yield pytest.param({"solver": "sqp", "max_rounds": 12, "protection": level} | rule, id=f"rule-{level}")
    yield pytest.param({"solver": "sqp", "max_rounds": 6, "constraint": counted}, id="sqp-confidence")


def between_organisations(paths: dict[str, Path], runs: Path) -> tuple[dict[str, str], dict[str, Site], dict[str, Any]]:
    """Run a job on sites of their own: the notice that each participant was shown, the sites, and how each ended."""
    job, network = read_federation_job(paths["job"]), Network()
    notices: dict[str, str] = {}
    others = list(job.parts)
    with ExitStack() as stack:
        folders = {
            name: stack.enter_context(side_folder(runs / name, name, job, None, False)) for name in ("server", *others)
        }

        def server(site: Site) -> Any:
            checkpoints = CheckpointManager(site, folders["server"], others, 0.0)
            return server_part(
                job, lambda: site_env(paths["bank"]), lambda: site.transcript, checkpoints, paths["identity"]
            )

        def other(name: str) -> Any:
            def told(terms: Terms) -> None:
                notices[name] = notice(job, name, terms)

            return lambda site: party_part(
                job, site_env(paths[name]), told, CheckpointManager(site, folders[name], others, 0.0)
            )

        with one_blas_thread():
            ends = run_sites({"server": server, **{name: other(name) for name in others}}, network)
    return notices, network.sites, ends


def kinds_in(text: str) -> set[str]:
    """Return the kinds of messages that a notice names."""
    return set().union(*told_kinds(text))


def assert_announced(paths: dict[str, Path], folder: Path) -> set[str]:
    """Every site was told of every kind that its own transcript shows; returns what all were told."""
    notices, sites, ends = between_organisations(paths, folder)
    failed = {name: end for name, end in ends.items() if isinstance(end, Exception)}
    assert not failed, failed
    for name, text in notices.items():
        assert_told(name, text, [(one.kind, one.sender, one.receiver) for one in sites[name].transcript])
        # A short run may end before a party has written its first checkpoint, and says so ("saved") in others only.
        assert {"checkpoint", "saved"} <= kinds_in(text)
    assert any(one.kind == "checkpoint" for site in sites.values() for one in site.transcript)
    participants = dict(read_federation_job(paths["job"]).parts)
    for entry in sites["server"].transcript:
        direction = schemas()[entry.kind].direction
        assert direction.allows(entry.sender, entry.receiver, participants), entry
    return set().union(*map(kinds_in, notices.values()))


# Few rounds are too few for bounds on rates.
@pytest.mark.filterwarnings("ignore::evenhand.errors.ExactRatesWarning")
@pytest.mark.parametrize(("job", "active"), vertical_jobs())
def test_parties_are_told_of_every_message(job: dict[str, Any], active: tuple[str, ...], tmp_path: Path) -> None:
    if job["solver"] == "trees":
        pytest.importorskip("lightgbm")
    paths = write_shops(tmp_path, job, active)
    if "label_privacy" in job:
        for file in (paths["bank"], paths["together"]):
            file.write_text(file.read_text().replace('positive = "yes"', 'positive = "yes"\nsecret = "labels.secret"'))
    told = assert_announced(paths, tmp_path / "runs")
    if job.get("ids") != "private":
        together = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
        assert {one.kind for one in together.run.transcript} <= told


@pytest.mark.parametrize("job", horizontal_jobs())
def test_clients_are_told_of_every_message(job: dict[str, Any], tmp_path: Path) -> None:
    if HORIZONTAL[job["solver"]].fixed_rounds:
        pytest.importorskip("torch")
    paths = write_clinics(tmp_path, job)
    told = assert_announced(paths, tmp_path / "runs")
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert {one.kind for one in together.run.transcript} <= told


def test_resuming_and_questions_about_new_people_are_announced(tmp_path: Path) -> None:
    job = read_federation_job(write_shops(tmp_path, {"solver": "subspace"})["job"])
    assert isinstance(job, FederationJob)
    terms = vertical_terms(job.to_job(), job.parts, 0, {})
    kinds = {schema.kind for vocabulary in announced(terms) for schema in vocabulary}
    assert {schema.kind for schema in (*resuming.CHECKPOINTING, *resuming.VOCABULARY)} <= kinds
    asked = kinds_in(notice(job, "shop", terms, scores=True))
    assert asked == {"offer", "accepted", "refused", "outcome", "asked", "held", "taken"} | {
        *("partial-scores", "masked-partial-scores", "sides", "scored")
    }
    assert asked < {schema.kind for vocabulary in announced_for_scores(terms) for schema in vocabulary}
