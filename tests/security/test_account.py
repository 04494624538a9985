"""Under noise nothing else leaves a client, and the terms hold the mechanism with all its numbers."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")
pytest.importorskip("dp_accounting")
import tomli_w
from support.clients import deal_rows
from support.clinics import CLIENTS, write_clinics
from support.federation import Network, run_sites
from support.problems import small

from evenhand.errors import DivergenceError, InputError, ProtocolError
from evenhand.horizontal.averaging.messages import FINAL, MODEL, TILT
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.jobs.federation.clients import client_program, clients_server_program
from evenhand.jobs.federation.files import ClientsJob, read_federation_job, read_party
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.ledger import AnsweredOnce
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, SharedGaussian, noise_terms
from evenhand.privacy.record_level import RecordGaussian
from evenhand.protocol.job import Job
from evenhand.protocol.messages import as_bytes
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.terms import HorizontalTerms
from evenhand.protocol.versions import own_version
from evenhand.runtime.packets import packet_from
from evenhand.training.horizontal import build_roles
from evenhand.training.run import one_blas_thread
from evenhand_reproductions.in_memory import horizontal_terms

VERSION = as_bytes(own_version().to_text())
ROWS = deal_rows(small(seed=3, rows=90), np.array_split(np.arange(90), 3))
OPTIONS = {"batch_size": 16, "step": 0.1, "local_epochs": 1}
NONE = np.zeros(0, dtype=np.float32)
NOISES = [ClippedGaussian(0.5, None, 4.0), RecordGaussian(1.0, 4.0, 0.3, 4), GaussianNoise(0.1)]


def terms_with(noise: Any, **job: Any) -> HorizontalTerms:
    asked = Job(**{"solver": "fedavg", "max_rounds": 3, "options": OPTIONS, **job})
    return horizontal_terms(asked, ROWS, noise=noise_terms(noise))


def first_client(noise: Any, once: Any = None, **job: Any) -> tuple[Any, np.ndarray]:
    """A client's role, and weights that a server has chosen."""
    terms = terms_with(noise, **job)
    owns = {one.name: ClientData(one, None, noise, secret=bytes(32), once=once) for one in ROWS}
    server, clients = build_roles(terms, HorizontalServerData(), owns)
    size = getattr(server, "inner", server).weights.size
    weights = np.random.default_rng(1).normal(size=size).astype(np.float32)
    return clients[0], weights


def final(weights: np.ndarray, number: int, measure: int) -> Any:
    return FINAL.message("server", "c0", round=number, weights=weights, statistics=NONE, measure=measure)


def model(weights: np.ndarray, number: int) -> Any:
    return MODEL.message("server", "c0", round=number, weights=weights, statistics=NONE, multipliers=np.zeros(0))


@pytest.mark.parametrize("noise", NOISES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("number", [1, 3])
def test_a_client_with_noise_measures_nothing(noise: Any, number: int) -> None:
    client, weights = first_client(noise)
    with pytest.raises(ProtocolError, match=r"refuses to measure|takes no 'final'"):
        client.receive(final(weights, number, 1))
    with pytest.raises(ProtocolError, match="takes no 'tilt'"):
        client.receive(TILT.message("server", "c0", rows=90, tilt=np.zeros(0)))
    # The model itself may still be told.
    assert not list(client.receive(final(weights, 3, 0)))
    assert client.done


def test_without_noise_each_closing_question_is_answered_once_and_after_the_last_round() -> None:
    client, weights = first_client(None)
    with pytest.raises(ProtocolError, match="takes no 'final'"):
        client.receive(final(weights, 1, 1))
    assert [one.kind for one in client.receive(final(weights, 3, 1))] == ["sums"]
    with pytest.raises(ProtocolError, match="takes no 'final'"):
        client.receive(final(2 * weights, 3, 1))
    with pytest.raises(ProtocolError, match="refuses a model of round"):
        client.receive(model(weights, 3))
    tilt = TILT.message("server", "c0", rows=90, tilt=np.zeros(0))
    assert [one.kind for one in client.receive(tilt)] == ["gradient"]
    with pytest.raises(ProtocolError, match="takes no 'tilt'"):
        client.receive(tilt)


def test_a_second_model_before_the_answer_is_refused() -> None:
    client, weights = first_client(NOISES[0])
    client.receive(model(weights, 1))
    with pytest.raises(ProtocolError, match="refuses a model of round"):
        client.receive(model(2 * weights, 2))


@pytest.mark.parametrize("noise", NOISES[:2], ids=lambda one: type(one).__name__)
def test_whether_training_diverged_is_not_told(noise: Any) -> None:
    client, weights = first_client(noise, options={**OPTIONS, "clip": None, "step": 1e38})
    client.receive(model(1e30 * weights, 1))
    try:
        (answer,) = client.work()
    except DivergenceError:
        # Only from what noise covers already: the weights left the range of numbers by noisy steps.
        assert isinstance(noise, RecordGaussian)
    else:
        assert np.isfinite(answer["weights"]).all()


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_a_resumed_run_gets_no_second_answer_to_a_question(protection: str, tmp_path: Path) -> None:
    pytest.importorskip("nacl")
    path = tmp_path / "answered.jsonl"
    noise = SharedGaussian(0.5, None, 4.0, shares=2) if protection == "masked" else NOISES[0]
    client, weights = first_client(noise, AnsweredOnce(path), protection=protection)
    kept = client.snapshot()
    inner = getattr(client, "inner", client)
    inner.receive(model(weights, 1))
    (said,) = inner.work()
    # The process ended, and a new one begins from the checkpoint.
    client, _ = first_client(noise, AnsweredOnce(path), protection=protection)
    client.restore(kept)
    inner = getattr(client, "inner", client)
    with pytest.raises(ProtocolError, match="model round 1 was answered before"):
        inner.receive(model(2 * weights, 1))
    inner.receive(model(weights, 1))
    np.testing.assert_array_equal(inner.work()[0]["weights"], said["weights"])


# -- the mechanism is part of the terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ClippedGaussian(1.0, None, 5.0), ClippedGaussian(1.0, None, 1e-9)),
        (ClippedGaussian(1.0, None, 5.0), ClippedGaussian(2.0, None, 5.0)),
        (SharedGaussian(1.0, None, 5.0, shares=2), SharedGaussian(1.0, None, 5.0, shares=3)),
        (RecordGaussian(1.0, 4.0, 0.3, 4), RecordGaussian(1.0, 4.0, 0.9, 4)),
        (GaussianNoise(0.1), GaussianNoise(0.0)),
        (GaussianNoise(0.1), None),
    ],
)
def test_another_mechanism_gives_other_terms(one: Any, other: Any) -> None:
    job = {"protection": "masked"}
    first, second = terms_with(one, **job), terms_with(other, **job)
    assert first.digest != second.digest
    assert HorizontalTerms.from_text(json.dumps(first.to_plain())).digest == first.digest
    with pytest.raises(InputError, match="but the terms say"):
        build_roles(first, HorizontalServerData(), {row.name: ClientData(row, None, other) for row in ROWS})


def job_with(folder: Path, privacy: dict[str, Any], **job: Any) -> ClientsJob:
    found = read_federation_job(
        write_clinics(folder, {"solver": "fedavg", "max_rounds": 2, **job}, privacy=privacy)["job"]
    )
    assert isinstance(found, ClientsJob)
    return found


@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "gaussian", "weight_noise": 0.0},
        {"mechanism": "gaussian", "weight_noise": 9.0},
        {"mechanism": "clipped-gaussian", "clip": 1.0, "noise_multiplier": 0.0},
        {"mechanism": "clipped-gaussian", "clip": 1e6, "noise_multiplier": 1e-9},
    ],
)
def test_noise_in_name_only_does_not_satisfy_a_policy(privacy: dict[str, Any], tmp_path: Path) -> None:
    job = job_with(tmp_path, privacy)
    terms = HorizontalTerms(job.to_job(), {"a": "client"}, 0, noise=job.to_noise())
    assert OwnPolicy(protected=True, most_epsilon=10.0)(terms) is not None


def test_the_stated_epsilon_is_that_of_the_numbers_in_the_terms(tmp_path: Path) -> None:
    data = {"encoder": "encoder.json", "groups": {"sex": ["f", "m"]}}
    privacy = {"mechanism": "clipped-gaussian", "clip": 1.0, "epsilon": 2.0}
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 5}, data=data, privacy=privacy)
    job = read_federation_job(paths["job"])
    assert isinstance(job, ClientsJob)
    noise = job.to_noise()
    assert 1.99 < noise["epsilon"] <= 2.0
    assert (
        OwnPolicy(protected=True, most_epsilon=2.0)(HorizontalTerms(job.to_job(), {"a": "client"}, 0, noise=noise))
        is None
    )
    # Columns that are learned from rows are in no account, so there is no ε.
    open_job = job.model_copy(update={"data": job.data.model_copy(update={"encoder": None})})
    assert open_job.to_noise()["epsilon"] is None


# -- exact counts stay at home


def run(paths: dict[str, Path]) -> tuple[dict[str, Any], list[Any]]:
    job, told = read_federation_job(paths["job"]), []
    assert isinstance(job, ClientsJob)

    def see(_: str, __: str, content: Any) -> Any:
        if (message := packet_from(content).message) is not None:
            told.append(message)
        return content

    def client(name: str) -> Any:
        return lambda _: client_program(job, read_party(paths[name]), paths[name].parent)

    with one_blas_thread():
        programs = {"server": lambda site: clients_server_program(job, lambda: site.transcript)}
        return run_sites(programs | {name: client(name) for name in CLIENTS}, Network(meddle=see)), told


@pytest.mark.parametrize("mechanism", ["record-gaussian", "clipped-gaussian"])
def test_counts_by_label_group_and_decision_stay_at_home(mechanism: str, tmp_path: Path) -> None:
    more = {"rate": 0.3, "steps": 4} if mechanism == "record-gaussian" else {}
    privacy = {"mechanism": mechanism, "clip": 1.0, "noise_multiplier": 8.0, **more}
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2}, privacy=privacy)
    together = run_horizontal_job(_job(paths["together"]), tmp_path, tmp_path / "run")
    for folder in (tmp_path, *(paths[name].parent for name in CLIENTS)):
        (folder / "encoder.json").write_text(json.dumps(together.folder.read_model("encoder")), encoding="utf-8")
    content = tomllib.loads(paths["job"].read_text())
    content["data"] |= {"encoder": "encoder.json", "groups": {"sex": ["f", "m"]}}
    content["privacy"]["epsilon"] = 1.0
    del content["privacy"]["noise_multiplier"]
    paths["job"].write_text(tomli_w.dumps(content))

    ends, told = run(paths)
    assert ends["server"]["privacy"]["north"]["epsilon"] <= 1.0
    kinds = {one.kind for one in told if one.sender in CLIENTS}
    assert "counts-by-group" not in kinds
    assert not kinds & {"sums", "gradient", "rates"}
    assert "quality" not in ends["server"]
    # The client itself knows how good the model is on its rows.
    assert 0 <= ends["north"].quality["quality"]["train"]["accuracy"] <= 1
    # Of two neighbours everything that has no noise is the same, byte for byte.
    table = pd.read_csv(tmp_path / "north" / "table.csv")
    table.loc[7, "sick"] = "no" if table.loc[7, "sick"] == "yes" else "yes"
    table.to_csv(tmp_path / "north" / "table.csv", index=False)
    assert _bare(told) == _bare(run(paths)[1])


def _bare(told: list[Any]) -> dict[Any, Any]:
    """All that one client says without noise."""
    sent = [one for one in told if one.sender == "north" and one.kind != "update"]
    return {(one.kind, one.receiver): {name: value.tobytes() for name, value in one.body.items()} for one in sent}


def _job(path: Path) -> HorizontalJobFile:
    found = read_job(path)
    assert isinstance(found, HorizontalJobFile)
    return found


def test_terms_with_another_mechanism_are_refused_at_the_second_offer() -> None:
    from evenhand.protocol.enrol import OFFER, EnrolParty

    draft = terms_with(ClippedGaussian(1.0, None, 5.0))
    less = replace(draft, noise=noise_terms(ClippedGaussian(1.0, None, 1e-9)))
    (answer,) = EnrolParty("c0", HorizontalTerms, draft=draft).receive(
        OFFER.message("server", "c0", terms=as_bytes(less.to_plain()), version=VERSION)
    )
    assert answer.kind == "refused"
