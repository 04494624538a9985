"""Job files over pictures, and over three classes: from files to a run folder, scores, and a model in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from safetensors.numpy import save_file
from support.hospitals import HospitalJob

from evenhand import load_run
from evenhand.data.images import open_images
from evenhand.errors import DataError, InputError, JobError
from evenhand.jobs.checking import check_job_file
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import FinishedHorizontalRun, run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord

pytest.importorskip("torch")

RNG = np.random.default_rng(3)
MOODS = ["calm", "glad", "sad"]
CROPPED = {"kind": "resnet18", "crop": 16}
SMALL = {"batch_size": 6, "local_epochs": 1, "step": 0.05}


class PictureJob:
    """Two clients with 12 pictures each, of 3 × 20 × 20 bytes, and a job file."""

    def __init__(self, folder: Path, classes: bool = True) -> None:
        self.folder, self.path = folder, folder / "job.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.moods = np.arange(24) % 3
        self.images = (RNG.integers(0, 60, (24, 3, 20, 20)) + 60 * self.moods[:, None, None, None]).astype(np.uint8)
        names = np.array(MOODS)[self.moods] if classes else np.where(self.moods > 0, "glad", "calm")
        sex = np.where(np.arange(24) // 3 % 2 == 0, "f", "m")
        self.table = pd.DataFrame({"face": [f"f{n:02d}" for n in range(24)], "mood": names, "sex": sex})
        for place, name in enumerate(("north", "south")):
            rows = slice(12 * place, 12 * place + 12)
            self.table[rows].to_csv(folder / f"{name}.csv", index=False)
            np.save(folder / f"{name}.npy", self.images[rows])
        label: dict[str, Any] = {"column": "mood", "classes": MOODS} if classes else {"column": "mood"}
        self.content: dict[str, Any] = {
            "job": {"split": "horizontal", "model": CROPPED, "max_rounds": 1, "options": SMALL},
            "data": {"label": label, "sensitive": ["sex"], "id": "face"},
            "client": [{"name": name, "table": f"{name}.csv", "images": f"{name}.npy"} for name in ("north", "south")],
        }

    def read(self) -> Any:
        self.path.write_text(tomli_w.dumps(self.content))
        return read_job(self.path)

    def run(self, out: str = "run") -> FinishedHorizontalRun:
        return run_horizontal_job(self.read(), self.folder, self.folder / out)


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> tuple[PictureJob, FinishedHorizontalRun]:
    job = PictureJob(tmp_path_factory.mktemp("moods"))
    job.content["job"]["constraint"] = {"kind": "loss-parity", "epsilon": 0.1}
    return job, job.run()


def test_three_classes_of_pictures_end_in_a_run_folder(moods: tuple[PictureJob, FinishedHorizontalRun]) -> None:
    job, finished = moods
    assert finished.run.terms.shape == (3, 16, 16)
    assert finished.run.terms.classes == 3
    assert finished.result["solver"] == "fairfedavgalm"
    assert finished.result["labels"] == {"classes": tuple(MOODS)}
    found = finished.result["quality"]["train"]
    assert set(found) == {"accuracy", "DP", "DFN"}
    right = load_run(job.folder / "run").predict(job.images) == job.table["mood"]
    assert found["accuracy"] == pytest.approx(right.mean())
    assert finished.result["clients"]["north"]["train"] == {"rows": 12, "accuracy": pytest.approx(right[:12].mean())}


def test_scores_of_new_rows_are_those_of_the_model(moods: tuple[PictureJob, FinishedHorizontalRun]) -> None:
    job, finished = moods
    found = score_new_clients(finished.folder)
    model = load_run(finished.folder.path)
    assert list(found.scores.columns) == ["score", *(f"probability {one}" for one in MOODS), "prediction"]
    np.testing.assert_allclose(found.scores.iloc[:, 1:4], model.predict_proba(job.images), atol=1e-6)
    assert found.scores["prediction"].tolist() == model.predict(job.images).tolist()
    assert found.measured is not None
    assert found.measured["quality"]["scored"]["accuracy"] == finished.result["quality"]["train"]["accuracy"]
    with pytest.raises(DataError, match="--job"):
        score_new_clients(finished.folder, tables={"new": job.folder / "north.csv"})


def test_runs_of_pictures_have_a_page(moods: tuple[PictureJob, FinishedHorizontalRun]) -> None:
    page = make_page([RunRecord.read(moods[1].folder.path)])
    assert "ResNet-18 across 2 participants" in page
    assert "one of calm, glad, sad" in page


def test_two_classes_are_measured_as_those_of_tables_are(tmp_path: Path) -> None:
    job = PictureJob(tmp_path / "two", classes=False)
    finished = job.run()
    assert finished.result["labels"] == {"negative": "calm", "positive": "glad"}
    assert {"accuracy", "DP", "DFN", "log_loss"} <= set(finished.result["quality"]["train"])
    assert check_job_file(job.read(), job.folder).problems == []


def test_three_classes_of_a_table(tmp_path: Path) -> None:
    job = HospitalJob(tmp_path)
    job.averaging("fedavg", rounds=4)
    del job.content["job"]["constraint"]
    for frame in job.frames.values():
        frame["outcome"] = np.where(frame["age"] < 35, "young", frame["outcome"])
    job.content["data"]["label"] = {"column": "outcome", "classes": ["ill", "well", "young"]}
    finished = job.run()
    assert finished.result["quality"]["test"]["accuracy"] > 0.5
    model = load_run(job.folder / "run")
    found = score_new_clients(finished.folder).scores
    everybody = pd.concat(job.frames.values())
    assert found["prediction"].tolist() == model.predict(everybody).tolist()
    assert check_job_file(job.read(), job.folder).problems == []
    job.content["job"]["start"] = "run/model/weights.safetensors"
    again = job.run("again").run
    assert again.history["objective"].iloc[0] == pytest.approx(finished.run.history["objective"].iloc[-1], rel=1e-5)


def test_arrays_and_folders_of_pictures_are_opened_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = RNG.integers(0, 256, (4, 3, 8, 8), dtype=np.uint8)
    save_file({"images": images, "more": np.zeros(3)}, tmp_path / "some.safetensors")
    np.save(tmp_path / "some.npy", images)
    for name in ("some.safetensors", "some.npy"):
        found = open_images(tmp_path / name)
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, images)
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    (tmp_path / "faces").mkdir()
    for place, one in enumerate(images):
        pillow.fromarray(np.moveaxis(one, 0, -1)).save(tmp_path / "faces" / f"{place}.png")
    found = open_images(tmp_path / "faces", ["2.png", "0.png"], size=8)
    np.testing.assert_array_equal(found, images[[2, 0]])
    with pytest.raises(DataError, match="leads out of the folder"):
        open_images(tmp_path / "faces", ["../some.npy"], size=8)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("none.npy", None, "there is no file or folder"),
        ("some.txt", b"", "are a .npy or .safetensors file"),
        ("some.npy", b"no such thing", "holds no pictures"),
        ("some.safetensors", b"\xff" * 20, "holds no pictures"),
        ("some.safetensors", b"\x02" + b"\x00" * 7 + b"{}", "holds no pictures"),
        ("some.npy", np.zeros((2, 3)), "not bytes"),
        ("object.npy", np.array([{}], dtype=object), "holds no pictures"),
    ],
)
def test_files_that_hold_no_pictures_are_refused(file: str, content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / file
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_images(path)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("job", "model", "mlp", 'use model = "resnet18"'),
        ("job", "solver", "sqp", "sqp"),
        ("job", "model", {"kind": "resnet18", "device": "fridge"}, "torch cannot use"),
        ("data", "columns", ["face"], "this job trains on pictures"),
        ("data", "size", 8, "set data.file .* and data.size .* together"),
        ("job", "model", {"kind": "resnet18", "crop": 21}, "a crop of 21 does not fit"),
        ("job", "model", {"kind": "resnet18", "hidden": [3]}, "job.model: model 'resnet18' has no option 'hidden'"),
        ("data", "label", {"column": "mood", "classes": ["calm", "glad"]}, "three or more labels"),
        ("data", "label", {"column": "mood", "classes": ["calm", "glad", "mad"]}, "unknown label 'sad'"),
        ("data", "label", {"column": "mood", "classes": MOODS, "positive": "sad"}, "is for two labels"),
        ("client", 0, {"name": "north", "table": "north.csv"}, "client 'north' has no images"),
        (
            "client",
            0,
            {"name": "north", "table": "north.csv", "images": "few.npy"},
            "few.npy has 3 pictures, but the table has 12",
        ),
    ],
)
def test_wrong_jobs_are_refused(section: str, key: Any, value: Any, message: str, tmp_path: Path) -> None:
    job = PictureJob(tmp_path)
    np.save(tmp_path / "few.npy", job.images[:3])
    job.content[section][key] = value
    with pytest.raises((JobError, DataError, InputError), match=message):
        job.run()
    assert not (tmp_path / "run").exists()
