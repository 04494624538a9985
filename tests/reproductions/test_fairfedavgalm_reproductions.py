"""The FairFedAvgALM reproductions in small: tasks, the paper's numbers, pages, and what a record says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.picture_folders import make_celeba, make_imsitu

from evenhand.errors import InputError
from evenhand.horizontal.problem import ClientRows
from evenhand.models.pictures import Pictures
from evenhand.protocol.job import Job
from evenhand.training.horizontal import HorizontalRun
from evenhand_reproductions import REPRODUCTIONS
from evenhand_reproductions.data.digits import DigitImages
from evenhand_reproductions.data.imsitu import GenderRule, load_imsitu
from evenhand_reproductions.fairfedavgalm import activities, fig1, ldp, numbers, pages
from evenhand_reproductions.fairfedavgalm.tasks import CELLS, TaskRows, TrainingTask, load_task, small_convolutions
from evenhand_reproductions.in_memory import train_clients

NAMES = [name for name in REPRODUCTIONS if name.startswith("fairfedavgalm-")]


def made_rows(count: int, seed: int = 0) -> TaskRows:
    rng = np.random.default_rng(seed)
    groups = pd.Series(np.where(rng.random(count) < 0.5, "red", "green"), name="group")
    labels = np.where(rng.random(count) < np.where(groups == "red", 0.2, 0.5), 1, -1)
    features = rng.normal(size=(count, 3)) + labels[:, None] * [1.0, 0.0, 0.0] + (groups == "red").to_numpy()[:, None]
    return TaskRows(features.astype(np.float32), labels.astype(np.int64), groups)


@pytest.fixture
def task() -> TrainingTask:
    return TrainingTask("adult", made_rows(4000), made_rows(300, 1), made_rows(600, 2), "linear", "Made rows.")


def test_rows_are_dealt_without_repetition_and_by_the_seed(task: TrainingTask) -> None:
    clients = task.deal(3, clients=5, rows=100, alpha=0.5)
    assert [client.n_rows for client in clients] == [100] * 5
    rows = np.concatenate([client.features for client in clients])
    assert len(np.unique(rows, axis=0)) == 500
    again = task.deal(3, clients=5, rows=100, alpha=0.5)
    assert all(np.array_equal(one.features, other.features) for one, other in zip(clients, again, strict=True))
    shares = [float(np.mean(client.labels > 0)) for client in clients]
    assert np.ptp(shares) > np.ptp([np.mean(c.labels > 0) for c in task.deal(3, clients=5, rows=100, alpha=1e6)])


def test_cells_have_their_shares() -> None:
    cells = CELLS["biased-digits"]
    assert sum(cells.values()) == pytest.approx(1)
    rows = made_rows(4000)
    task = TrainingTask("biased-digits", rows, rows, rows, "linear", "Made rows.", cells)
    dealt = task.deal(0, clients=4, rows=100, alpha=5.0)
    found = pd.DataFrame(
        {
            "label": np.concatenate([client.labels for client in dealt]),
            "group": pd.concat([client.groups["group"] for client in dealt]).to_numpy(),
        }
    )
    counts = found.value_counts()
    assert {cell: counts[cell] / len(found) for cell in cells} == pytest.approx(cells, abs=0.01)
    # More than there are: as many as keep the shares.
    assert 400 < sum(client.n_rows for client in task.deal(0, clients=4, rows=10**6, alpha=5.0)) < 4000


def test_the_papers_numbers_are_whole() -> None:
    assert numbers.TABLE2["α = 1, N = 10"]["FairFedAvgALM"] == ((74.66, 0.13), (22.38, 8.66), (41.46, 0.29))
    assert numbers.SUPPLEMENT_TABLE1["C = 0.25"]["FedAvg"][2] == (52.75, 3.47)
    for table in (numbers.TABLE2, numbers.TABLE3, numbers.TABLE4, numbers.TABLE5, numbers.SUPPLEMENT_TABLE1):
        for methods in table.values():
            assert {"FedAvg", "FairFedAvgALM"} <= set(methods)
            assert all(len(row) == 3 for row in methods.values())
    assert numbers.TABLE3["α = 0.2"]["FedAvg"] == ((65.40, 8.42), None, None)


@pytest.fixture
def made_task(task: TrainingTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "load_task", lambda name, source: task)


def test_many_classes_are_judged_on_pairs(command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    digits = DigitImages(rng.integers(0, 255, (300, 14, 14)).astype(np.uint8), rng.integers(0, 10, 300), "made")
    monkeypatch.setattr(activities, "load_digit_images", lambda source: digits)
    monkeypatch.setattr(activities, "ROWS", 400)
    monkeypatch.setattr(activities, "TEST_ROWS", 3000)
    code, _, errors = command("fairfedavgalm-activities", "--runs", 1, "--rounds", 1, "--out", tmp_path)  # type: ignore[operator]
    assert code == 0, errors
    text = (tmp_path / "fairfedavgalm-activities.md").read_text(encoding="utf-8")
    assert text.count("| FairFedAvgALM |") == 1 + 3
    assert re.search(r"\bnan\b", text) is None
    test = activities.digit_pairs(None).test
    right = activities.judged(test, test.labels, ("50", "00"))
    assert (right["accuracy"], right["EO"]) == (1.0, 0.0)
    always = activities.judged(test, np.full(len(test.labels), 50), ("50", "00"))
    assert (always["DP"], always["EO"]) == (0.0, 0.0)
    green = activities.judged(test, np.where(test.groups == 1, 50, 0), ("50", "00"))
    assert (green["DP"], green["EO"], green["EO error"]) == (1.0, 1.0, 0.0)
    fifties = np.flatnonzero(test.labels == 50)
    some = fifties[test.groups[fifties] == 1]
    half = activities.judged(test, np.where(np.isin(np.arange(len(test.labels)), some[::2]), 50, 0), ("50", "00"))
    assert half["EO"] == pytest.approx(len(some[::2]) / len(some))
    assert half["EO error"] == pytest.approx(np.sqrt(half["EO"] * (1 - half["EO"]) / len(some)))


SUPPLEMENT_C2 = {
    "fedavg": {},
    "fairfed": {"weight_step": 0.2, "metric": "equal-opportunity"},
    "fairalm": {"growth": 1.01, "dual_step": 1.0},
    "fpfl": {"penalty": 0.1, "dual_step": 0.2},
    "fairfedavgalm": {"growth": 1.01, "penalty": 2.0, "dual_step": 1.0},
}
"""Beside what is the same for all; FairFed's metric is in Section 5."""


def test_imsitu_is_trained_on_as_the_supplement_says(
    command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a made folder. What the jobs ask for is checked, and one round is trained; the ResNet once."""
    pytest.importorskip("torch")
    verbs = [verb for pair in activities.SUBTASKS[activities.IMSITU] for verb in pair]
    make_imsitu(tmp_path / "imsitu", verbs)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    # The real set has many pictures of each verb.
    monkeypatch.setattr(activities, "load_imsitu", partial(load_imsitu, rule=GenderRule(min_images=2)))
    jobs: dict[str, Job] = {}

    def train_one_round(job: Job, clients: list[ClientRows], *, model: Any, **given: Any) -> HorizontalRun:
        jobs[job.solver] = job
        assert model == "resnet18"
        assert given["classes"] == 6
        assert len(clients) == 4
        for client in clients:
            assert isinstance(client.features, Pictures)
            assert client.features.images.shape[1:] == (3, 256, 256)
            assert client.features.crop == 224
        small = partial(small_convolutions, (3, 224, 224), outputs=6)
        network = model if job.solver == "fedavg" else small
        return train_clients(replace(job, max_rounds=1), clients, model=network, **given)

    monkeypatch.setattr(activities, "train_clients", train_one_round)
    options = ["--set", "imsitu", "--source", tmp_path, "--runs", 1, "--out", tmp_path / "results"]
    code, _, errors = command("fairfedavgalm-activities", *options)  # type: ignore[operator]
    assert code == 0, errors
    assert jobs.keys() == SUPPLEMENT_C2.keys()
    for solver, own in SUPPLEMENT_C2.items():
        same = {"optimizer": "sgd", "batch_size": 128, "clip": 1.0, "local_epochs": 1, "schedule": "steps"}
        steps = {"step": 0.02, "step_decay_every": 40, "step_decay_factor": 0.5}
        assert jobs[solver].options == {**same, **steps, **own, "report_every": 0}
        assert jobs[solver].max_rounds == 200
    text = (tmp_path / "results" / "fairfedavgalm-activities.md").read_text(encoding="utf-8")
    assert re.search(r"\bnan\b", text) is None
    assert "Nothing here is pretrained." in text
    assert "FairFed goes by EO" in text
    row = next(line for line in text.split("shaving against")[1].splitlines() if line.startswith("| FairFedAvgALM |"))
    cells = row.strip("| ").split(" | ")
    assert (cells[2], cells[6], cells[8]) == ("32.24", "3.44", "5.94"), "the paper's, beside what it prints"
    assert re.search(r"; published EO [+-]\d+\.\d here, -4\.2 in the paper\.", text), "mean over the three pairs"


def test_a_tiny_figure_of_faces(command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's ResNet on a made folder of CelebA."""
    pytest.importorskip("captum")
    make_celeba(tmp_path / "celeba", each=(1, 1, 1))
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fig1, "COMPARED", fig1.COMPARED[:2])
    monkeypatch.setattr(fig1, "SETTING", replace(fig1.SETTING, clients=2))
    options = ["--set", "celeba", "--source", tmp_path, "--rounds", 1, "--out", tmp_path / "results"]
    code, _, errors = command("fairfedavgalm-fig1", *options)  # type: ignore[operator]
    assert code == 0, errors
    text = (tmp_path / "results" / "fairfedavgalm-fig1.md").read_text(encoding="utf-8")
    assert "CelebA (1 run)" in text
    assert "T = 1, η_w = 0.01, times 0.1 every 25 rounds" in text
    assert "frame" not in text
    records = json.loads((tmp_path / "results" / "fairfedavgalm-fig1.json").read_text())["records"]
    assert [record["shape"] for record in records] == [[4, 3, 128, 128]] * 2
    assert records[0]["labels"] == [0, 0, 1, 1]
    assert (tmp_path / "results" / "fairfedavgalm-fig1.png").stat().st_size > 10_000


def test_a_tiny_figure_of_framed_pictures_counts_where_the_evidence_lies(
    command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("captum")
    rng = np.random.default_rng(3)
    labels = np.where(rng.random(240) < 0.5, 1, -1)
    groups = np.where(rng.random(240) < 0.3, "dark frame", "bright frame")
    pictures = rng.integers(0, 255, (240, 1, 16, 16)).astype(np.uint8)
    pictures[:, :, :2] = np.where(groups == "bright frame", 255, 0)[:, None, None, None]
    rows = TaskRows(pictures, labels, pd.Series(groups, name="group"))
    network = partial(small_convolutions, (1, 16, 16))
    made = TrainingTask("framed-digits", rows, rows, rows, network, "Made rows.")
    monkeypatch.setattr(pages, "load_task", lambda name, source: made)
    code, _, errors = command("fairfedavgalm-fig1", "--rounds", 1, "--runs", 2, "--out", tmp_path)  # type: ignore[operator]
    assert code == 0, errors
    text = (tmp_path / "fairfedavgalm-fig1.md").read_text(encoding="utf-8")
    assert "share of the heat on the frame" in text
    assert "| FedAvg | " in text
    assert "44 % of the picture: that is what evidence spread evenly would have there" in text
    assert "pictures of which both have a map" in text
    drawn = (tmp_path / "fairfedavgalm-fig1.png").read_bytes()
    code, _, errors = command("fairfedavgalm-fig1", "--rewrite", "--out", tmp_path)  # type: ignore[operator]
    assert code == 0, errors
    assert (tmp_path / "fairfedavgalm-fig1.png").read_bytes() == drawn, "maps are kept, models are not needed"


def frame_records(*runs: dict[str, list[float | None]]) -> pd.DataFrame:
    rows = [
        {"seed": seed, "method": method, fig1.SHARES: given}
        for seed, shares in enumerate(runs)
        for method, given in shares.items()
    ]
    return pd.DataFrame(rows)


def test_a_verdict_on_where_models_look_needs_both_statistics_and_several_runs() -> None:
    """FedAvg has no map of the pictures on which the other one looks at the frame most."""
    common = [0.5, 0.6, 0.55, 0.58]
    lower = [[share - gap for share in common] for gap in (0.2, 0.21)]
    only_here = [{"FedAvg": [*common, None], "ALM": [*one, 1.0]} for one in lower]
    (line,) = fig1._framed(frame_records(*only_here))
    assert line.startswith("ALM less FedAvg, share of the evidence on the frame in points: -20.5 ± 0.5 on the pictures")
    assert "(4 to 4 of 5 a run), -7.6 ± 0.4 on all" in line
    assert line.endswith("it looks away from the sensitive mark.")
    (line,) = fig1._framed(frame_records(*({"FedAvg": one, "ALM": common} for one in lower)))
    assert "+20.5 ± 0.5" in line
    assert line.endswith("it looks more at the sensitive mark.")
    turned = [{"FedAvg": [*common, None, None], "ALM": [*one, 1.0, 1.0]} for one in lower]
    (line,) = fig1._framed(frame_records(*turned))
    assert line.endswith("these runs do not tell where it looks.")
    (line,) = fig1._framed(frame_records(only_here[0]))
    assert "-20.0 (one run)" in line
    assert line.endswith("these runs do not tell where it looks.")
    (line,) = fig1._framed(frame_records({"FedAvg": [None, 0.6], "ALM": [0.5, None]}))
    assert "hardly any picture in common" in line


def test_records_that_do_not_tell_pictures_apart_are_not_compared() -> None:
    (line,) = fig1._framed(pd.DataFrame({"method": ["FedAvg", "ALM"], "on the frame": [0.5, 0.4]}))
    assert "cannot be compared" in line


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(("fig1", "activities"))])
@pytest.mark.usefixtures("made_task")
def test_a_tiny_table(name: str, command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # How much noise an ε takes is tested by itself.
    monkeypatch.setattr(ldp, "record_noise_for", lambda mechanism, *_: mechanism)
    monkeypatch.setattr(ldp, "RECORD_EPSILONS", (8.0,))
    pytest.importorskip("torch")
    if name.endswith("ldp"):
        pytest.importorskip("dp_accounting")
    options = ["--runs", 1, "--rounds", 2, "--set", "adult", "--out", tmp_path]
    code, _, errors = command(name, *options)  # type: ignore[operator]
    assert code == 0, errors
    text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert "Made rows." in text
    assert "nan" not in text
    records = json.loads((tmp_path / f"{name}.json").read_text())["records"]
    assert {record["set"] for record in records} == {"adult"}
    for record in records:
        assert 0 <= record["DP"] <= 1
        assert 0 <= record["EO"] <= 1
        assert record["published DP"] <= 1
    assert {record["seed"] for record in records} == {0 if name.endswith("settings") else 10}
    code, _, errors = command(name, "--rewrite", "--out", tmp_path)  # type: ignore[operator]
    assert code == 0, errors
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8") == text


@pytest.mark.usefixtures("made_task")
def test_the_tables_show_both_quantities_beside_the_papers(command: object, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    name = "fairfedavgalm-participation"
    command(name, "--runs", 1, "--rounds", 2, "--set", "adult", "--out", tmp_path)  # type: ignore[operator]
    lines = (tmp_path / f"{name}.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith("| C = 0.5 | FedAvg |")).strip("| ").split(" | ")
    record = json.loads((tmp_path / f"{name}.json").read_text())["records"][0]
    assert (row[3], row[7], row[9]) == ("75.93 ± 2.64", "31.67 ± 8.61", "53.60 ± 0.29")
    measured = [record[metric] for metric in ("accuracy", "DP", "EO", "published DP", "published EO")]
    assert [float(row[place]) for place in (2, 4, 5, 6, 8)] == pytest.approx([100 * m for m in measured], abs=0.06)


@pytest.mark.parametrize(
    ("plain", "fair", "verdict"),
    [
        ((0.8, 0.2, 0.2), (0.79, 0.1, 0.1), "(-1.0): both lower."),
        (
            (0.8, 0.2, 0.2),
            (0.78, 0.1, 0.3),
            "DP 20.0 → 10.0, EO 20.0 → 30.0, accuracy 80.0 → 78.0 (-2.0): only DP lower.",
        ),
        ((0.8, 0.2, 0.2), (0.79, 0.3, 0.3), "neither lower."),
        ((0.8, 0.2, 0.2), (0.76, 0.0, 0.0), "hardly more is right than if everybody had the same label (75.2)."),
        ((0.75, 0.0, 0.01), (0.75, 0.0, 0.0), "nothing to lower, FedAvg gives nearly everybody the same label."),
    ],
)
def test_checks_say_where_it_does_not_hold(plain: tuple[float, ...], fair: tuple[float, ...], verdict: str) -> None:
    head = {"set": "adult", "condition": "here", "seed": 10}
    names = ("accuracy", "DP", "EO")
    records = pd.DataFrame(
        [
            {**head, "method": "FedAvg", **dict(zip(names, plain, strict=True))},
            {**head, "method": "FairFedAvgALM", **dict(zip(names, fair, strict=True))},
        ]
    )
    (line,) = pages.checks(records)
    assert line.endswith(verdict)
    again = pd.concat([records, records.assign(seed=11, DP=records["DP"] + [0.0, 0.02])])
    (line,) = pages.checks(again)
    apart = 100 * (fair[1] - plain[1]) + 1.0
    assert f"mean difference ± its standard error of 2: DP {apart:+.1f} ± 1.0" in line


def test_sets_that_are_not_there_are_refused(command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="have no set 'compas'"):
        load_task("compas")
    code, _, errors = command("fairfedavgalm-clients", "--set", "compas", "--out", tmp_path)  # type: ignore[operator]
    assert code == 2
    assert "adult, biased-digits, celeba" in errors
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    with pytest.raises(InputError, match="--source"):
        load_task("celeba")


def test_claims_in_words_are_shown_reversed_or_left_open() -> None:
    rows = [
        {"set": "adult", "method": "FedAvg", "seed": seed, "condition": name, "accuracy": a, "DP": d, "EO": e}
        for seed, noise in enumerate((-0.001, 0.0, 0.001))
        for name, a, d, e in (
            ("many", 0.80 + noise, 0.20 + noise, 0.10 + 30 * noise),
            ("few", 0.75 - noise, 0.25, 0.11 - 30 * noise),
        )
    ]
    signs = {"accuracy": -1, "DP": -1, "EO": 1}
    first, line = pages.stated(pd.DataFrame(rows), "many", "few", "Less is right.", signs)
    assert first.startswith("The paper says: Less is right. From many to few")
    assert line == (
        "Adult, FedAvg: the other way round: DP +5.00 ± 0.06; not shown: EO +1.00 ± 3.46; shown: Acc -5.00 ± 0.12."
    )
    (_, alone) = pages.stated(pd.DataFrame(rows[:2]), "many", "few", "Less is right.", signs)
    assert alone.endswith("one run, which cannot tell.")
